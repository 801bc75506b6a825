"""Notes on torch's device errors: which tensors of the failing line are where, whence they came, what mends it."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from devlint.runtime.device_errors import DeviceError, parse_device_error

if TYPE_CHECKING:
    import torch

__all__ = ["DeviceError", "explain_device_errors", "note_for", "parse_device_error"]

F = TypeVar("F", bound=Callable[..., Any])

SHOWN = 12
_MARK = "devlint: tensors of"
_CHAIN = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_STRING = re.compile(r"""'[^'\n]*'|"[^"\n]*\"""")
_HERE = os.path.dirname(__file__) + os.sep


class explain_device_errors:
    """Adds to torch's device errors a note that names the tensors of the failing line.

    Each is listed with shape, dtype, device and where it came from: a parameter, a buffer, a plain attribute (which
    ``module.to`` does not move), an argument, a local variable; then the likely fix. The error stays the same object
    of the same type. With Python 3.11 or later it is a note (PEP 678); before, the text is appended to the message.

    Three ways to use it:
        ``with explain_device_errors():``, around a training step or a whole ``main``;
        ``@explain_device_errors()``, on a function;
        ``explain_device_errors().install()``, for errors that nothing catches, in any thread; calling what it
        returns puts the former hooks back.

    Nothing is done, and nothing costs, until an error passes.
    """

    def __enter__(self) -> explain_device_errors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            _annotate(error, traceback)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def explained(*args: Any, **kwargs: Any) -> Any:
            with explain_device_errors():
                return function(*args, **kwargs)

        return cast(F, explained)

    def install(self) -> Callable[[], None]:
        """Explain errors that end the program or a thread; returns a function that takes the hooks out again."""
        former, former_threads = sys.excepthook, threading.excepthook

        def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
            _annotate(error, traceback)
            former(kind, error, traceback)

        def thread_hook(args: Any) -> None:
            if args.exc_value is not None:
                _annotate(args.exc_value, args.exc_traceback)
            former_threads(args)

        def uninstall() -> None:
            if sys.excepthook is hook:
                sys.excepthook = former
            if threading.excepthook is thread_hook:
                threading.excepthook = former_threads

        sys.excepthook, threading.excepthook = hook, thread_hook
        return uninstall


def _annotate(error: BaseException, traceback: TracebackType | None) -> None:
    """Add the note once. Whatever goes wrong on the way must not hide the error itself."""
    try:
        text = str(error)
        if _MARK in text or any(_MARK in note for note in getattr(error, "__notes__", ())):
            return
        note = note_for(error, traceback)
        if not note:
            return
        add_note = getattr(error, "add_note", None)
        if add_note is not None:
            add_note(note)
        elif error.args and isinstance(error.args[0], str):
            error.args = (f"{error.args[0]}\n\n{note}", *error.args[1:])
    except Exception:
        return


def note_for(error: BaseException, traceback: TracebackType | None = None) -> str:
    """The note for an error, or an empty string if it is none of torch's device errors."""
    if not isinstance(error, (RuntimeError, TypeError, AssertionError, NotImplementedError)):
        return ""
    parsed = parse_device_error(str(error))
    found = _user_frame(traceback or error.__traceback__)
    if parsed is None or found is None:
        return ""
    frame, line = found
    file, function = frame.f_code.co_filename, frame.f_code.co_name
    tensors = list(_named(frame, line))
    lines = [f"{_MARK} {os.path.basename(file)}:{line}, in {function}"]
    source = linecache.getline(file, line, frame.f_globals).strip()
    if source:
        lines.append(f"    {source}")
    lines += [f"  {name}: {what}" for name, what, _ in tensors[:SHOWN]]
    if len(tensors) > SHOWN:
        lines.append(f"  and {len(tensors) - SHOWN} more")
    lines.append(f"likely fix: {_fix(parsed, tensors)}")
    return "\n".join(lines)


Named = tuple[str, str, "torch.Tensor"]


def _user_frame(traceback: TracebackType | None) -> tuple[FrameType, int] | None:
    """The innermost frame that is neither torch's nor ours, and the line that it was at."""
    found = None
    torch = sys.modules.get("torch")
    root = os.path.dirname(torch.__file__ or "") + os.sep if torch is not None else "\0"
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith((root, _HERE)) and not file.startswith("<frozen"):
            found = traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def _named(frame: FrameType, line: int) -> Iterator[Named]:
    """The tensors that the failing statement names; if it names none, those of all local variables."""
    wanted = _statement(frame, line)
    seen: set[int] = set()
    code = frame.f_code
    starred = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]
    chains = list(dict.fromkeys(_CHAIN.findall(_STRING.sub("", wanted))))
    yielded = False
    for chain in chains:
        if any(other.startswith(f"{chain}.") for other in chains):
            continue
        for found in _chain(chain, frame, arguments, seen):
            yielded = True
            yield found
    if not yielded:
        for name, value in list(frame.f_locals.items()):
            yield from _value(name, value, _origin(name, arguments), seen)


