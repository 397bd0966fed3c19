"""A command line, read as a shell would: its commands, their words, and what is not known before they run.

The reader is meant to be told lies. Whatever it does not read exactly as bash does, it says so in
`Line.unclear`, so that a person is asked; it never guesses in favour of a command (agent 4.4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLANK = " \t"
_END = " \t\n;|&<>()"
_OPERATORS = ("((", "||", "&&", "|&", ";;", "|", "&", ";", "\n", "(", ")")
_REDIRECTS = ("&>>", "<<<", "<<-", "&>", "<<", "<>", "<&", ">>", ">&", ">|", ">", "<")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?\+?=", re.DOTALL)
_PLAIN_BRACES = re.compile(r"#?[A-Za-z_]\w*(:?[-+=?][\w ./:,-]*|[#%]{1,2}[\w ./*?:,-]*)?|[0-9?#$*-]")
_PLAIN_SUM = re.compile(r"[\d\s+*/%<>=&|^~!?:,()-]*")
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

# Words that only say how the commands after them hang together.
_STRUCTURE = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}"})
_BRACKETS = frozenset({"{", "}", "[", "]", "[[", "]]"})
_TOO_CLEVER = frozenset({"case", "esac", "select", "function", "coproc", "in"})


@dataclass(frozen=True, slots=True)
class Word:
    """One word without its quotes. `expands`: the shell would put something else in its place (`$x`, `*`).

    `inner` are the command lines in it, whose output it will hold; `quoted` is whether any of it was.
    """

    text: str
    expands: bool = False
    inner: tuple[str, ...] = ()
    quoted: bool = False

    @property
    def known(self) -> bool:
        """Return whether the program gets exactly `text`."""
        return not self.expands and not self.inner


@dataclass(frozen=True, slots=True)
class Redirect:
    """`operator` is without the number in front of it."""

    operator: str
    target: Word


@dataclass(frozen=True, slots=True)
class Segment:
    """A simple command; `after` is the operator in front of it, "" at the beginning."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    after: str = ""

    @property
    def parts(self) -> tuple[Word, ...]:
        """Return every word, wherever it stands."""
        return (*self.assignments, *self.words, *(one.target for one in self.redirects))


