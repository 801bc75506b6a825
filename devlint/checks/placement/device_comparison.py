"""TDL120, TDL121, TDL122, TDL123, TDL125: a `torch.device` taken for a string, a number, or another device."""

from __future__ import annotations

from devlint.checks.base import Check, File, Rule
from devlint.edits import replace
from devlint.findings import Edit, Fix
from devlint.lazycst import cst
from devlint.semantics.calls import ACCELERATORS, string_value
from devlint.semantics.device_proof import DeviceProof
from devlint.semantics.origins import Origins
from devlint.semantics.tree import dotted

_EQUALITY = (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot)
_STRING_METHODS = frozenset("startswith endswith split lower upper strip replace find partition index format".split())
_INDEX_CALLS = frozenset(
    ("torch.cuda.current_device", "torch.xpu.current_device", "torch.accelerator.current_device_index")
)

_KIND = r"[\"'](?:cuda|cpu|mps|xpu|meta)"
_COMPARED = (
    rf"[=!]=\s*(?:{_KIND}|[\w.]*device\(|[\w.]*current_device)|{_KIND}[^\"'\n]*[\"']\s*(?:[=!]=|(?:not\s+)?in\b)|\bin\s*[(\[{{]\s*{_KIND}"
    rf"|\bis\s+(?:not\s+)?{_KIND}|dev\w*\s*\.(?:startswith|endswith|split|lower|upper|strip|replace|find|partition|index|format)\("
    r"|dev\w*\s*\+\s*[\"']|[\"']\s*\+\s*[\w.]*dev|dev\w*\s*\["
    r"|current_device\w*\(\)\s*[=!]=|device\([^()\n]*\)\s*[=!]=|\.device\s*[=!]=|[=!]=\s*[\w.]+\.device\b"
)


