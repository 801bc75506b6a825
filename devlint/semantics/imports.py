"""One resolver for names: what a name at a place refers to, and how to spell a qualified name there.

The table is read from the `ast` that the gate made anyway; nothing is imported or executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator

from devlint.lazycst import cst
from devlint.semantics.tree import dotted
from devlint.units import Unit

# Where torch defines a symbol, and the public name that everybody knows it by.
_CANONICAL_PREFIXES = {
    "torch.cuda.amp.autocast_mode.": "torch.cuda.amp.",
    "torch.cuda.amp.grad_scaler.": "torch.cuda.amp.",
    "torch.cpu.amp.autocast_mode.": "torch.cpu.amp.",
    "torch.cpu.amp.grad_scaler.": "torch.cpu.amp.",
    "torch.amp.autocast_mode.": "torch.amp.",
    "torch.amp.grad_scaler.": "torch.amp.",
    "torch.autograd.variable.": "torch.autograd.",
    "torch.autograd.grad_mode.": "torch.",
    "torch.utils.data.dataloader.": "torch.utils.data.",
    "torch.utils.data.dataset.": "torch.utils.data.",
    "torch.utils.data.distributed.": "torch.utils.data.distributed.",
    "torch.utils.data.sampler.": "torch.utils.data.",
    "torch.nn.parallel.distributed.": "torch.nn.parallel.",
    "torch.nn.parallel.data_parallel.": "torch.nn.parallel.",
    "torch.nn.parameter.": "torch.nn.",
    "torch.nn.utils.clip_grad.": "torch.nn.utils.",
    "torch._tensor.": "torch.",
}
_CANONICAL = {
    "torch.autocast": "torch.amp.autocast",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
}


def canonical(name: str) -> str:
    """The public spelling of a qualified torch name: `torch.nn.modules.linear.Linear` is `torch.nn.Linear`."""
    if not name.startswith("torch."):
        return name
    for prefix, public in _CANONICAL_PREFIXES.items():
        if name.startswith(prefix):
            name = public + name[len(prefix) :]
            break
    else:
        if name.startswith("torch.nn.modules.") and name.count(".") >= 4:
            name = "torch.nn." + name.rsplit(".", 1)[1]
        elif name.startswith("torch.optim.") and name.count(".") == 3 and not name.startswith(_OPTIM_MODULES):
            name = "torch.optim." + name.rsplit(".", 1)[1]
    return _CANONICAL.get(name, name)


_OPTIM_MODULES = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")


_ROOT = re.compile(r"(?:torch|functorch)(?:\.|$)")


class Names:
    """The import aliases of one file and the questions that rules ask of them."""

    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, set[str]] = {}
        """Local name to the qualified names that imports give it; more than one where `try` or `if` chooses."""
        self.stars: list[str] = []
        """Modules that are star-imported."""
        self.bound: set[str] = set()
        """Names that the module level binds otherwise than by an import."""
        self.imports: list[ast.Import | ast.ImportFrom] = []
        for node in _import_like(tree.body):
            self._add(node)
        self._known: dict[cst.CSTNode, str] = {}
        self._scopes: dict[Unit, dict[cst.CSTNode, frozenset[str]]] = {}

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            self.imports.append(node)
            for alias in node.names:
                if alias.asname:
                    self.aliases.setdefault(alias.asname, set()).add(alias.name)
                else:
                    root = alias.name.partition(".")[0]
                    self.aliases.setdefault(root, set()).add(root)
        elif isinstance(node, ast.ImportFrom):
            self.imports.append(node)
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                if alias.name == "*":
                    self.stars.append(module)
                else:
                    separator = "" if module.endswith(".") else "."
                    self.aliases.setdefault(alias.asname or alias.name, set()).add(module + separator + alias.name)
        else:
            self.bound.update(_bound_by(node))

    def qualified(self, node: cst.CSTNode, unit: Unit | None = None) -> str:
        """The canonical qualified name that `node` (a name or an attribute chain) refers to.

        An empty string where the name is not imported, is bound otherwise, or may mean several things. With `unit`,
        names that a function around `node` binds hide the import.
        """
        known = self._known.get(node)
        if known is None:
            text = dotted(node)
            known = self.qualified_text(text) if text else ""
            if known and self._hidden(node, text, unit):
                known = ""
            if unit is not None:
                self._known[node] = known
        return known

    def qualified_text(self, text: str) -> str:
        """As `qualified`, for a dotted name given as text and read at module level."""
        root = text.partition(".")[0]
        if root not in self.aliases and (not self.stars or root in self.bound):
            return ""
        candidates = {canonical(name) for name in self.candidates(text)}
        return candidates.pop() if len(candidates) == 1 else ""

    def candidates(self, text: str) -> Iterator[str]:
        """Every qualified name that the dotted name `text` may stand for."""
        root, dot, rest = text.partition(".")
        targets = self.aliases.get(root)
        if targets:
            yield from (target + dot + rest for target in targets)
            if root in self.bound:
                yield ""
        elif root not in self.bound:
            yield from (f"{module}.{text}" for module in self.stars if _ROOT.match(module))

    def _hidden(self, node: cst.CSTNode, text: str, unit: Unit | None) -> bool:
        if unit is None:
            return False
        root = text.partition(".")[0]
        scope = unit.enclosing(node, cst.FunctionDef, cst.Lambda)
        while scope is not None:
            if root in self._bound_in(scope, unit):
                return True
            scope = unit.enclosing(scope, cst.FunctionDef, cst.Lambda)
        return False

    def _bound_in(self, scope: cst.CSTNode, unit: Unit) -> frozenset[str]:
        """The names that a function, or one inside it, binds by its parameters and assignments, imports apart."""
        if unit not in self._scopes:
            self._scopes[unit] = _bound_names(unit)
        return self._scopes[unit].get(scope, frozenset())

    def words_for(self, qualified: Collection[str]) -> frozenset[str]:
        """The words of which one stands wherever this file refers to one of these qualified names."""
        return self.aliases_of(qualified) | {name.rpartition(".")[2] for name in qualified}

    def aliases_of(self, qualified: Collection[str]) -> frozenset[str]:
        """The local names that the imports give to one of these qualified names."""
        wanted = set(qualified)
        return frozenset(
            local for local, targets in self.aliases.items() if not wanted.isdisjoint(map(canonical, targets))
        )

    def spell(self, qualified: str) -> tuple[str, tuple[str, ...]]:
        """How to write `qualified` in this file, and the modules that must be imported for it.

        Prefers what the file already imports: `from torch.amp import autocast` gives `autocast`, `import torch as t`
        gives `t.amp.autocast`; else `torch.amp.autocast` and a need for `torch`.
        """
        best: str | None = None
        for local, targets in self.aliases.items():
            if len(targets) != 1 or local in self.bound:
                continue
            target = next(iter(targets))
            if qualified == target or qualified.startswith(target + "."):
                spelled = local + qualified[len(target) :]
                if best is None or len(spelled) < len(best):
                    best = spelled
        return (best, ()) if best is not None else (qualified, (qualified.partition(".")[0],))


def _import_like(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Module-level statements, blocks opened, and the imports inside functions and classes."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if not inner:
                continue
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _nested_imports(inner)
            else:
                yield from _import_like(inner)
        for handler in getattr(statement, "handlers", ()):
            yield from _import_like(handler.body)
        for case in getattr(statement, "cases", ()):
            yield from _import_like(case.body)


def _nested_imports(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The import statements at any depth of statements below `body`."""
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(statement, name, None)
            if inner:
                pending += inner


