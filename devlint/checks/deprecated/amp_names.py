"""TDL501, TDL502, TDL503: the AMP names of `torch.cuda.amp` and `torch.cpu.amp`, which moved to `torch.amp`."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import add_argument, has_unpacking, prepend_argument, replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.guards import is_compatibility_code
from devlint.semantics.imports import Names
from devlint.semantics.tree import dotted
from devlint.units import Unit

_OLD = {
    f"torch.{device}.amp.{name}": (device, name, code, since)
    for device in ("cuda", "cpu")
    for name, code, since in (
        ("autocast", "TDL501", (1, 10)),
        ("GradScaler", "TDL502", (2, 3)),
        ("custom_fwd", "TDL503", (2, 4)),
        ("custom_bwd", "TDL503", (2, 4)),
    )
}
# `torch.amp.autocast` takes its dtype second: what was positional must become a keyword.
_AUTOCAST_PARAMETERS = ("enabled", "dtype", "cache_enabled")
_DEFAULT_DTYPE = {"cuda": "float16", "cpu": "bfloat16"}


class AmpNames(Check):
    rules = (
        Rule("TDL501", "cuda-amp-autocast", "the deprecated `torch.cuda.amp.autocast`", fix="safe"),
        Rule("TDL502", "cuda-amp-gradscaler", "the deprecated `torch.cuda.amp.GradScaler`", fix="safe"),
        Rule(
            "TDL503",
            "cuda-amp-custom-fwd-bwd",
            "the deprecated `torch.cuda.amp.custom_fwd` and `custom_bwd`",
            fix="safe",
        ),
    )

    @classmethod
    def wants(cls, unit: Unit, names: Names) -> bool:
        """Whether the unit holds one of the old names, or an alias that the file's imports give one."""
        return not unit.words.isdisjoint(names.words_for(_OLD))

    def visit_Name(self, node: cst.Name) -> None:
        self._reference(node)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._reference(node)

    def _reference(self, node: cst.Name | cst.Attribute) -> None:
        above = self.parent(node)
        if isinstance(above, (cst.Attribute, cst.ImportAlias, cst.ImportFrom, cst.AsName)):
            return
        old = _OLD.get(self.name(node))
        if old is None or is_compatibility_code(self.unit, node):
            return
        device, name, code, since = old
        qualified = f"torch.{device}.amp.{name}"
        fix = self._fix(node, above, device, name) if self.file.settings.targets(*since) else None
        self.report(
            node,
            code,
            f"`{qualified}` is deprecated since torch 2.4; use `{self._example(device, name)}`",
            fix=fix,
        )

    def _example(self, device: str, name: str) -> str:
        if name.startswith("custom"):
            return f'torch.amp.{name}(device_type="{device}")'
        return f'torch.amp.{name}("{device}", …)'

    def _fix(self, node: cst.Name | cst.Attribute, above: cst.CSTNode | None, device: str, name: str) -> Fix | None:
        spelled, needs = self.file.names.spell(f"torch.amp.{name}")
        edits: list[Edit | None]
        if isinstance(above, cst.Call) and above.func is node:
            edits = [replace(self.unit, node, spelled), *self._arguments(above, device, name)]
        elif isinstance(above, cst.Decorator) and name.startswith("custom"):
            edits = [replace(self.unit, node, f'{spelled}(device_type="{device}")')]
        elif isinstance(above, cst.Annotation) and name == "GradScaler":
            edits = [replace(self.unit, node, spelled)]
        else:
            return None
        made = tuple(edit for edit in edits if edit is not None)
        if len(made) < len(edits):
            return None
        root = dotted(node).partition(".")[0]
        gone = () if self.file.names.aliases.get(root) == {"torch"} else (root,)
        return Fix(f"Use `torch.amp.{name}`", made, "safe", needs, gone)

    def _arguments(self, call: cst.Call, device: str, name: str) -> list[Edit | None]:
        if name.startswith("custom"):
            return [add_argument(self.unit, call, f'device_type="{device}"')]
        if has_unpacking(call):
            return [None]
        if name == "GradScaler":
            return [prepend_argument(self.unit, call, f'"{device}"')]
        positional = [arg for arg in call.args if arg.keyword is None]
        if len(positional) > len(_AUTOCAST_PARAMETERS):
            return [None]
        edits: list[Edit | None] = []
        given = {arg.keyword.value for arg in call.args if arg.keyword} | set(_AUTOCAST_PARAMETERS[: len(positional)])
        prefix = f'"{device}", '
        for parameter, arg in zip(_AUTOCAST_PARAMETERS, positional, strict=False):
            at = self.unit.offsets(arg)[0]
            edits.append(Edit(at, at, f"{prefix}{parameter}="))
            prefix = ""
        if prefix:
            edits.append(prepend_argument(self.unit, call, f'"{device}"'))
        if "dtype" not in given and self._changes_the_default():
            torch = self.file.names.spell(f"torch.{_DEFAULT_DTYPE[device]}")[0]
            edits.append(add_argument(self.unit, call, f"dtype={torch}") if call.args else None)
        return edits

    def _changes_the_default(self) -> bool:
        """Whether the file sets the dtype that `torch.amp.autocast` falls back to; the old name had its own."""
        return not self.file.words.isdisjoint(
            ("set_autocast_dtype", "set_autocast_gpu_dtype", "set_autocast_cpu_dtype")
        )