@dataclass(frozen=True, slots=True)
class Line:
    """All commands of a line in their order; `unclear` says why it may mean something else, or "".

    `structured`: there is more to it than one command after the other. `documents` are the texts of its
    here-documents.
    """

    segments: tuple[Segment, ...]
    unclear: str = ""
    structured: bool = False
    documents: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Return whether it is nothing but words, joined by `|`, `&&`, `||` and `;`."""
        joined = {one.after for one in self.segments} <= {"", "|", "&&", "||", ";", "\n"}
        bare = all(one.words and one.parts == one.words for one in self.segments)
        bare = bare and not any(word.inner for one in self.segments for word in one.words)
        return bool(self.segments) and joined and bare and not self.structured and not self.unclear


class _Unreadable(Exception):
    """The line ends in the middle of something. Never leaves this module."""


def parse(line: str) -> Line:
    """Read a command line; never fails, whatever it holds."""
    reader = _Reader(line)
    try:
        reader.read()
    except _Unreadable as problem:
        reader.unclear = str(problem)
    if _HIDDEN.search(line):
        reader.unclear = "it holds control characters"
    return Line(tuple(reader.found), reader.unclear, reader.structured, tuple(reader.documents))


def quoted(line: Line) -> str:
    """Return a `plain` line with every word in quotes, so that no shell expands any (CVE-2026-28463)."""
    pieces: list[str] = []
    for segment in line.segments:
        if segment.after:
            pieces.append(segment.after.replace("\n", ";"))
        pieces += ["'" + word.text.replace("'", "'\\''") + "'" for word in segment.words]
    return " ".join(pieces)


class _Reader:
    """Reads from left to right; the public attributes are what is known so far, as in Line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._words: list[Word] = []
        self._assignments: list[Word] = []
        self._redirects: list[Redirect] = []
        self._after = ""
        self._in_loop_head = False
        self._marks: list[tuple[str, bool]] = []
        self.found: list[Segment] = []
        self.unclear = ""
        self.structured = False
        self.documents: list[str] = []

    def read(self) -> None:
        """Read everything. Raises: _Unreadable."""
        depth = 0
        while self._at < len(self._text):
            if self._skip_blanks():
                continue
            if operator := self._redirect():
                self._redirects.append(self._target(operator))
            elif operator := self._take(_OPERATORS):
                depth += {"((": 2, "(": 1, ")": -1}.get(operator, 0)
                if depth < 0 or operator in ("((", ";;") or (operator == "(" and self._words):
                    self.unclear = "it holds a construct that is not understood"
                self._close(operator)
            else:
                self._add(self._word())
        if depth:
            self.unclear = "a parenthesis is open"
        self._close("\n")

    def _close(self, operator: str) -> None:
        """End a command; `operator` stands before the next."""
        words, assignments, redirects = self._words, self._assignments, self._redirects
        if words or assignments or redirects:
            self.found.append(Segment(tuple(words), tuple(assignments), tuple(redirects), self._after))
        self._words, self._assignments, self._redirects = [], [], []
        self._after, self._in_loop_head = operator, False
        self.structured |= operator in ("&", "(", ")")
        if operator == "\n":
            self._read_documents()

    def _add(self, word: Word) -> None:
        """Put a word where it belongs."""
        if self._in_loop_head:
            # What a loop goes through is no command, but what is computed there runs.
            self._assignments += [word] if word.inner else []
        elif self._words:
            self._words.append(word)
        elif word.text == "for" and not word.quoted:
            self._in_loop_head = self.structured = True
        elif word.text in _STRUCTURE and not word.quoted:
            self.structured = True
        elif _ASSIGNMENT.match(word.text):
            self._assignments.append(word)
        else:
            if word.text in _TOO_CLEVER and not word.quoted:
                self.unclear = f"it uses “{word.text}”"
            self._words.append(word)

    def _skip_blanks(self) -> bool:
        before = self._at
        while self._at < len(self._text):
            if self._text[self._at] in _BLANK:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif self._text[self._at] == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                break
        return self._at > before

    def _take(self, operators: tuple[str, ...]) -> str:
        for operator in operators:
            if self._text.startswith(operator, self._at):
                self._at += len(operator)
                return operator
        return ""

    def _redirect(self) -> str:
        """Read a redirect's operator, with the number in front of it."""
        number = re.compile(r"\d*(?=[<>])").match(self._text, self._at)
        at = number.end() if number else self._at
        if self._text[at : at + 2] in ("<(", ">("):
            return ""
        for operator in _REDIRECTS:
            if self._text.startswith(operator, at):
                self._at = at + len(operator)
                return operator
        return ""

    def _target(self, operator: str) -> Redirect:
        self._skip_blanks()
        if self._at >= len(self._text) or self._text[self._at] in "\n;|&()":
            raise _Unreadable("a redirect leads nowhere")
        word = self._word()
        if operator in ("<<", "<<-"):
            self.unclear = "it holds a here-document"
            self._marks.append((word.text, operator == "<<-"))
        return Redirect(operator, word)

    def _read_documents(self) -> None:
        """Take the lines of the here-documents that were announced."""
        for mark, dashed in self._marks:
            lines: list[str] = []
            while self._at < len(self._text):
                line, _, _ = self._text[self._at :].partition("\n")
                self._at = min(len(self._text), self._at + len(line) + 1)
                if (line.lstrip("\t") if dashed else line) == mark:
                    break
                lines.append(line)
            self.documents.append("\n".join(lines))
        self._marks.clear()

    def _word(self) -> Word:
        """Read one word with all its quotes. Raises: _Unreadable."""
        text: list[str] = []
        inner: list[str] = []
        start, expands, was_quoted = self._at, False, False
        while self._at < len(self._text) and not self._ends_word():
            sign = self._text[self._at]
            if sign in "<>":
                self._at += 1
                inner.append(self._parenthesised())
            elif sign in "'\"\\":
                was_quoted = True
                piece, more, found = self._quoted(sign)
                text.append(piece)
                expands |= more
                inner += found
            elif sign in "$`":
                piece, more, found = self._dollar(in_quotes=False)
                text.append(piece)
                expands |= more
                inner += found
            else:
                expands |= sign in "*?[{}" or (sign == "~" and self._at == start)
                text.append(sign)
                self._at += 1
        if "".join(text) in _BRACKETS:
            expands = False
        return Word("".join(text), expands, tuple(inner), was_quoted)

    def _ends_word(self) -> bool:
        sign = self._text[self._at]
        return sign in _END and not (sign in "<>" and self._text[self._at + 1 : self._at + 2] == "(")

    def _quoted(self, sign: str) -> tuple[str, bool, list[str]]:
        """Read what a quote sign begins: the text, whether it expands, the command lines in it."""
        self._at += 1
        if sign == "\\":
            piece = self._text[self._at : self._at + 1]
            self._at += 1
            return "" if piece == "\n" else piece or "\\", False, []
        if sign == "'":
            end = self._text.find("'", self._at)
            if end < 0:
                raise _Unreadable("a quote is open")
            piece, self._at = self._text[self._at : end], end + 1
            return piece, False, []
        return self._double_quoted()

    def _double_quoted(self) -> tuple[str, bool, list[str]]:
        text: list[str] = []
        inner: list[str] = []
        expands = False
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == '"':
                self._at += 1
                return "".join(text), expands, inner
            if sign == "\\" and self._text[self._at + 1 : self._at + 2] in tuple('$`"\\\n'):
                text.append(self._text[self._at + 1].replace("\n", ""))
                self._at += 2
            elif sign in "$`":
                piece, more, found = self._dollar(in_quotes=True)
                text.append(piece)
                expands |= more
                inner += found
            else:
                text.append(sign)
                self._at += 1
        raise _Unreadable("a quote is open")

    def _dollar(self, *, in_quotes: bool) -> tuple[str, bool, list[str]]:
        """Read what `$` or a backtick begins; its text stays as it is written."""
        start = self._at
        self._at += 1
        following = self._text[self._at : self._at + 1]
        if self._text[start] == "`":
            return "", False, [self._backticks()]
        if self._text.startswith("((", self._at):
            self._sum()
        elif following == "(":
            return "", False, [self._parenthesised()]
        elif following == "{":
            self._braces()
        elif following == "'" and not in_quotes:
            self._escapes()
        elif following == '"' and not in_quotes:
            return "", False, []
        elif following == "[":
            self.unclear = "it computes"
            return "$", True, []
        elif name := _NAME.match(self._text, self._at):
            self._at = name.end()
        elif following and following in "0123456789?#$*@!-":
            self._at += 1
        else:
            return "$", False, []
        return self._text[start : self._at], True, []

    def _backticks(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] != "`":
            self._at += 2 if self._text[self._at] == "\\" else 1
        if self._at >= len(self._text):
            raise _Unreadable("a backtick is open")
        self._at += 1
        return re.sub(r"\\([$`\\])", r"\1", self._text[start : self._at - 1])

    def _parenthesised(self) -> str:
        """Return what stands between a parenthesis, where we are, and the one that closes it."""
        start, depth = self._at + 1, 0
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign == "\\":
                self._at += 1
            elif sign in "'\"":
                self._skip_quotes(sign)
            elif sign == "(":
                depth += 1
            elif sign == ")":
                depth -= 1
                if not depth:
                    inner = self._text[start : self._at - 1]
                    # Where bash would look for the end otherwise than by counting.
                    if re.search(r"#|<<|\bcase\b", inner):
                        self.unclear = "it nests commands in a way that is not understood"
                    return inner
        raise _Unreadable("a parenthesis is open")

    def _skip_quotes(self, sign: str) -> None:
        while self._at < len(self._text):
            at = self._text[self._at]
            self._at += 2 if at == "\\" and sign == '"' else 1
            if at == sign:
                return
            if sign == '"' and at == "$" and self._text.startswith("(", self._at):
                self._parenthesised()
        raise _Unreadable("a quote is open")

    def _sum(self) -> None:
        end = self._text.find("))", self._at)
        if end < 0:
            raise _Unreadable("a sum is open")
        # A variable in a sum may hold a command that bash would run: a[$(…)].
        if not _PLAIN_SUM.fullmatch(self._text, self._at + 2, end):
            self.unclear = "it computes with variables"
        self._at = end + 2

    def _braces(self) -> None:
        end = self._text.find("}", self._at)
        if end < 0:
            raise _Unreadable("a brace is open")
        if not _PLAIN_BRACES.fullmatch(self._text, self._at + 1, end):
            self.unclear = "it changes variables in a way that is not understood"
        self._at = end + 1

    def _escapes(self) -> None:
        """Skip a `$'…'`, whose escapes may spell anything."""
        self._at += 1
        while self._at < len(self._text) and self._text[self._at] != "'":
            self._at += 2 if self._text[self._at] == "\\" else 1
        if self._at >= len(self._text):
            raise _Unreadable("a quote is open")
        self._at += 1
