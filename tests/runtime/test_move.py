import copy
import dataclasses
import gc
import weakref
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import MORE, SHAPES, Frozen, InnerDict, LabelledDict, Plain, Point, packed, shared, verdict

from devlint.runtime import DeviceUnavailableError, devices_of, rehearse, to_device


@pytest.mark.parametrize("name", [*SHAPES, *MORE])
def test_every_shape_arrives_with_its_type(name: str) -> None:
    make, tensors = {**SHAPES, **MORE}[name]
    batch = make()
    assert verdict(batch, to_device(batch, "meta"), tensors, "meta") == "ok"


@pytest.mark.parametrize("name", [name for name in (*SHAPES, *MORE) if "to()" not in name])
def test_the_original_is_left_as_it_was(name: str) -> None:
    make, tensors = {**SHAPES, **MORE}[name]
    batch = make()
    to_device(batch, "meta")
    assert all(tensor.device.type == "cpu" for tensor in tensors(batch))


def test_there_are_the_33_shapes() -> None:
    assert len(SHAPES) == 33


@pytest.mark.parametrize("pair", [True, False])
def test_one_tensor_stays_one(pair: bool) -> None:
    one = torch.zeros(2)
    batch = (one, one) if pair else (one, [one])
    moved = to_device(batch, "meta")
    assert moved[0] is (moved[1] if pair else moved[1][0])
    assert to_device(shared(), "meta")["a"].device.type == "meta"


def test_one_container_stays_one() -> None:
    inner = [torch.zeros(2)]
    moved = to_device({"a": inner, "b": inner}, "meta")
    assert moved["a"] is moved["b"]


def test_what_is_there_already_is_the_same_tensor() -> None:
    x, y = torch.zeros(2), torch.ones(2)
    assert to_device((x, y), "cpu")[1] is y
    assert to_device({"x": x}, "cpu")["x"] is x


def test_a_batch_in_itself_is_refused_with_its_path() -> None:
    batch: dict[str, Any] = {"x": [torch.zeros(2)]}
    batch["x"].append({"up": batch["x"]})
    with pytest.raises(ValueError, match=r"contains itself at batch\['x'\]\[1\]\['up'\]"):
        to_device(batch, "meta")


def test_too_deep_a_batch_is_refused() -> None:
    batch: Any = torch.zeros(1)
    for _ in range(100_000):
        batch = [batch]
    with pytest.raises(ValueError, match="nested too deeply"):
        to_device(batch, "meta")
    while isinstance(batch, list):  # taken apart by hand: freeing it at once would recurse
        batch = batch.pop()


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_an_asynchronous_copy_that_could_be_read_too_soon_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match=f"non_blocking=True towards {device}"):
        to_device(torch.zeros(1), device, non_blocking=True)


