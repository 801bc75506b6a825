"""Comments that silence findings: flake8's `# noqa`, read exactly as flake8 reads it, and devlint's own.

    x = batch[1]  # noqa: TDL101
    x = batch[1]  # devlint: ignore[partial-batch-transfer] the loss runs on the CPU
    # devlint: ignore-file[TDL101]        on a line of its own, for the whole file
    # flake8: noqa                        on a line of its own: nothing in this file

A comment holds for every line of the logical line that it is on, as it does for flake8.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from devlint.findings import Edit, Finding, Fix, Span
from devlint.source import Source

UNUSED = ("TDL901", "unused-suppression")

_NOQA = re.compile(r"# noqa(?::[\s]?(?P<codes>([A-Z]+[0-9]+(?:[,\s]+)?)+))?", re.I)
_NOQA_FILE = re.compile(r"\s*# flake8[:=]\s*noqa", re.I)
_OWN = re.compile(r"#\s*devlint:\s*ignore(?P<file>-file)?(?![\w-])\s*(?:\[(?P<words>[^\]]*)\])?", re.I)
_MENTION = re.compile(r"noqa|devlint:", re.I)
_OUR_MENTION = re.compile(r"devlint:|noqa.*TDL\d", re.I)
_OUR_CODE = re.compile(r"TDL\d+\Z")


@dataclass(eq=False)
class Comment:
    """One suppression comment. `words` are the codes, prefixes or names that it silences; None silences all."""

    line: int
    column: int
    words: tuple[str, ...] | None
    own: bool
    length: int = 0
    used: set[str] = field(default_factory=set)

    def silences(self, finding: Finding) -> bool:
        """Whether the comment names the finding's rule; what it names is marked as used."""
        if self.words is None:
            if self.own and finding.code == UNUSED[0]:
                return False
            self.used.add("")
            return True
        hits = [word for word in self.words if self._names(word, finding)]
        self.used.update(hits)
        return bool(hits)

    def _names(self, word: str, finding: Finding) -> bool:
        if self.own:
            return finding.code == word.upper() or finding.name == word.lower()
        return finding.code.startswith(word)


class Suppressions:
    """The suppression comments of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.whole_file = False
        self.file_comments: list[Comment] = []
        self.by_line: dict[int, list[Comment]] = {}
        self.lines = LogicalLines()
        if _MENTION.search(source.text):
            self._read()

    def _read(self) -> None:
        count = len(self.source.line_starts)
        self.whole_file = any(_NOQA_FILE.match(self.source.line(number)) for number in range(1, count + 1))
        if self.whole_file:
            return
        self.lines = logical_lines(self.source)
        for line, column, text in self.lines.comments:
            for match in _OWN.finditer(text):
                words = None if match["words"] is None else tuple(re.split(r"[,\s]+", match["words"].strip()))
                comment = Comment(line, column + match.start(), words, own=True, length=len(match[0].rstrip()))
                if match["file"]:
                    self.file_comments.append(comment)
                else:
                    for number in range(*self.lines.statements.get(line, (line, line + 1))):
                        self.by_line.setdefault(number, []).append(comment)
        for first, end in sorted({self.lines.noqa.get(n, (n, n + 1)) for n in range(1, count + 1)}):
            self._read_noqa(first, end)

    def _read_noqa(self, first: int, end: int) -> None:
        """flake8 searches a logical line's whole text, strings included, and heeds the first match."""
        starts = self.source.line_starts
        stop = starts[end - 1] if end - 1 < len(starts) else len(self.source.text)
        match = _NOQA.search(self.source.text[starts[first - 1] : stop])
        if match is None:
            return
        codes = match["codes"]
        words = None if codes is None else tuple(word for word in re.split(r"[,\s]", codes) if word)
        line, column = self.source.place(starts[first - 1] + match.start())
        comment = Comment(line, column, words, own=False, length=len(match[0].rstrip(", \t\r\n\f")))
        for number in range(first, end):
            self.by_line.setdefault(number, []).append(comment)

    def keep(self, findings: list[Finding], *, noqa: bool = True) -> list[Finding]:
        """The findings that nothing silences, in order; without `noqa`, only devlint's own comments count."""
        if self.whole_file and noqa:
            return []
        return [finding for finding in findings if not self._silenced(finding, noqa)]

    def _silenced(self, finding: Finding, noqa: bool) -> bool:
        comments = [*self.by_line.get(finding.span.line, ()), *self.file_comments]
        # Every comment is asked, so that each one that has a part in it counts as used.
        hits = [comment for comment in comments if comment.silences(finding)]
        return any(comment.own or noqa for comment in hits)

    def unused(self, enabled: Collection[str], *, noqa: bool = True) -> list[Finding]:
        """TDL901 for each of devlint's own comments, and each `TDL` code in a `# noqa`, that silenced nothing.

        A code whose rule is not among the `enabled` ones is left alone: nobody looked whether it is needed.
        """
        comments = {comment: None for comments in self.by_line.values() for comment in comments}
        found: list[Finding] = []
        for comment in [*comments, *self.file_comments] if not self.whole_file else ():
            token = self._token(comment)
            # What flake8 takes for a comment may stand in a string; there it silences, but nobody put it there to.
            dead = dict(self._dead(comment, enabled)) if token else {}
            edit = self._without(comment, dead, *token) if dead and token else None
            fix = Fix("Take it out", (edit,)) if edit else None
            found += [self._report(comment, message, fix) for message in dead.values()]
        return self.keep(sorted(set(found), key=lambda finding: finding.sort_key), noqa=noqa)

    def _dead(self, comment: Comment, enabled: Collection[str]) -> Iterator[tuple[str, str]]:
        """Each word of a comment that silences nothing, and what to say of it; the empty word is all of it."""
        from devlint.checks import rules

        names = {rule.name: code for code, rule in rules().items()}
        if comment.words is None and comment.own and not comment.used:
            yield "", "this comment silences nothing; take it out"
        for word in comment.words or ():
            if word in comment.used or (not comment.own and not _OUR_CODE.match(word)):
                continue
            code = names.get(word.lower(), word.upper() if comment.own else word)
            covered = [known for known in enabled if known == code or (not comment.own and known.startswith(code))]
            if covered:
                yield word, f"nothing of {word} is silenced here; take it out"
            elif code not in rules() and code not in enabled and not any(k.startswith(code) for k in rules()):
                yield word, f"no rule is called {word!r}, so nothing is silenced"

    def _report(self, comment: Comment, message: str, fix: Fix | None) -> Finding:
        length = len(self.source.line(comment.line)) - comment.column
        span = Span(comment.line, comment.column, comment.line, comment.column + max(length, 1))
        return Finding(*UNUSED, message, span, fix=fix, path=self.source.path)

    def _token(self, comment: Comment) -> tuple[int, str] | None:
        """The column and text of what Python takes for a comment, of which a suppression comment is a part."""
        tokens = [token for token in self.lines.comments if token[0] == comment.line and token[1] <= comment.column]
        return tokens[-1][1:] if tokens else None

    def _without(self, comment: Comment, dead: Collection[str], column: int, token: str) -> Edit | None:
        """The edit that takes words out of a comment, or all of it; None where what is left would not read well."""
        start = self.source.offset(comment.line, comment.column)
        end = start + comment.length
        left = [word for word in comment.words or () if word not in dead]
        if left:
            text = self.source.text[start:end]
            if comment.own:
                return Edit(start, end, text[: text.index("[") + 1] + ", ".join(left) + "]")
            return Edit(start, end, text[: text.index(":") + 1] + " " + ",".join(left))
        rest = token[comment.column - column + comment.length :]
        if comment.own:
            # Its reason goes with it, up to the next comment on the line.
            reason = rest.partition("#")[0]
            end, rest = end + len(reason), rest[len(reason) :]
        line = self.source.line(comment.line)
        before = line[: comment.column]
        if rest.strip() and not rest.lstrip().startswith("#"):
            return Edit(start, end, "#") if column == comment.column else None
        if not rest.strip() and not before.strip():
            first = self.source.offset(comment.line, 0)
            starts = self.source.line_starts
            return Edit(first, starts[comment.line] if comment.line < len(starts) else len(self.source.text), "")
        if rest.strip():
            return Edit(start, end + len(rest) - len(rest.lstrip()), "")
        return Edit(start - len(before) + len(before.rstrip()), end + len(rest), "")