def _bound_by(statement: ast.stmt) -> Iterator[str]:
    """The names that one module-level statement binds, its blocks apart."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        targets = [statement.target]
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in statement.items if item.optional_vars]
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Name):
            yield target.id
        elif isinstance(target, (ast.Tuple, ast.List)):
            targets += target.elts
        elif isinstance(target, ast.Starred):
            targets.append(target.value)


def _bound_names(unit: Unit) -> dict[cst.CSTNode, frozenset[str]]:
    """The names bound in or below each function of a unit."""
    found: dict[cst.CSTNode, set[str]] = {}
    freed: dict[cst.CSTNode, set[str]] = {}
    around: list[tuple[int, cst.CSTNode]] = []
    for node in unit.below(unit.module, *_binders()):
        index = unit.index_of(node)
        while around and around[-1][0] <= index:
            around.pop()
        kind = type(node)
        if kind is cst.FunctionDef or kind is cst.Lambda:
            if around and isinstance(node, cst.FunctionDef):
                for _, scope in around:
                    found[scope].add(node.name.value)
            around.append((unit.end_of(node), node))
            found[node], freed[node] = set(), set()
        elif around:
            names = list(bound_at(node))
            if names:
                for _, scope in around:
                    found[scope].update(names)
            elif isinstance(node, cst.Global):
                freed[around[-1][1]].update(item.name.value for item in node.names)
    return {scope: frozenset(names - freed[scope]) for scope, names in found.items()}


def _binders() -> tuple[type[cst.CSTNode], ...]:
    """The classes of nodes that begin a scope, or bind a name."""
    return (
        *(cst.FunctionDef, cst.Lambda, cst.ClassDef, cst.Param, cst.Global, cst.WithItem, cst.ExceptHandler),
        *(cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr),
    )


def bound_at(node: cst.CSTNode) -> Iterator[str]:
    """The names that one node binds."""
    kind = type(node)
    targets: list[cst.CSTNode] = []
    if kind is cst.Param:
        targets = [node.name]  # type: ignore[attr-defined]
    elif kind in (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr):
        targets = [node.target]  # type: ignore[attr-defined]
    elif isinstance(node, (cst.WithItem, cst.ExceptHandler)):
        alias = node.asname if isinstance(node, cst.WithItem) else node.name
        targets = [alias.name] if alias is not None else []
    elif isinstance(node, cst.ClassDef):
        targets = [node.name]
    while targets:
        target = targets.pop()
        if isinstance(target, cst.Name):
            yield target.value
        elif isinstance(target, (cst.Tuple, cst.List)):
            targets += [element.value for element in target.elements]
