"""A file as Python reads it: bytes in, text and places out, the same bytes back."""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from bisect import bisect_right
from functools import cached_property

from devlint.findings import Edit, Span

# A line ends where Python's tokenizer ends it; str.splitlines() knows more line ends than that.
_NEWLINE = re.compile(r"\r\n|\r|\n")


class SourceError(Exception):
    """The bytes are not Python text; the message says why, `line` where."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class Source:
    """The text of one file together with what it takes to write it back byte for byte.

    Newlines are kept as they are, so offsets into `text` are offsets into the file's characters.
    """

    def __init__(self, path: str, data: bytes) -> None:
        """Decode `data` as Python would: by its BOM, else its coding cookie, else UTF-8.

        Raises SourceError for an unknown encoding, for bytes that do not decode, and for NUL bytes.
        """
        self.path = path
        self.bom = data.startswith(codecs.BOM_UTF8)
        body = data[len(codecs.BOM_UTF8) :] if self.bom else data
        if b"\0" in body:
            raise SourceError("the file contains NUL bytes", body[: body.index(b"\0")].count(b"\n") + 1)
        try:
            self.encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except SyntaxError as error:
            raise SourceError(str(error)) from None
        if self.encoding == "utf-8-sig":
            self.encoding = "utf-8"
        try:
            self.text = body.decode(self.encoding)
        except UnicodeDecodeError as error:
            where = body[: error.start].count(b"\n") + 1
            raise SourceError(f"cannot decode the file as {self.encoding}: {error.reason}", where) from None

    @classmethod
    def from_text(cls, text: str, path: str = "<string>") -> Source:
        """A source made of `text` itself, whatever its cookie says."""
        source = cls(path, b"")
        source.text = text
        return source

    def encode(self, text: str) -> bytes:
        """`text` in the file's encoding, with its BOM. Raises SourceError where the encoding lacks a character."""
        try:
            body = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise SourceError(f"cannot encode the fixed file as {self.encoding}: {error.reason}") from None
        return codecs.BOM_UTF8 + body if self.bom else body

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of each line's first character."""
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    @cached_property
    def newline(self) -> str:
        """The file's own line end, that of its first line."""
        match = _NEWLINE.search(self.text)
        return match.group() if match else "\n"

    def line(self, number: int) -> str:
        """Line `number` (1-based) without its line end."""
        starts = self.line_starts
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def offset(self, line: int, column: int) -> int:
        """The character offset of (1-based line, 0-based column in characters)."""
        return self.line_starts[line - 1] + column

    def offset_utf8(self, line: int, column: int) -> int:
        """The character offset of an `ast` position, whose column counts UTF-8 bytes."""
        start = self.line_starts[line - 1]
        if self.text.isascii():
            return start + column
        return start + len(self.line(line).encode("utf-8")[:column].decode("utf-8", "ignore"))

    def place(self, offset: int) -> tuple[int, int]:
        """(line, column) of a character offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1]

    def span(self, start: int, end: int) -> Span:
        """The span between two character offsets."""
        return Span(*self.place(start), *self.place(end))

    def apply(self, edits: list[Edit]) -> str:
        """The text with non-overlapping `edits` made."""
        parts, at = [], 0
        for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
            parts += [self.text[at : edit.start], edit.content]
            at = edit.end
        return "".join([*parts, self.text[at:]])
