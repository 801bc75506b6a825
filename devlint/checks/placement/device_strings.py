"""TDL126 invalid-device-string: a device that torch does not know."""

from __future__ import annotations

import re

from devlint.checks.base import Check, Rule
from devlint.edits import argument, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import FACTORIES, string_value

# Only what is surely a slip: backends of third parties bring names of their own.
_SLIPS = {"gpu": "cuda", "gpus": "cuda", "nvidia": "cuda", "cude": "cuda", "cudda": "cuda", "coda": "cuda"}
_CASE = re.compile(r"(?:CUDA|Cuda|CPU|Cpu|MPS|Mps|XPU|Xpu)(?::\d+)?")
_FORM = re.compile(r"(cuda|cpu|mps|xpu)(?:(\d+)|:\s+(\d+)|\s+:?(\d+)|:|\s+)")


class DeviceStrings(Check):
    rules = (Rule("TDL126", "invalid-device-string", "a device string that torch does not accept", fix="unsafe"),)
    patterns = (
        r"""["'](?:[Gg][Pp][Uu]s?|nvidia|cude|cudda|coda|CUDA|Cuda|CPU|Cpu|MPS|Mps|XPU|Xpu|(?:cuda|cpu|mps|xpu)[\d: ])""",
    )

    def visit_Call(self, node: cst.Call) -> None:
        name = self.name(node.func)
        candidates = []
        if name == "torch.device":
            candidates = [argument(node, "type", 0), argument(node, "device", 0)]
        elif name in FACTORIES or name.startswith("torch.nn.") or name.startswith("torch.utils.data."):
            candidates = [argument(node, "device")]
        elif name == "torch.load":
            candidates = [argument(node, "map_location", 1)]
        elif isinstance(node.func, cst.Attribute) and node.func.attr.value == "to":
            candidates = [argument(node, "device", 0)]
        for arg in candidates:
            text = string_value(arg.value) if arg is not None else None
            right = self._mended(text) if text is not None else None
            if arg is not None and right is not None:
                new = f'"{right}"'
                self.report(
                    arg.value,
                    "TDL126",
                    f"torch knows no device {self.code(arg.value)}: this raises; write {new}",
                    fix=Fix(f"Write {new}", (replace(self.unit, arg.value, new),), "unsafe"),
                )
                return

    def _mended(self, text: str) -> str | None:
        kind, _, index = text.partition(":")
        if kind.lower() in _SLIPS:
            return _SLIPS[kind.lower()] + (f":{index}" if index.isdigit() else "")
        if _CASE.fullmatch(text):
            return text.lower()
        match = _FORM.fullmatch(text)
        if match:
            number = match[2] or match[3] or match[4]
            return match[1] + (f":{number}" if number else "")
        return None
