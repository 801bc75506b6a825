"""TDL705 cuda-only-device-pick: CUDA or the CPU, whatever else the machine has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from devlint.checks.base import Check, File, Rule
from devlint.edits import argument, replace
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.calls import string_value
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted
from devlint.units import Unit

_ASKS = "torch.cuda.is_available"
_OTHERS = frozenset("mps xpu npu hpu mlu musa xla torch_xla mtia accelerator accelerate Accelerator directml".split())
# What runs on CUDA alone: to pick another device would not make it run there.
_CUDA_ONLY = re.compile(
    r"\.cuda\(\s*\w*\s*\)|nccl|triton|cupy|cuda\.(?!is_available|manual_seed|empty_cache|device_count|get_device_name|is_initialized)[a-zA-Z]"
)
_CUDA_LIBRARIES = frozenset(
    "dgl tinycudann apex flash_attn bitsandbytes spconv MinkowskiEngine pytorch3d tensorrt torch_tensorrt pycuda numba vllm nvdiffrast gsplat "
    "selective_scan_cuda mamba_ssm transformer_engine".split()
)
_CUDA_NAMED = re.compile(r"[\"']cuda")


class CudaOnlyPick(Check):
    rules = (
        Rule(
            "TDL705",
            "cuda-only-device-pick",
            "a choice between CUDA and the CPU that leaves other accelerators idle",
            fix="unsafe",
            default=False,
        ),
    )
    triggers = (("cuda",), ("cpu",))
    patterns = (r"\bif\b|\band\b",)

    @classmethod
    def wants(cls, unit: Unit, names: object) -> bool:
        """Only where the file asks for CUDA, and runs on it otherwise than by its own API."""
        text = unit.source.text
        return (
            "is_available" in text and super().wants(unit, names) and _CUDA_ONLY.search(text) is None  # type: ignore[arg-type]
        )

    def __init__(self, file: File) -> None:
        super().__init__(file)
        roots = {target.partition(".")[0] for targets in file.names.aliases.values() for target in targets}
        self._silent = (
            not file.settings.targets(2, 6) or not file.words.isdisjoint(_OTHERS) or bool(roots & _CUDA_LIBRARIES)
        )

    def visit_IfExp(self, node: cst.IfExp) -> None:
        self._judge(node, node.test, node.body, node.orelse)

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        """`torch.cuda.is_available() and "cuda" or "cpu"`."""
        left = node.left
        if isinstance(node.operator, cst.Or) and isinstance(left, cst.BooleanOperation):
            if isinstance(left.operator, cst.And):
                self._judge(node, left.left, left.right, node.right)

    def visit_If(self, node: cst.If) -> None:
        """`if …: device = "cuda"`, with the other value in `else`, or just before."""
        chosen = _assigned(node.body)
        if chosen is None or isinstance(node.orelse, cst.If) or isinstance(self.parent(node), cst.If):
            return
        other = _assigned(node.orelse.body) if node.orelse is not None else self._before(node)
        if other is not None and chosen[0] == other[0]:
            self._judge(chosen[1], node.test, chosen[1], other[1])

    def _before(self, node: cst.If) -> tuple[str, cst.BaseExpression] | None:
        body = list(getattr(self.parent(node), "body", ()))
        index = body.index(node) if node in body else 0
        return _assignment(body[index - 1]) if index else None

    def _judge(
        self, node: cst.BaseExpression, test: cst.BaseExpression, chosen: cst.BaseExpression, other: cst.BaseExpression
    ) -> None:
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            test, chosen, other = test.expression, other, chosen
        kind, fallback = self._device(chosen), self._device(other)
        if kind is None or kind not in ("cuda", "cuda:0") or fallback != "cpu" or not self._asks_for_cuda(test):
            return
        if self._silent:
            return
        self.report(
            node,
            "TDL705",
            "this takes CUDA or the CPU, and leaves an XPU, MPS or other accelerator idle; ask `torch.accelerator` instead, or use "
            "devlint.runtime.best_device()",
            fix=self._fix(test, chosen),
        )

    def _device(self, node: cst.BaseExpression) -> str | None:
        """The device that a string or `torch.device(…)` names."""
        if isinstance(node, cst.Call) and self.name(node.func) == "torch.device":
            kind, index = argument(node, "type", 0) or argument(node, "device", 0), argument(node, "index", 1)
            text = string_value(kind.value) if kind is not None else None
            return f"{text}:{self.code(index.value)}" if text and index is not None else text
        return string_value(node)

    def _asks_for_cuda(self, test: cst.BaseExpression) -> bool:
        if not dotted(test):
            return any(True for _ in self._questions(test))
        origins = Origins(self.file).of(test, self.unit)
        return bool(origins) and all(
            origin is not None and any(True for _ in self._questions(origin.node, origin.unit)) for origin in origins
        )

    def _questions(self, test: cst.BaseExpression, unit: Unit | None = None) -> Iterator[cst.Call]:
        """The calls of `torch.cuda.is_available` that must be true for `test` to be."""
        pending = [test]
        while pending:
            node = pending.pop()
            if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.And):
                pending += [node.left, node.right]
            elif isinstance(node, cst.Call) and self.file.names.qualified(node.func, unit or self.unit) == _ASKS:
                yield node

    def _fix(self, test: cst.BaseExpression, chosen: cst.BaseExpression) -> Fix | None:
        """Ask `torch.accelerator`, where nothing else in the file names CUDA."""
        questions, text = list(self._questions(test)), self.file.source.text
        if len(questions) != 1 or len(_CUDA_NAMED.findall(text)) != 1 or text.count("is_available") != 1:
            return None
        asked, needs = self.file.names.spell("torch.accelerator.is_available")
        current, _ = self.file.names.spell("torch.accelerator.current_accelerator")
        new = f"{current}()" if isinstance(chosen, cst.Call) else f"{current}().type"
        edits = (replace(self.unit, questions[0], f"{asked}()"), replace(self.unit, chosen, new))
        return Fix("Take the current accelerator", edits, "unsafe", needs)


def _assigned(block: cst.BaseSuite) -> tuple[str, cst.BaseExpression] | None:
    """What a block of one assignment assigns: the name and the value."""
    return _assignment(block.body[0]) if isinstance(block, cst.IndentedBlock) and len(block.body) == 1 else None


def _assignment(line: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or not isinstance(line.body[0], cst.Assign):
        return None
    targets = line.body[0].targets
    name = dotted(targets[0].target) if len(targets) == 1 else ""
    return (name, line.body[0].value) if name else None