class DeviceComparison(Check):
    rules = (
        Rule("TDL120", "device-string-comparison", "a `torch.device` compared with a string", fix="unsafe"),
        Rule("TDL121", "device-used-as-string", "a string operation on a `torch.device`", fix="safe"),
        Rule(
            "TDL122",
            "device-index-comparison",
            'a tensor\'s device compared with `torch.device("cuda")`, which has no index',
            fix="unsafe",
        ),
        Rule(
            "TDL123", "device-type-with-index", "`device.type` compared with a string that has an index", fix="unsafe"
        ),
        Rule("TDL125", "current-device-vs-device", "a device index compared with a `torch.device`", fix="unsafe"),
    )
    triggers = (("device",),)
    patterns = (_COMPARED,)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._proof = DeviceProof(file)
        self._origins = Origins(file)

    def visit_Comparison(self, node: cst.Comparison) -> None:
        if len(node.comparisons) != 1:
            return
        target = node.comparisons[0]
        left, right, operator = node.left, target.comparator, target.operator
        if isinstance(operator, _EQUALITY):
            for one, other in ((left, right), (right, left)):
                if self._equality(node, one, other, operator):
                    return
        elif isinstance(operator, (cst.In, cst.NotIn)):
            self._membership(node, left, right, operator)

    # -- == and != -------------------------------------------------------------------------------------------------

    def _equality(
        self, node: cst.Comparison, one: cst.BaseExpression, other: cst.BaseExpression, operator: cst.BaseCompOp
    ) -> bool:
        text = string_value(other)
        if text is not None:
            if isinstance(one, cst.Attribute) and one.attr.value == "type":
                return ":" in text and self._device(one.value) and self._type_with_index(node, one, other, text)
            known = text.partition(":")[0] in ACCELERATORS | {"cpu", "meta"}
            return known and self._device(one) and self._string(node, one, other, text, operator)
        made = self._made_once(other) if isinstance(other, cst.Name) else other
        if isinstance(made, cst.Call):
            name = self.name(made.func)
            if name == "torch.device" and isinstance(one, cst.Attribute) and one.attr.value == "device":
                return self._index(node, one, other, made, operator)
            if name in _INDEX_CALLS and self._device(one):
                return self._current(node, one)
        return False

    def _made_once(self, node: cst.Name) -> cst.Call | None:
        """The `torch.device("cuda")` that a name of this function surely stands for."""
        function = self.enclosing(node, cst.FunctionDef)
        made = self._origins.of(node, self.unit)
        if function is None or len(made) != 1 or made[0] is None or made[0].unit is not self.unit:
            return None
        call = made[0].node
        inside = isinstance(call, cst.Call) and self.enclosing(call, cst.FunctionDef) is function
        return call if inside and isinstance(call, cst.Call) and self.name(call.func) == "torch.device" else None

    def _device(self, node: cst.BaseExpression) -> bool:
        return self._proof.is_device(node, self.unit)

    def _string(
        self,
        node: cst.Comparison,
        one: cst.BaseExpression,
        other: cst.BaseExpression,
        text: str,
        operator: cst.BaseCompOp,
    ) -> bool:
        code, literal = self.code(one), self.code(other)
        always = "False" if isinstance(operator, (cst.Equal, cst.Is)) else "True"
        if ":" in text:
            spelled, needs = self.file.names.spell("torch.device")
            edits: tuple[Edit, ...] = (replace(self.unit, other, f"{spelled}({literal})"),)
            advice = f"`{spelled}({literal})`"
        else:
            end = self.unit.offsets(one)[1]
            edits, needs, advice = (Edit(end, end, ".type"),), (), f"`{code}.type`"
        fixable = isinstance(operator, (cst.Equal, cst.NotEqual)) and not getattr(one, "lpar", None)
        self.report(
            node,
            "TDL120",
            f"`{code}` is a `torch.device`, which never equals a string: this is always {always}; compare {advice}",
            fix=Fix(f"Compare {advice}", edits, "unsafe", needs) if fixable else None,
        )
        return True

    def _type_with_index(self, node: cst.Comparison, one: cst.Attribute, other: cst.BaseExpression, text: str) -> bool:
        code, literal = self.code(one.value), self.code(other)
        spelled, needs = self.file.names.spell("torch.device")
        edits = (replace(self.unit, one, code), replace(self.unit, other, f"{spelled}({literal})"))
        self.report(
            node,
            "TDL123",
            f"`{code}.type` has no index, so it never equals {literal}; compare the device: `{code} == "
            f"{spelled}({literal})`",
            fix=Fix("Compare the device", edits, "unsafe", needs),
        )
        return True

    def _index(
        self,
        node: cst.Comparison,
        one: cst.Attribute,
        other: cst.BaseExpression,
        made: cst.Call,
        operator: cst.BaseCompOp,
    ) -> bool:
        """`x.device == other`, the latter being, or standing for, what the call `made`."""
        text = string_value(made.args[0].value) if len(made.args) == 1 else None
        if text not in ACCELERATORS or text == "mps":
            return False
        # Not a device that was stored: it may well have been made by the same `torch.device("cuda")`.
        if not self._proof.is_tensor_device(one, self.unit):
            return False
        code = self.code(one)
        always = "False" if isinstance(operator, (cst.Equal, cst.Is)) else "True"
        end, behind = self.unit.offsets(one)[1], self.unit.offsets(other)[1]
        literal = replace(self.unit, other, self.code(made.args[0].value))
        edits = (Edit(end, end, ".type"), literal if other is made else Edit(behind, behind, ".type"))
        self.report(
            node,
            "TDL122",
            f"a tensor's device has an index, `{self.code(other)}` has none, so they differ even on the same GPU: this is "
            f"always {always}; compare `{code}.type`",
            fix=Fix(f"Compare `{code}.type`", edits, "unsafe"),
        )
        return True

    def _current(self, node: cst.Comparison, one: cst.BaseExpression) -> bool:
        code = self.code(one)
        end = self.unit.offsets(one)[1]
        self.report(
            node,
            "TDL125",
            f"an index (an int) never equals `{code}`, a `torch.device`; compare `{code}.index`",
            fix=Fix(f"Compare `{code}.index`", (Edit(end, end, ".index"),), "unsafe"),
        )
        return True

    # -- in, and string operations ---------------------------------------------------------------------------------

    def _membership(
        self, node: cst.Comparison, left: cst.BaseExpression, right: cst.BaseExpression, operator: cst.BaseCompOp
    ) -> None:
        text = string_value(left)
        if text is not None and self._device(right):
            code = self.code(right)
            negated = isinstance(operator, cst.NotIn)
            new = f"{code}.type {'!=' if negated else '=='} {self.code(left)}"
            fix = (
                Fix(f"Compare `{code}.type`", (replace(self.unit, node, new),), "safe")
                if text in ACCELERATORS | {"cpu"}
                else None
            )
            self.report(node, "TDL121", self._not_a_string(code), fix=fix)
        elif isinstance(right, (cst.Tuple, cst.List, cst.Set)) and self._device(left):
            texts = [string_value(element.value) for element in right.elements]
            if not texts or not all(texts):
                return
            code = self.code(left)
            end = self.unit.offsets(left)[1]
            plain = all(text is not None and ":" not in text for text in texts)
            fix = Fix(f"Look for `{code}.type`", (Edit(end, end, ".type"),), "unsafe") if plain else None
            self.report(
                node,
                "TDL120",
                f"`{code}` is a `torch.device`, which equals none of these strings; look for `{code}.type`",
                fix=fix,
            )

    def visit_Call(self, node: cst.Call) -> None:
        func = node.func
        if isinstance(func, cst.Attribute) and func.attr.value in _STRING_METHODS and self._device(func.value):
            code = self.code(func.value)
            text = string_value(node.args[0].value) if len(node.args) == 1 else None
            fix = None
            if func.attr.value == "startswith" and text in ACCELERATORS | {"cpu"}:
                new = f"{code}.type == {self.code(node.args[0].value)}"
                above = self.parent(node)
                if isinstance(above, cst.UnaryOperation) and isinstance(above.operator, cst.Not):
                    new = f"({new})"
                fix = Fix(f"Compare `{code}.type`", (replace(self.unit, node, new),), "safe")
            self.report(node, "TDL121", self._not_a_string(code), fix=fix)

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
        if not isinstance(node.operator, cst.Add):
            return
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if string_value(other) is not None and self._device(one):
                self.report(node, "TDL121", self._not_a_string(self.code(one)))

    def visit_Subscript(self, node: cst.Subscript) -> None:
        if "device" in dotted(node.value).rpartition(".")[2]:
            if self._device(node.value):
                self.report(node, "TDL121", self._not_a_string(self.code(node.value)))

    def _not_a_string(self, code: str) -> str:
        return f"`{code}` is a `torch.device`, not a string: this raises an error; use `{code}.type`, or `str({code})`"
