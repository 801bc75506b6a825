"""TDL403 to TDL407: scale, backward, unscale once, clip, step, update, on every path."""

from __future__ import annotations

from itertools import product

from devlint.checks.base import Check, File, Rule
from devlint.edits import insert_after, insert_before, replace, statement_of
from devlint.findings import Fix
from devlint.lazycst import cst
from devlint.semantics.guards import on_other_branch
from devlint.semantics.paths import Paths
from devlint.semantics.scaler import ScalerEvent, ScalerEvents
from devlint.semantics.training import code_below

# Libraries whose optimizers unscale by themselves.
_WRAPPERS = frozenset(("msamp", "apex", "deepspeed", "accelerate", "colossalai"))


class GradScalerProtocol(Check):
    rules = (
        Rule(
            "TDL403",
            "optimizer-step-bypasses-scaler",
            "scaled gradients are applied by `optimizer.step()`",
            fix="unsafe",
        ),
        Rule(
            "TDL404", "backward-without-scale", "`scaler.step` after a backward pass of an unscaled loss", fix="unsafe"
        ),
        Rule("TDL405", "missing-scaler-update", "`scaler.step` without `scaler.update`", fix="safe"),
        Rule("TDL406", "clip-before-unscale", "gradients are clipped while they are still scaled", fix="unsafe"),
        Rule("TDL407", "double-unscale", "`scaler.unscale_` twice between two updates", fix="none"),
    )
    triggers = (("scale", "step", "unscale_"), ("backward", "step"))
    patterns = (r"\bscaler|_scaler|Scaler|\.unscale_\(",)

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._events = ScalerEvents(file)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._scope(node.body, node)

    def visit_Module(self, node: cst.Module) -> None:
        if not self.unit.name:
            self._scope(node, node)

    def _scope(self, body: cst.BaseSuite | cst.Module, scope: cst.CSTNode) -> None:
        scaled = self._events.scaled_names(self.unit, scope)
        nodes = list(code_below(self.unit, scope))
        everything = self._events.below(self.unit, scope, scaled)
        if not any(event.scaler for event in everything):
            return
        loops = [node for node in nodes if isinstance(node, (cst.For, cst.While))]
        inner = [loop for loop in loops if self._holds(loop, scaled)]
        if inner:
            for loop in inner:
                if not any(other is not loop and other in self.unit.below(loop) for other in inner):
                    drawn = self._drawn(loop)
                    self._check(loop.body, scaled, everything, repeats=True, drawn=drawn)
        else:
            self._check(body, scaled, everything, repeats=False)

    def _drawn(self, loop: cst.For | cst.While) -> frozenset[str]:
        """The names that the loop gives another value each round."""
        target = self.unit.below(loop.target) if isinstance(loop, cst.For) else []
        return frozenset(node.value for node in target if isinstance(node, cst.Name))

    def _holds(self, loop: cst.For | cst.While, scaled: frozenset[str]) -> bool:
        kinds = {event.kind for event in self._events.below(self.unit, loop, scaled)}
        return bool(kinds & {"scale", "backward"}) and bool(kinds & {"step", "bypass", "update"})

    def _check(
        self,
        body: cst.BaseSuite | cst.Module,
        scaled: frozenset[str],
        everything: list[ScalerEvent],
        *,
        repeats: bool,
        drawn: frozenset[str] = frozenset(),
    ) -> None:
        paths = [
            path
            for path in Paths(self.unit, lambda node: self._events.at(self.unit, node, scaled)).through(body)
            if path.events
        ]
        kinds = {event.kind for event in everything}
        for path in paths:
            self._clipped(path.events)
            if "step" not in kinds and "unscale" not in kinds:
                self._bypassed(path.events, mendable="backward" not in kinds)
            if "scale" not in kinds:
                self._unscaled_loss(path.events)
            if repeats and "update" not in kinds and "update" not in self.unit.words:
                self._not_updated(path.events)
        pairs = list(product(paths, repeat=2)) if repeats else [(path, None) for path in paths]
        for first, second in pairs[:600]:
            self._unscaled_twice((*first.events, *(second.events if second is not None else ())), drawn)

    def _clipped(self, events: tuple[ScalerEvent, ...]) -> None:
        scaler = ""
        for index, event in enumerate(events):
            if event.kind == "scale":
                scaler = event.scaler
            elif event.kind in ("unscale", "update", "step"):
                scaler = ""
            elif event.kind == "clip" and scaler:
                step = next((e for e in events[index:] if e.kind == "step" and e.scaler == scaler), None)
                if step is not None:
                    self._report_clip(event, step)

    def _report_clip(self, event: ScalerEvent, step: ScalerEvent) -> None:
        text = f"{step.scaler}.unscale_({step.optimizer})"
        statement = statement_of(self.unit, event.node)
        edit = insert_before(self.unit, statement, text) if statement is not None else None
        self.report(
            event.node,
            "TDL406",
            f"the gradients are still multiplied by the loss scale here, so that clipping shrinks them to nothing; call `{text}` "
            "first, or let devlint.runtime.TrainStep keep the order",
            fix=Fix(f"Call `{text}` first", (edit,), "unsafe") if edit else None,
            evidence=[(step.node, "the scaler would have unscaled them only here")],
        )

    def _bypassed(self, events: tuple[ScalerEvent, ...], *, mendable: bool) -> None:
        scale = next((event for event in events if event.kind == "scale"), None)
        roots = {target.partition(".")[0] for targets in self.file.names.aliases.values() for target in targets}
        if scale is None or not roots.isdisjoint(_WRAPPERS):
            return
        for event in events[events.index(scale) :]:
            if event.kind == "backward":
                # What steps now may hold the gradients of another loss.
                return
            if event.kind == "bypass":
                new = f"{scale.scaler}.step({event.optimizer})"
                self.report(
                    event.node,
                    "TDL403",
                    f"`{event.optimizer}.step()` applies gradients that are multiplied by the loss scale; step by `{new}`, then "
                    f"`{scale.scaler}.update()`",
                    # The other ways, whose loss is not scaled, need the plain step.
                    fix=Fix(f"Step by `{new}`", (replace(self.unit, event.node, new),), "unsafe") if mendable else None,
                    evidence=[(scale.node, "the loss is scaled here")],
                )
                return

    def _unscaled_loss(self, events: tuple[ScalerEvent, ...]) -> None:
        backward = next((event for event in events if event.kind == "backward"), None)
        if backward is None:
            return
        for event in events[events.index(backward) :]:
            if event.kind == "step":
                receiver = backward.node.func.value if isinstance(backward.node.func, cst.Attribute) else None
                simple = receiver is not None and not backward.node.args
                fix = None
                if simple and receiver is not None:
                    new = f"{event.scaler}.scale({self.code(receiver)})"
                    fix = Fix(f"Scale the loss: `{new}`", (replace(self.unit, receiver, new),), "unsafe")
                self.report(
                    backward.node,
                    "TDL404",
                    f"the loss is not scaled, but `{event.scaler}.step` divides the gradients by the loss scale: the steps are far too "
                    f"small, or the scaler finds no inf checks; write `{event.scaler}.scale(loss).backward()`",
                    fix=fix,
                    evidence=[(event.node, "the scaler steps here")],
                )
                return

    def _not_updated(self, events: tuple[ScalerEvent, ...]) -> None:
        for event in events:
            if event.kind == "step":
                text = f"{event.scaler}.update()"
                statement = statement_of(self.unit, event.node)
                edit = insert_after(self.unit, statement, text) if statement is not None else None
                self.report(
                    event.node,
                    "TDL405",
                    f"nothing calls `{text}` after this step: the next one raises, and the loss scale never adapts",
                    fix=Fix(f"Call `{text}`", (edit,), "safe") if edit else None,
                )
                return

    def _unscaled_twice(self, events: tuple[ScalerEvent, ...], drawn: frozenset[str]) -> None:
        unscaled: dict[tuple[str, str], ScalerEvent] = {}
        for event in events:
            if event.kind == "update":
                unscaled = {key: first for key, first in unscaled.items() if key[0] != event.scaler}
            elif event.kind == "unscale" and event.optimizer.partition(".")[0] not in drawn:
                key = (event.scaler, event.optimizer)
                if key in unscaled and not on_other_branch(self.unit, unscaled[key].node, event.node):
                    self._report_twice(event, unscaled[key])
                unscaled[key] = event

    def _report_twice(self, event: ScalerEvent, first: ScalerEvent) -> None:
        again = (
            "in the next round of the loop, on a path without an update" if first.node is event.node else "before it"
        )
        self.report(
            event.node,
            "TDL407",
            f"`{event.scaler}.unscale_({event.optimizer})` was called already {again}: this raises a RuntimeError; unscale once, "
            "just before the step, and update on every path",
            evidence=[(first.node, "unscaled here first")],
        )