class Recorder:
    """Stands for an object that moves itself, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def to(self, device: torch.device, non_blocking: bool = False) -> None:
        self.asked.append((str(device), non_blocking))


@pytest.mark.parametrize(
    ("device", "choice", "expected"),
    [("cuda", None, True), ("xpu:1", None, True), ("cpu", None, False), ("mps", None, False), ("cuda", False, False)],
)
def test_copies_are_asynchronous_where_that_is_safe(device: str, choice: bool | None, expected: bool) -> None:
    recorder = Recorder()
    to_device([recorder], device, non_blocking=choice)
    assert recorder.asked == [(device, expected)]


def test_skipped_names_stay() -> None:
    batch = {"x": torch.zeros(1), "meta": {"x": torch.zeros(1), "y": torch.zeros(1)}, "p": Point(torch.zeros(1), 2)}
    moved = to_device(batch, "meta", skip=("x",))
    assert [moved[key].device.type for key in ("x",)] == ["cpu"]
    assert moved["meta"]["x"] is batch["meta"]["x"]
    assert moved["meta"]["y"].device.type == "meta"
    assert moved["p"].x is batch["p"].x
    assert to_device(Plain(torch.zeros(1)), "meta", skip="x").x.device.type == "cpu"


def test_a_skipped_string_is_one_name_and_not_its_letters() -> None:
    moved = to_device({"x": torch.zeros(1), "mask": torch.zeros(1), "a": torch.zeros(1)}, "meta", skip="mask")
    assert moved["mask"].device.type == "cpu"
    assert moved["a"].device.type == "meta"


def test_attributes_of_subclasses_are_moved_too() -> None:
    batch = LabelledDict([torch.zeros(2)], x=torch.zeros(2))
    moved = to_device(batch, "meta")
    assert moved.label[0].device.type == "meta"
    assert batch.label[0].device.type == "cpu"


def test_attributes_beside_the_fields_of_a_dataclass_are_moved() -> None:
    batch = Plain(torch.zeros(2))
    batch.extra = torch.zeros(2)  # type: ignore[attr-defined]
    assert to_device(batch, "meta").extra.device.type == "meta"  # type: ignore[attr-defined]


def test_an_unset_field_stays_unset() -> None:
    @dataclasses.dataclass
    class Lazy:
        x: torch.Tensor
        y: torch.Tensor = dataclasses.field(init=False)

    moved = to_device(Lazy(torch.zeros(1)), "meta")
    assert not hasattr(moved, "y")


def test_a_packed_sequence_keeps_its_sizes_on_the_cpu() -> None:
    moved = to_device(packed(), "meta")
    assert moved.batch_sizes.device.type == "cpu"
    assert moved.sorted_indices is None or moved.sorted_indices.device.type == "meta"
    assert set(devices_of(moved).values()) == {torch.device("meta")}


def test_gradients_flow_through_a_moved_parameter() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    with rehearse():
        moved = to_device({"w": weight}, "cuda")["w"]
        assert type(moved) is torch.nn.Parameter
        (moved * 3).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0, 3.0]


def test_other_objects_pass() -> None:
    module, path = torch.nn.Linear(1, 1), Path("a")
    batch = [module, path, object(), 1j, slice(3), int, torch.float32]
    assert all(a is b for a, b in zip(batch, to_device(batch, "meta"), strict=True))
    assert module.weight.device.type == "cpu"


def test_a_proxy_that_forwards_to_is_asked() -> None:
    class Proxy:
        def __init__(self, inner: Any) -> None:
            self.__dict__["inner"] = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["inner"], name)

    moved = to_device([Proxy(torch.zeros(2))], "meta")[0]
    assert moved.device.type == "meta"


def test_a_collection_that_cannot_be_rebuilt_is_named() -> None:
    from collections.abc import Mapping

    class Odd(Mapping):  # type: ignore[type-arg]
        def __getitem__(self, key: Any) -> Any:
            return TENSOR

        def __iter__(self) -> Any:
            return iter("a")

        def __len__(self) -> int:
            return 1

    TENSOR = torch.zeros(1)
    with pytest.raises(TypeError, match=r"cannot rebuild .*Odd.* skip"):
        to_device(Odd(), "meta")


def test_a_missing_device_says_why() -> None:
    with pytest.raises(DeviceUnavailableError, match=r"cuda cannot be used: .*build without CUDA"):
        to_device({"x": torch.zeros(1)}, "cuda")


@pytest.mark.parametrize("device", ["cudda", "cuda:x", None, 1.5])
def test_what_is_no_device_is_refused(device: Any) -> None:
    with pytest.raises(ValueError, match="not a device"):
        to_device(torch.zeros(1), device)


def test_an_error_of_the_move_itself_is_passed_on() -> None:
    class Broken:
        def to(self, device: Any) -> None:
            raise RuntimeError("broken on purpose")

    with pytest.raises(RuntimeError, match="broken on purpose"):
        to_device([Broken()], "cpu")


def test_nothing_is_kept_alive() -> None:
    batch = {"x": torch.zeros(2), "y": InnerDict(a=torch.zeros(2))}
    reference = weakref.ref(batch["x"])
    to_device(batch, "meta")
    del batch
    gc.collect()
    assert reference() is None


def test_paths_read_as_expressions() -> None:
    module = torch.nn.Linear(1, 1)
    batch = {"x": [torch.zeros(1)], "p": Point(torch.zeros(1, device="meta"), 1), "m": module}
    paths = {path: device.type for path, device in devices_of(batch).items()}
    assert paths == {
        "batch['x'][0]": "cpu",
        "batch['p'].x": "meta",
        "batch['m'].weight": "cpu",
        "batch['m'].bias": "cpu",
    }
    assert list(devices_of(torch.zeros(1), name="x")) == ["x"]


def test_devices_of_survives_a_batch_in_itself() -> None:
    batch: list[Any] = [torch.zeros(1)]
    batch.append(batch)
    assert list(devices_of(batch)) == ["batch[0]"]


leaves = st.one_of(
    st.integers(),
    st.none(),
    st.text(max_size=3),
    st.builds(lambda value: torch.tensor([value, 1.0]), st.floats(-4, 4, width=32)),
    st.builds(lambda value: torch.tensor(value), st.integers(-9, 9)),
)


def nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text("abc", min_size=1, max_size=2)
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.lists(children, max_size=3).map(lambda items: deque(items, 5)),
        st.dictionaries(keys, children, max_size=3),
        st.dictionaries(keys, children, max_size=3).map(OrderedDict),
        st.dictionaries(keys, children, max_size=3).map(lambda items: InnerDict(**items)),
        st.builds(Point, children, children),
        st.builds(Plain, children),
        st.builds(Frozen, children),
        children.map(lambda item: [item, item]),
    )


batches = st.recursive(leaves, nested, max_leaves=12)


def skeleton(value: Any, seen: dict[int, int]) -> Any:
    """Types, values and identities of a batch, without its devices."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return kind, seen.setdefault(id(value), len(seen)), value.tolist()
    if isinstance(value, (dict, InnerDict)):
        return kind, [(key, skeleton(item, seen)) for key, item in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return kind, getattr(value, "maxlen", None), [skeleton(item, seen) for item in value]
    if dataclasses.is_dataclass(value):
        return kind, [(f.name, skeleton(getattr(value, f.name), seen)) for f in dataclasses.fields(value)]
    return kind, value


@settings(max_examples=150, deadline=None)
@given(batches)
def test_there_and_back_is_equal(batch: Any) -> None:
    before = skeleton(batch, {})
    with rehearse():
        there = to_device(batch, "cuda")
        assert all(device.type == "cuda" for device in devices_of(there).values())
        assert devices_of(there).keys() == devices_of(batch).keys()
        back = to_device(there, "cpu")
        assert all(device.type == "cpu" for device in devices_of(back).values())
    assert skeleton(back, {}) == before
    assert skeleton(batch, {}) == before


@settings(max_examples=100, deadline=None)
@given(batches)
def test_nothing_is_left_behind(batch: Any) -> None:
    original = copy.copy(devices_of(batch))
    moved = devices_of(to_device(batch, "meta"))
    assert moved.keys() == original.keys()
    assert all(device.type == "meta" for device in moved.values())
