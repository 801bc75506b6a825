"""The LibCST codemod: `python -m libcst.tool codemod devlint.codemod.DevlintCommand PATH`.

It runs the same fixes as `devlint check --fix`, on the text, so that what is not edited stays byte for byte.
"""

from __future__ import annotations

import argparse
from typing import ClassVar

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from devlint.config import Configs
from devlint.findings import FileResult
from devlint.options import UsageError
from devlint.runner import check_data


class DevlintCommand(CodemodCommand):
    """Apply devlint's fixes to each module."""

    DESCRIPTION: str = "Mend what goes wrong with devices in PyTorch code."
    unsafe_fixes: ClassVar[bool] = False

    def __init__(self, context: CodemodContext, unsafe_fixes: bool = False, select: str = "") -> None:
        super().__init__(context)
        self.unsafe = unsafe_fixes
        flags = {"select": select.replace(",", " ").split()} if select else {}
        self.configs = Configs(flags)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        """Register the command's options."""
        parser.add_argument("--unsafe-fixes", action="store_true", help="apply unsafe fixes as well")
        parser.add_argument("--select", default="", help="rules to fix: codes, prefixes, names, or ALL")

    def transform_module(self, tree: cst.Module) -> cst.Module:
        """As `transform_module_impl`: no metadata is needed, and no further transform is scheduled."""
        return self.transform_module_impl(tree)

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """The module with its findings mended; what could not be is told as a warning.

        Raises SkipFile where the configuration is wrong.
        """
        path = self.context.filename or "module.py"
        try:
            settings = self.configs.for_file(path).settings(path)
        except UsageError as error:
            raise SkipFile(str(error)) from None
        data = self._bytes(tree)
        result = check_data(path, data, settings, fix=True, unsafe=self.unsafe)
        for line in _warnings(result) if result else ():
            self.warn(line)
        if result is None or result.source is None or not result.fixed:
            return tree if tree.bytes == data else _exact(data)
        return _exact(result.source.encode(result.source.text))

    def _bytes(self, tree: cst.Module) -> bytes:
        """The file's bytes, if `tree` was made from them: LibCST itself loses form feeds."""
        generated = tree.bytes
        try:
            with open(self.context.filename or "", "rb") as file:
                data = file.read()
        except OSError:
            return generated
        if data == generated:
            return data
        try:
            return data if cst.parse_module(data).deep_equals(tree) else generated
        except (cst.ParserSyntaxError, UnicodeDecodeError):
            return generated


class _ExactModule(cst.Module):
    """A module that is written back as it was read, whatever its tree keeps of it."""

    @property
    def code(self) -> str:
        text: str = self.__dict__["exact_code"]
        return text


def _exact(data: bytes) -> cst.Module:
    module = cst.parse_module(data)
    if module.bytes == data:
        return module
    exact = _ExactModule(
        module.body,
        module.header,
        module.footer,
        module.encoding,
        module.default_indent,
        module.default_newline,
        module.has_trailing_newline,
    )
    exact.__dict__["exact_code"] = data.decode(module.encoding)
    return exact


def _warnings(result: FileResult) -> list[str]:
    remaining = [f"{f.path}:{f.span.line}:{f.span.column + 1}: {f.code} {f.message}" for f in result.findings]
    return [*result.errors, *remaining]
