"""TDL307 dataloader-conflicting-args: DataLoader arguments that exclude one another."""

from __future__ import annotations

from devlint.checks.base import Check, Rule
from devlint.edits import has_unpacking
from devlint.lazycst import cst
from devlint.semantics.data_loader import DATA_LOADER, is_literal, is_set, option
from devlint.semantics.origins import Origins


class ConflictingArguments(Check):
    rules = (Rule("TDL307", "dataloader-conflicting-args", "DataLoader arguments that exclude one another"),)
    triggers = (("DataLoader",), ("sampler", "batch_sampler", "drop_last"))

    def visit_Call(self, node: cst.Call) -> None:
        if self.name(node.func) != DATA_LOADER or has_unpacking(node):
            return
        sampler, batches = option(node, "sampler"), option(node, "batch_sampler")
        shuffled = is_literal(option(node, "shuffle"), "True")
        if self._given(sampler) and shuffled:
            self._report(node, "`sampler` and `shuffle=True`: the sampler decides the order; drop `shuffle`")
        elif self._given(batches):
            size = option(node, "batch_size")
            others = {
                "batch_size": size is not None and not is_literal(size, "1"),
                "shuffle": shuffled,
                "sampler": self._given(sampler),
                "drop_last": is_literal(option(node, "drop_last"), "True"),
            }
            wrong = [name for name, given in others.items() if given]
            if wrong:
                self._report(
                    node, f"`batch_sampler` and `{wrong[0]}`: the batch sampler decides all of these; drop `{wrong[0]}`"
                )
        elif is_literal(option(node, "batch_size"), "None") and is_literal(option(node, "drop_last"), "True"):
            self._report(
                node, "`batch_size=None` and `drop_last=True`: without batches there is no last one; drop `drop_last`"
            )

    def _given(self, arg: cst.Arg | None) -> bool:
        """Whether an argument is surely not None: a call, or a name that only calls of torch's samplers are bound to."""
        if not is_set(arg) or arg is None:
            return False
        if isinstance(arg.value, cst.Call):
            return True
        makers = Origins(self.file).makers(arg.value, self.unit) if isinstance(arg.value, cst.Name) else ()
        return bool(makers) and all(maker.startswith("torch.utils.data.") for maker in makers)

    def _report(self, node: cst.Call, what: str) -> None:
        self.report(node, "TDL307", f"{what}; as it is, it raises a ValueError")
