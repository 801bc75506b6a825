import sys
import threading
from typing import Any

import pytest
import torch

from devlint.runtime import explain_device_errors, rehearse, to_device
from devlint.runtime.explain import note_for, parse_device_error

MESSAGES = [
    (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (when checking "
        "argument for argument mat1 in method wrapper_CUDA_addmm)",
        ("mismatch", ("cuda:0", "cpu"), "mat1", "wrapper_CUDA_addmm"),
    ),
    (
        "Expected all tensors to be on the same device, but got index is on cpu, different from other tensors on cuda:0 "
        "(when checking argument in method wrapper_CUDA__index_select)",
        ("mismatch", ("cpu", "cuda:0"), "index", "wrapper_CUDA__index_select"),
    ),
    (
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!",
        ("mismatch", ("cuda:0", "cuda:1"), "", ""),
    ),
    (
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
        ("index", ("cpu",), "", ""),
    ),
    ("Tensor on device cpu is not on the expected device meta!", ("mismatch", ("cpu", "meta"), "", "")),
    (
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or input should be "
        "a MKLDNN tensor and weight is a dense tensor",
        ("weight", ("cpu", "cuda"), "", ""),
    ),
    (
        "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same",
        ("weight", ("mps", "cpu"), "", ""),
    ),
    (
        "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and hidden tensor at cpu",
        ("weight", ("cuda:0", "cpu"), "", ""),
    ),
    (
        "Tensor for argument #2 'mat1' is on CPU, but expected it to be on GPU (while checking arguments for addmm)",
        ("mismatch", ("cpu", "cuda"), "mat1", ""),
    ),
    (
        "Tensor for 'out' is on CPU, Tensor for argument #1 'self' is on CPU, but expected them to be on GPU",
        ("mismatch", ("cpu", "cuda"), "self", ""),
    ),
    (
        "Expected object of device type cuda but got device type cpu for argument #2 'mat2' in call to _th_mm",
        ("mismatch", ("cuda", "cpu"), "mat2", ""),
    ),
    ("Placeholder storage has not been allocated on MPS device!", ("mismatch", ("mps",), "", "")),
    (
        "Unhandled FakeTensor Device Propagation for aten.add.Tensor, found two different devices cuda:0, cpu",
        ("mismatch", ("cuda:0", "cpu"), "", "aten.add.Tensor"),
    ),
    (
        "Expected a 'cuda' device type for generator but found 'cpu'",
        ("generator", ("cuda", "cpu"), "", ""),
    ),
    (
        "module must have its parameters and buffers on device cuda:0 (device_ids[0]) but found one of them on device: cpu",
        ("module", ("cuda:0", "cpu"), "", ""),
    ),
    (
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
        ("numpy", ("cuda:0",), "", ""),
    ),
    ("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned", ("pin", ("cuda",), "", "")),
    ("Torch not compiled with CUDA enabled", ("unavailable", ("cuda",), "", "")),
    (
        "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        ("unavailable", ("cuda",), "", ""),
    ),
    ("CUDA error: invalid device ordinal", ("unavailable", (), "", "")),
    (
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
        "start method",
        ("fork", ("cuda",), "", ""),
    ),
    (
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
        ("deserialize", ("cuda",), "", ""),
    ),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES)
def test_messages_are_read(message: str, expected: Any) -> None:
    for text in (message, f"Traceback (most recent call last):\n  ...\nRuntimeError: {message}\n"):
        found = parse_device_error(text)
        assert found is not None
        assert (found.kind, found.devices, found.argument, found.method) == expected
        assert found.advice


@pytest.mark.parametrize(
    "message",
    ["", "mat1 and mat2 shapes cannot be multiplied", "CUDA out of memory. Tried to allocate 2 GiB", "same device"],
)
def test_other_messages_are_not(message: str) -> None:
    assert parse_device_error(message) is None


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.pos = torch.zeros(4)
        self.register_buffer("mask", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.fc(x) + self.mask
        return hidden + self.pos


def notes(error: BaseException) -> list[str]:
    """The notes of an error; before Python 3.11 they are part of its message."""
    text = str(error)
    return list(getattr(error, "__notes__", [text] if "devlint: tensors of" in text else []))


def failing(function: Any, *args: Any) -> str:
    """The note on the error that a call raises on a rehearsed CUDA device."""
    with rehearse(), pytest.raises(RuntimeError) as caught, explain_device_errors():
        function(*args)
    (note,) = notes(caught.value)
    return note


def test_an_unregistered_attribute_is_found_out() -> None:
    note = failing(lambda: Net().to("cuda")(torch.zeros(2, 4, device="cuda")))
    assert "in forward\n    return hidden + self.pos" in note
    assert "  hidden: shape (2, 4), float32, cuda:0, local variable" in note
    assert "  self.pos: shape (4,), float32, cpu, plain attribute, not registered: .to() does not move it" in note
    assert "likely fix: register `self.pos` in __init__, self.register_buffer('pos', ...)" in note


def test_an_argument_left_behind_is_named() -> None:
    def step(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return model(batch["x"])

    note = failing(lambda: step(torch.nn.Linear(4, 4).to("cuda"), {"x": torch.zeros(2, 4), "y": torch.zeros(1)}))
    assert "model.weight: shape (4, 4), float32, cuda:0, parameter or buffer, and 1 more" in note
    assert "batch['x']: shape (2, 4), float32, cpu, argument" in note
    assert "likely fix: move `batch['x']` before the call: devlint.runtime.to_device(batch, 'cuda:0')" in note


def test_an_index_on_the_accelerator_is_named() -> None:
    def pick() -> torch.Tensor:
        table = torch.zeros(4)
        index = torch.zeros(2, dtype=torch.long, device="cuda")
        return table[index]

    note = failing(pick)
    assert "likely fix: move `index` to 'cpu', or make it there with device=table.device" in note


def test_a_new_tensor_is_to_be_made_on_the_device() -> None:
    def make(x: torch.Tensor) -> torch.Tensor:
        noise = torch.zeros(2, 4)
        return x + noise

    note = failing(lambda: make(to_device(torch.ones(2, 4), "cuda")))
    assert "likely fix: make `noise` on 'cuda:0' (device=...), or move it there" in note


def test_a_decorated_function_keeps_its_name_and_result() -> None:
    @explain_device_errors()
    def double(x: torch.Tensor) -> torch.Tensor:
        """Doubles."""
        return x * 2

    assert (double.__name__, double.__doc__) == ("double", "Doubles.")
    assert double(torch.ones(1)).item() == 2


def meta_and_cpu() -> None:
    left, right = torch.zeros(2, device="meta"), torch.zeros(2)
    _ = left + right


def test_one_note_is_enough() -> None:
    with pytest.raises(RuntimeError) as caught, explain_device_errors(), explain_device_errors():
        explain_device_errors()(meta_and_cpu)()
    assert len(notes(caught.value)) == 1
    assert str(caught.value).count("likely fix") <= 1


def test_other_errors_pass_without_a_note() -> None:
    with pytest.raises(RuntimeError) as caught, explain_device_errors():
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert notes(caught.value) == []
    with pytest.raises(KeyError), explain_device_errors():
        raise KeyError("Torch not compiled with CUDA enabled")


class Old(RuntimeError):
    """Stands for an exception of Python 3.10, which has no notes."""

    add_note = None


def test_without_notes_the_message_is_extended() -> None:
    error = Old("Tensor on device cpu is not on the expected device meta!", 2)
    with pytest.raises(Old) as caught, explain_device_errors():
        raise error
    assert caught.value is error
    assert error.args[0].startswith("Tensor on device cpu is not on the expected device meta!\n\ndevlint: tensors of")
    assert error.args[1] == 2


def test_the_hooks_explain_what_nothing_catches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: seen.append(error))
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))
    before = sys.excepthook, threading.excepthook
    uninstall = explain_device_errors().install()
    try:
        meta_and_cpu()
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    thread = threading.Thread(target=meta_and_cpu)
    thread.start()
    thread.join()
    uninstall()
    assert (sys.excepthook, threading.excepthook) == before
    assert ["right: shape (2,), float32, cpu" in "".join(notes(error)) for error in seen] == [True] * 2


def test_no_property_is_run() -> None:
    class Holder:
        def __init__(self) -> None:
            self.left = torch.zeros(2, device="meta")

        @property
        def right(self) -> torch.Tensor:
            calls.append(1)
            return torch.zeros(2)

    calls: list[int] = []
    holder = Holder()
    with pytest.raises(RuntimeError) as caught, explain_device_errors():
        _ = holder.left + holder.right
    assert calls == [1]
    assert "holder.left: shape (2,), float32, meta, attribute" in notes(caught.value)[0]


def test_a_note_needs_a_traceback() -> None:
    assert note_for(RuntimeError("Torch not compiled with CUDA enabled")) == ""