def apply(
    source: Source, findings: list[Finding], enabled: Collection[str] = (), *, noqa: bool = True
) -> list[Finding]:
    """The findings that no comment of the file silences, in order.

    Where `enabled` holds TDL901, comments that silence nothing are reported as well. Without `noqa`, what `# noqa`
    silences is left in, for flake8 to take out.
    """
    if not findings and (UNUSED[0] not in enabled or not _OUR_MENTION.search(source.text)):
        return findings
    comments = Suppressions(source)
    kept = comments.keep(findings, noqa=noqa)
    if UNUSED[0] in enabled:
        kept = sorted([*kept, *comments.unused(enabled, noqa=noqa)], key=lambda finding: finding.sort_key)
    return kept


@dataclass(eq=False)
class LogicalLines:
    """Which lines belong together, each as line -> (first, last + 1), and the comments as (line, column, text).

    `noqa` is flake8's notion: the lines of a string, or joined by backslashes, belong together, those in brackets do
    not. `statements` are whole logical lines. A file that cannot be tokenized has neither.
    """

    noqa: dict[int, tuple[int, int]] = field(default_factory=dict)
    statements: dict[int, tuple[int, int]] = field(default_factory=dict)
    comments: list[tuple[int, int, str]] = field(default_factory=list)


def logical_lines(source: Source) -> LogicalLines:
    """The file's logical lines and comments."""
    found = LogicalLines()
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")
    none = len(source.line_starts) + 2
    first, last, begin, inside = none, -1, none, False
    try:
        for kind, string, (start, column), (end, _), _ in tokenize.generate_tokens(io.StringIO(text).readline):
            if kind == tokenize.COMMENT:
                found.comments.append((start, column, string))
            if kind in (tokenize.ENDMARKER, tokenize.DEDENT):
                continue
            first, last, begin = min(first, start), max(last, end), min(begin, start)
            if kind in (tokenize.NL, tokenize.NEWLINE):
                found.noqa.update(dict.fromkeys(range(first, last + 1), (first, last + 1)))
                first, last = none, -1
                if kind == tokenize.NEWLINE or not inside:
                    found.statements.update(dict.fromkeys(range(begin, end + 1), (begin, end + 1)))
                    begin, inside = none, False
            elif kind not in (tokenize.COMMENT, tokenize.INDENT):
                inside = True
    except (tokenize.TokenError, SyntaxError):
        return LogicalLines(comments=found.comments)
    return found