def _statement(frame: FrameType, line: int) -> str:
    """The text of the innermost statement around a line, as far as it reads names."""
    import ast

    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    best: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            compound = hasattr(node, "body")
            if not compound and (best is None or node.lineno >= best.lineno):
                best = node
    if best is None:
        return linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    return " ".join(ast.unparse(node) for node in ast.walk(best) if isinstance(node, (ast.Attribute, ast.Name)))


def _chain(chain: str, frame: FrameType, arguments: tuple[str, ...], seen: set[int]) -> Iterator[Named]:
    """The tensors behind ``x`` or ``self.net.weight``, followed through instance attributes only."""
    import torch

    name, *rest = chain.split(".")
    value = frame.f_locals.get(name, frame.f_globals.get(name))
    origin = _origin(name, arguments) if name in frame.f_locals else "global"
    for attribute in rest:
        if isinstance(value, torch.Tensor):
            break
        owner = value
        value = _attribute(owner, attribute)
        if value is None:
            break
        name = f"{name}.{attribute}"
        origin = _membership(owner, attribute)
    if isinstance(value, torch.nn.Module):
        if rest or name != "self":
            yield from _module(name, value, seen)
    elif name == chain or isinstance(value, torch.Tensor):
        yield from _value(name, value, origin, seen)


def _attribute(owner: Any, name: str) -> Any:
    """An attribute that is stored on an object or registered with a module; no property is run."""
    own = getattr(owner, "__dict__", {})
    for table in (own, own.get("_parameters"), own.get("_buffers"), own.get("_modules")):
        if isinstance(table, dict) and name in table:
            return table[name]
    return None


def _membership(owner: Any, name: str) -> str:
    own = getattr(owner, "__dict__", {})
    if name in (own.get("_parameters") or ()):
        return "parameter"
    if name in (own.get("_buffers") or ()):
        return "buffer"
    if "_buffers" in own:
        return "plain attribute, not registered: .to() does not move it"
    return "attribute"


def _origin(name: str, arguments: tuple[str, ...]) -> str:
    return "argument" if name in arguments else "local variable"


def _value(name: str, value: Any, origin: str, seen: set[int]) -> Iterator[Named]:
    from devlint.runtime.walk import tensors

    if type(value).__module__.partition(".")[0] in ("builtins", "torch", "collections") or _is_batch(value):
        for path, tensor in tensors(value, name):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield path, f"{_describe(tensor)}, {origin}", tensor


def _is_batch(value: Any) -> bool:
    import torch

    from devlint.runtime.walk import is_record

    return isinstance(value, (torch.Tensor, dict, list, tuple)) or is_record(type(value))


def _module(name: str, module: torch.nn.Module, seen: set[int]) -> Iterator[Named]:
    """One line a device: the first parameter or buffer there, and how many more; and unregistered tensors."""
    from devlint.runtime.walk import named_tensors

    groups: dict[str, list[tuple[str, torch.Tensor]]] = {}
    for path, tensor in named_tensors(module):
        groups.setdefault(str(tensor.device), []).append((path, tensor))
    for members in groups.values():
        path, tensor = members[0]
        more = f", and {len(members) - 1} more parameters and buffers there" if len(members) > 1 else ""
        yield f"{name}.{path}", f"{_describe(tensor)}, parameter or buffer{more}", tensor
    for path, child in module.named_modules():
        for attribute, value in list(vars(child).items()):
            if attribute.startswith("_"):
                continue
            owner = f"{name}.{path}" if path else name
            yield from _value(f"{owner}.{attribute}", value, _membership(child, attribute), seen)


def _describe(tensor: torch.Tensor) -> str:
    return f"shape {tuple(tensor.shape)}, {str(tensor.dtype).removeprefix('torch.')}, {tensor.device}"


def _fix(parsed: DeviceError, tensors: list[Named]) -> str:
    """A fix that names the tensor which stands alone on its device, if it can be told."""
    if parsed.kind not in ("mismatch", "index", "weight"):
        return parsed.advice
    groups: dict[str, list[Named]] = {}
    for named in tensors:
        groups.setdefault(str(named[2].device), []).append(named)
    if len(groups) != 2:
        return parsed.advice
    for path, what, tensor in tensors:
        if "not registered" in what and tensor.device.type == "cpu":
            attribute = path.rpartition(".")[2]
            return f"register `{path}` in __init__, self.register_buffer({attribute!r}, ...), so that .to() moves it"
    odd, rest = sorted(groups, key=lambda device: (device != "cpu", len(groups[device])))
    path, what, _ = groups[odd][0]
    if "parameter" in what or "buffer" in what:
        return f"move the module of `{path}`: module.to({rest!r}) before it is used"
    if parsed.kind == "index" and odd == "cpu":
        return f"move `{groups[rest][0][0]}` to {odd!r}, or make it there with device={path}.device"
    if "argument" in what:
        return f"move `{path}` before the call: devlint.runtime.to_device(batch, {rest!r})"
    return f"make `{path}` on {rest!r} (device=...), or move it there"
