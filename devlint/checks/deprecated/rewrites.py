"""Calls of deprecated names whose arguments change with the name: each old name, and how its call is rewritten.

A rewriter gives the edits for the call's arguments, None among them or instead of them where the call is not one that it
can prove right; the name itself is replaced by whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable

from devlint.checks.base import File
from devlint.edits import add_argument, argument, has_unpacking
from devlint.findings import Edit
from devlint.lazycst import cst
from devlint.semantics.tensor_types import DEFAULT_DTYPE_SETTERS
from devlint.units import Unit

Edits = list[Edit | None]
_BACKENDS = (
    ("enable_flash", "FLASH_ATTENTION"),
    ("enable_math", "MATH"),
    ("enable_mem_efficient", "EFFICIENT_ATTENTION"),
    ("enable_cudnn", "CUDNN_ATTENTION"),
)
# The order in which the old context manager hands them over.
_ORDER = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH", "CUDNN_ATTENTION")


def rewrite(old: str, call: cst.Call, unit: Unit, file: File) -> Edits | None:
    """The edits to the arguments of a call of `old`; None where there is no rewriter, or the call is not for it."""
    rewriter = _REWRITERS.get(old)
    return rewriter(call, unit, file) if rewriter is not None and not has_unpacking(call) else None


def _chain_matmul(call: cst.Call, unit: Unit, file: File) -> Edits | None:
    if not call.args or any(arg.keyword is not None for arg in call.args):
        return None
    if getattr(call.args[-1].value, "lpar", ()):
        return None
    first, last = unit.offsets(call.args[0])[0], unit.offsets(call.args[-1].value)[1]
    return [Edit(first, first, "["), Edit(last, last, "]")]


def _cholesky(call: cst.Call, unit: Unit, file: File) -> Edits | None:
    upper = argument(call, "upper", 1)
    if len(call.args) == 1 and call.args[0].keyword is None:
        return []
    if len(call.args) != 2 or upper is not call.args[1] or call.args[0].keyword is not None:
        return None
    return [] if upper.keyword is not None else [_keyword(unit, upper, "upper")]


def _qr(call: cst.Call, unit: Unit, file: File) -> Edits | None:
    some = argument(call, "some", 1)
    if not call.args or call.args[0].keyword is not None or len(call.args) != (2 if some is not None else 1):
        return None
    if some is None:
        return []
    value = _literal(some)
    if value is None:
        return None
    return [Edit(*unit.offsets(some), 'mode="reduced"' if value else 'mode="complete"')]


def _range(call: cst.Call, unit: Unit, file: File) -> Edits | None:
    """`torch.range` of literal integers: the end moves by one, and the dtype is the default one where none is given."""
    given = [arg for arg in call.args if arg.keyword is None]
    numbers = [_integer(arg.value) for arg in given]
    if not 1 < len(numbers) <= 3 or any(number is None for number in numbers):
        return None
    if any(arg.keyword is not None and arg.keyword.value in ("start", "end", "step") for arg in call.args):
        return None
    start, end, step = (*(number or 0 for number in numbers), 1)[:3]
    if step == 0 or (end - start) * step < 0:
        return None
    edits: Edits = [Edit(*unit.offsets(given[1].value), str(end + (1 if step > 0 else -1)))]
    if argument(call, "dtype") is None and argument(call, "out") is None:
        if not file.words.isdisjoint(DEFAULT_DTYPE_SETTERS):
            return None
        edits.append(add_argument(unit, call, f"dtype={file.names.spell('torch.float32')[0]}"))
    return edits


def _sdp_kernel(call: cst.Call, unit: Unit, file: File) -> Edits | None:
    names = {name for name, _ in _BACKENDS}
    if any(arg.keyword is not None and arg.keyword.value not in names for arg in call.args) or len(call.args) > 4:
        return None
    chosen: set[str] = set()
    for position, (name, backend) in enumerate(_BACKENDS):
        arg = argument(call, name, position)
        value = True if arg is None else _literal(arg)
        if value is None:
            return None
        if value:
            chosen.add(backend)
    backends = [file.names.spell(f"torch.nn.attention.SDPBackend.{name}")[0] for name in _ORDER if name in chosen]
    start, end = unit.offsets(call.func)[1], unit.offsets(call)[1]
    text = unit.source.text
    if not backends or "#" in text[start:end] or text[start : start + 1] != "(":
        return None
    return [Edit(start + 1, end - 1, f"[{', '.join(backends)}]")]


def _swap_lu(call: cst.Call, unit: Unit, file: File) -> Edits | None:
    """`(b, LU, pivots)` becomes `(LU, pivots, b)`."""
    if len(call.args) != 3 or any(arg.keyword is not None for arg in call.args):
        return None
    first, last = unit.offsets(call.args[0].value)[0], unit.offsets(call.args[2].value)[1]
    if "#" in unit.source.text[first:last] or any(getattr(arg.value, "lpar", ()) for arg in call.args):
        return None
    b, lu, pivots = (arg.value for arg in call.args)
    return [
        Edit(*unit.offsets(b), unit.code(lu)),
        Edit(*unit.offsets(lu), unit.code(pivots)),
        Edit(*unit.offsets(pivots), unit.code(b)),
    ]


def _adding(text: str, known: tuple[str, ...]) -> Callable[[cst.Call, Unit, File], Edits | None]:
    def rewriter(call: cst.Call, unit: Unit, file: File) -> Edits | None:
        positional = [arg for arg in call.args if arg.keyword is None]
        if not call.args or len(positional) > len(known):
            return None
        if any(arg.keyword is not None and arg.keyword.value not in known for arg in call.args):
            return None
        return [add_argument(unit, call, text)]

    return rewriter


def _keyword(unit: Unit, arg: cst.Arg, name: str) -> Edit:
    at = unit.offsets(arg)[0]
    return Edit(at, at, f"{name}=")


def _literal(arg: cst.Arg) -> bool | None:
    """The truth value that an argument is literally."""
    value = arg.value.value if isinstance(arg.value, cst.Name) else ""
    return {"True": True, "False": False}.get(value)


def _integer(node: cst.BaseExpression) -> int | None:
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        value = _integer(node.expression)
        return -value if value is not None else None
    return node.evaluated_value if isinstance(node, cst.Integer) else None


_FUNCTIONAL = ("input", "size", "scale_factor")
_REWRITERS: dict[str, Callable[[cst.Call, Unit, File], Edits | None]] = {
    "torch.chain_matmul": _chain_matmul,
    "torch.cholesky": _cholesky,
    "torch.qr": _qr,
    "torch.range": _range,
    "torch.lu_solve": _swap_lu,
    "torch.backends.cuda.sdp_kernel": _sdp_kernel,
    "torch.nn.functional.upsample_nearest": _adding('mode="nearest"', _FUNCTIONAL),
    "torch.nn.functional.upsample_bilinear": _adding('mode="bilinear", align_corners=True', _FUNCTIONAL),
    "torch.nn.UpsamplingNearest2d": _adding('mode="nearest"', _FUNCTIONAL[1:]),
    "torch.nn.UpsamplingBilinear2d": _adding('mode="bilinear", align_corners=True', _FUNCTIONAL[1:]),
}
