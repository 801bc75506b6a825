"""Statements: one pass over a function in order, with branches joined, loops run twice and early exits dropped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from devlint.lazycst import cst
from devlint.semantics.flow import api
from devlint.semantics.flow.calls import Calls
from devlint.semantics.flow.expressions import constant
from devlint.semantics.flow.meets import Operand
from devlint.semantics.flow.values import CPU, HOST, UNKNOWN, Step, Value, join
from devlint.semantics.tree import dotted
from devlint.units import Unit

if TYPE_CHECKING:
    from devlint.semantics.flow.world import World

_UNROLLED = 8
_FIRST = re.compile(r"first|init|start|\bnot \w+$|is None|== 0|len\(|numel|\bi\b|step", re.I)


class Run(Calls):
    """The interpretation of one function, or of the module level, from one set of arguments."""

    def __init__(
        self,
        world: World,
        unit: Unit,
        *,
        class_node: cst.ClassDef | None = None,
        in_module: bool = False,
        function: cst.FunctionDef | None = None,
        depth: int = 0,
    ) -> None:
        super().__init__()
        self.world = world
        self.unit = unit
        self.class_node = class_node
        self.in_module = in_module
        self.function = function
        self.depth = depth
        self.returned: list[Value] = []

    def block(self, body: Sequence[cst.BaseStatement | cst.BaseSmallStatement]) -> bool:
        """Run statements in order; False where control leaves the block before its end."""
        for statement in body:
            if not self.statement(statement):
                return False
        return True

    def suite(self, suite: cst.BaseSuite) -> bool:
        """Run the body of a compound statement."""
        return self.block(suite.body)

    def statement(self, node: cst.CSTNode) -> bool:
        """Run one statement; False where control does not go on behind it."""
        if isinstance(node, cst.SimpleStatementLine):
            return self.block(node.body)
        method = getattr(self, "_run_" + type(node).__name__, None)
        if method is None:
            return True
        result = method(node)
        return result is not False

    # -- small statements ------------------------------------------------------------------------------------------

    def _run_Expr(self, node: cst.Expr) -> None:
        statements = (
            [element.value for element in node.value.elements] if isinstance(node.value, cst.Tuple) else [node.value]
        )
        for value in statements:
            self.discarded = value if isinstance(value, cst.Call) else None
            self.value(value)
        self.discarded = None

    def _run_Assign(self, node: cst.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target.target, value)

    def _run_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, self.value(node.value))

    def _run_AugAssign(self, node: cst.AugAssign) -> None:
        target, value = self.value(node.target), self.value(node.value)
        result = self._combine("operation", node, Operand(node.target, target), Operand(node.value, value))
        if target.kind == "container":
            self.bind(node.target, Value("container"))
        else:
            self.bind(node.target, target if target.kind == "tensor" else result)

    def _run_Return(self, node: cst.Return) -> bool:
        self.returned.append(self.value(node.value) if node.value is not None else HOST)
        return False

    def _run_Raise(self, node: cst.Raise) -> bool:
        return False

    def _run_Continue(self, node: cst.Continue) -> bool:
        return False

    def _run_Break(self, node: cst.Break) -> bool:
        return False

    def _run_Assert(self, node: cst.Assert) -> None:
        self.value(node.test)

    def _run_Del(self, node: cst.Del) -> None:
        self.env.pop(dotted(node.target), None)

    # -- compound statements ---------------------------------------------------------------------------------------

    def _run_If(self, node: cst.If) -> bool:
        self.value(node.test)
        self._forget_empties(node.test)
        branches: list[tuple[cst.If | None, dict[str, Value]]] = []
        current: cst.If | cst.Else | None = node
        before = dict(self.env)
        goes_on = False
        while isinstance(current, cst.If):
            self.env = dict(before)
            if self.suite(current.body):
                branches.append((current, self.env))
                goes_on = True
            following = current.orelse
            if following is not None:
                self._forget_placeholders(current, before)
            if isinstance(following, cst.If):
                self.env = dict(before)
                self.value(following.test)
            current = following
        self.env = dict(before)
        if current is None or self.suite(current.body):
            branches.append((None, self.env))
            goes_on = True
        if branches:
            self.env = branches[0][1]
            for _, other in branches[1:]:
                self.env = self._join(self.env, other, node.test)
        else:
            self.env = before
        return goes_on

    def _forget_placeholders(self, node: cst.If, before: dict[str, Value]) -> None:
        """`if first: x = …, else: x = cat(x, …)`: what x was before never meets anything."""
        if not _FIRST.search(self.unit_code(node.test)):
            return
        for part in self.unit.below(node.body, cst.AssignTarget):
            for inner in self.unit.below(part, cst.Name):
                before[inner.value] = UNKNOWN

    def _join(
        self, one: dict[str, Value], other: dict[str, Value], test: cst.BaseExpression | None
    ) -> dict[str, Value]:
        joined: dict[str, Value] = {}
        for name in one.keys() & other.keys():
            left, right = one[name], other[name]
            joined[name] = left if left is right else self._choose(left, right, test)
        for name in one.keys() ^ other.keys():
            # Bound on one way only: reading it on the other would be an error of its own.
            joined[name] = one.get(name) or other[name]
        return joined

    def _run_For(self, node: cst.For) -> None:
        outer, self.loop = self.loop, node
        names = self._literal_items(node)
        item = self.iterated(node.iter, node)
        for literal in names or (None, None):
            if literal is not None:
                self.literals[dotted(node.target)] = literal
            before = dict(self.env)
            self.bind(node.target, item)
            self.suite(node.body)
            self.env = self._join(self.env, {**before, **self._loop_names(node)}, None)
        self.loop = outer
        self.literals.pop(dotted(node.target), None)
        if node.orelse is not None:
            self.suite(node.orelse.body)

    def _literal_items(self, node: cst.For) -> list[object]:
        """What a loop over a display of strings or numbers, such as `("ids", "mask")`, gives to its target in turn."""
        if not isinstance(node.iter, (cst.Tuple, cst.List)) or not isinstance(node.target, cst.Name):
            return []
        items = [constant(element.value) for element in node.iter.elements]
        return [item for item in items if item is not None] if None not in items and len(items) <= _UNROLLED else []

    def _loop_names(self, node: cst.For) -> dict[str, Value]:
        """The names that the loop's target binds: behind the loop they are what the last round made of them."""
        names = [part.value for part in self.unit.below(node.target, cst.Name)]
        return {name: self.env[name] for name in names if name in self.env}

    def _run_While(self, node: cst.While) -> None:
        for _ in range(2):
            before = dict(self.env)
            self.value(node.test)
            self.suite(node.body)
            self.env = self._join(self.env, before, None)

    def _run_With(self, node: cst.With) -> bool:
        for item in node.items:
            value = self.value(item.item)
            if item.asname is not None:
                self.bind(item.asname.name, UNKNOWN if value.kind != "device" else value)
        return self.suite(node.body)

    def _run_Try(self, node: cst.Try) -> bool:
        before = dict(self.env)
        goes_on = self.suite(node.body)
        if goes_on and node.orelse is not None:
            goes_on = self.suite(node.orelse.body)
        after = self.env
        for handler in node.handlers:
            self.env = dict(before)
            if self.suite(handler.body):
                after = self._join(after, self.env, None) if goes_on else self.env
                goes_on = True
        self.env = after
        if node.finalbody is not None:
            return self.suite(node.finalbody.body) and goes_on
        return goes_on

    def _run_Match(self, node: cst.Match) -> None:
        self.value(node.subject)
        before = dict(self.env)
        after = before
        for case in node.cases:
            self.env = dict(before)
            self.suite(case.body)
            after = self._join(after, self.env, None)
        self.env = after

    def _run_FunctionDef(self, node: cst.FunctionDef) -> None:
        if self.depth < 3:
            inner = Run(
                self.world,
                self.unit,
                class_node=self.class_node,
                in_module=self.in_module,
                function=node,
                depth=self.depth + 1,
            )
            inner.env = dict(self.env)
            inner.parameters(node, {})
            inner.suite(node.body)
        self.env[node.name.value] = Value("function", creator=Step(node, self.unit, ""))

    # -- binding ---------------------------------------------------------------------------------------------------

    def parameters(self, function: cst.FunctionDef, given: dict[str, Value], *, called: bool = False) -> None:
        """Bind a function's parameters: to the arguments that are known, else to what their use proves.

        `called` tells that the arguments are those of a call, so that a parameter without one has its default.
        """
        params = function.params
        facts = self.world.parameter_facts(self.unit, function, self.in_module)
        rest = [star for star in (params.star_arg, params.star_kwarg) if isinstance(star, cst.Param)]
        for param in (*params.posonly_params, *params.params, *params.kwonly_params, *rest):
            name = param.name.value
            for key in [key for key in self.env if key == name or key.startswith((name + ".", name + "["))]:
                del self.env[key]
            known = given.get(name)
            if called and name not in given and isinstance(param.default, cst.SimpleString):
                known = self.value(param.default)
            self.env[name] = known if known is not None and known.kind != "unknown" else facts.get(name, UNKNOWN)

    def bind(self, target: cst.CSTNode, value: Value) -> None:
        """Give `value` to an assignment target, by position where both have several parts."""
        if isinstance(target, (cst.Tuple, cst.List)):
            for index, element in enumerate(target.elements):
                self.bind(element.value, self._part(value, index, element))
            return
        if isinstance(target, cst.Subscript):
            self._put(target, value)
            return
        name = dotted(target)
        if not name:
            return
        for key in [key for key in self.env if key.startswith((name + ".", name + "["))]:
            del self.env[key]
        if value.kind == "device" and value.place is not None and not value.place.symbol:
            value = replace(value, place=replace(value.place, symbol=name))
        if value.kind in ("tensor", "module", "loss", "batch", "loader"):
            value = replace(value, name=name)
        self.env[name] = value
        self._part_replaced(name, value)
        if name.startswith("self.") and name.count(".") == 1 and self.class_node is not None:
            self.world.note_attribute(self, target, name[5:], value)

    def _part_replaced(self, name: str, value: Value) -> None:
        """`net.fc = …`: a module that was moved is not where it was, with a new part; and may be elsewhere, with another."""
        root = name.rpartition(".")[0]
        while root and root != "self":
            owner = self.env.get(root)
            if owner is not None and owner.kind == "module" and owner.place is not None:
                if value.kind == "module" and value.place == CPU:
                    if owner.place.kind == "accelerator":
                        self.env[root] = replace(value, name=root, ident=object())
                elif owner.place == CPU:
                    self.env[root] = replace(owner, place=None)
            root = root.rpartition(".")[0]

    def _put(self, target: cst.Subscript, value: Value) -> None:
        """`held[key] = value`: what a container or a batch holds there from now on."""
        self.value(target)
        name = dotted(target.value)
        held = self.env.get(name)
        if held is None or held.kind not in ("batch", "container"):
            return
        key = self.key(target)
        if key is not None:
            self.env[f"{name}[{key!r}]"] = value
            return
        for entry in [entry for entry in self.env if entry.startswith(name + "[")]:
            del self.env[entry]
        self.env[name] = UNKNOWN if held.kind == "batch" else Value("container")

    def _part(self, value: Value, index: int, element: cst.BaseElement) -> Value:
        if isinstance(element, cst.StarredElement):
            return UNKNOWN
        if value.kind == "batch":
            return self._element(value, index, element.value)
        if value.kind == "container" and value.items:
            return value.items.get(index, value.items.get("*", UNKNOWN))
        if value.kind == "tensor":
            return self._derived(value, element)
        return HOST if value.kind == "host" and value.inputs else UNKNOWN

    # -- loops over loaders ----------------------------------------------------------------------------------------

    def iterated(self, node: cst.BaseExpression, loop: cst.For | None = None, *, part: bool = False) -> Value:
        """What one round of a loop over `node` yields; `part` tells that it is a part of what the loop's target takes."""
        if isinstance(node, cst.Call):
            name = dotted(node.func).rpartition(".")[2]
            if name == "enumerate" and node.args:
                return Value("container", items={0: HOST, 1: self.iterated(node.args[0].value, loop, part=True)})
            if name == "zip":
                parts = [self.iterated(arg.value, loop, part=True) for arg in node.args]
                return Value("container", items=dict(enumerate(parts)))
            if name in api.WRAPPERS and node.args:
                return self.iterated(node.args[0].value, loop, part=part)
            if name == "range":
                for arg in node.args:
                    self.value(arg.value)
                return HOST
        value = self.value(node)
        if value.kind == "loader":
            return Value("batch", CPU, "element", value.steps) if not self.world.framework else UNKNOWN
        if value.kind == "container" and value.items:
            items = list(value.items.values())
            inner = items[0].items if len(items) == 1 else None
            if inner and loop is not None:
                # `bar = tqdm(enumerate(loader))` hides the loader from the loop: its part is the unknown one.
                pair = dict(inner)
                if pair.get(1) is UNKNOWN and self.world.loads_batches(self.unit, loop):
                    return Value("container", items={**pair, 1: Value("batch", CPU, "element")})
            return items[0] if len({(item.kind, item.place) for item in items}) == 1 else UNKNOWN
        if value.kind == "tensor":
            return self._derived(value, node)
        if value.kind == "module":
            return Value("module", value.place, value.source, value.steps)
        if value.kind in ("unknown", "container") and loop is not None and self.world.loads_batches(self.unit, loop):
            batch = Value("batch", CPU, "element")
            return Value("container", items={0: HOST, 1: batch}) if not part and _counts(loop.target) else batch
        return UNKNOWN


def _counts(target: cst.BaseExpression) -> bool:
    """Whether a loop's target is a counter and a batch, so that something like `enumerate` stands behind the loop."""
    if not isinstance(target, cst.Tuple) or len(target.elements) != 2:
        return False
    first, second = (element.value for element in target.elements)
    return isinstance(second, (cst.Tuple, cst.List)) or api.COUNTER.fullmatch(dotted(first)) is not None


def result_of(returned: list[Value]) -> Value:
    """What a function returns on all its ways."""
    if not returned:
        return HOST
    result = returned[0]
    for other in returned[1:]:
        result = join(result, other)
    return result
