"""Displays and comprehensions: what holds other values."""

from __future__ import annotations

from dataclasses import replace

from devlint.lazycst import cst
from devlint.semantics.flow.expressions import Expressions, common, constant
from devlint.semantics.flow.values import UNKNOWN, Value


class Displays(Expressions):
    """Evaluates tuples, lists, sets, dictionaries and comprehensions."""

    def _Tuple(self, node: cst.Tuple) -> Value:
        items: dict[object, Value] = {}
        for index, element in enumerate(node.elements):
            value = self.value(element.value)
            if isinstance(element, cst.StarredElement):
                items[index] = common(value) if value.kind == "container" else UNKNOWN
            else:
                items[index] = value
        return Value("container", items=items)

    _List = _Set = _Tuple

    def _StarredElement(self, node: cst.StarredElement) -> Value:
        return self.value(node.value)

    def _Dict(self, node: cst.Dict) -> Value:
        items: dict[object, Value] = {}
        for element in node.elements:
            value = self.value(element.value)
            if isinstance(element, cst.DictElement):
                key = constant(element.key)
                items[key if key is not None else element] = value
        return Value("container", items=items)

    def _ListComp(self, node: cst.ListComp) -> Value:
        return self._comprehension(node.for_in, node.elt)

    _GeneratorExp = _SetComp = _ListComp

    def _DictComp(self, node: cst.DictComp) -> Value:
        return self._comprehension(node.for_in, node.value)

    def _comprehension(self, loop: cst.CompFor, element: cst.BaseExpression) -> Value:
        saved = dict(self.env)
        self._bind_loop(loop)
        value = self.value(element)
        self.env = saved
        if value.kind in ("tensor", "module", "container"):
            # The elements share what is known of one; keys are not.
            return Value("container", items={"*": replace(value, ident=object())})
        return UNKNOWN

    def _bind_loop(self, loop: cst.CompFor) -> None:
        current: cst.CompFor | None = loop
        while current is not None:
            self.bind(current.target, self.iterated(current.iter))
            for condition in current.ifs:
                self.value(condition.test)
            current = current.inner_for_in
