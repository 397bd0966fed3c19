"""Tells a model's answer from its thoughts while both arrive in one text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from gateway.models.base import OnRestart, OnText

_OPEN = re.compile(r"<(?:think|thinking|thought)>", re.IGNORECASE)
_CLOSE = re.compile(r"(?<!`)</(?:think|thinking|thought)>", re.IGNORECASE)
_CLOSE_OR_FINAL = re.compile(rf"{_CLOSE.pattern}|(?P<final><final>)", re.IGNORECASE)
_FINAL = re.compile(r"<final>", re.IGNORECASE)
_END = re.compile(r"</final>", re.IGNORECASE)
_FIRST_TAGS = ("<thinking>", "<think>", "<thought>", "<final>")
_BEGUN = re.compile(r"`?(</?[a-z]{0,8})?\Z", re.IGNORECASE)
"""What may be the beginning of a tag, with the mark that would make it code."""


class _Part(Enum):
    """Which part of the text comes now."""

    START = "start"
    THOUGHT = "thought"
    ANSWER = "answer"
    FINAL = "final"
    OVER = "over"


@dataclass(slots=True)
class Visible:
    """Takes raw text as it streams, passes on the answer, and keeps the thoughts apart.

    A text may begin with `<think>…</think>`, or have only the closing tag because the opening one was in
    the prompt (models 2.3 row 17), or never close it and mark the answer with `<final>` (reasoning-01).
    A closing tag that comes after words were shown takes these back through `on_restart`.
    """

    on_text: OnText | None = None
    on_restart: OnRestart | None = None
    answer: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    _part: _Part = _Part.START
    _held: str = ""
    _closed: bool = False
    _after: list[str] = field(default_factory=list)
    """What comes after the end of the final answer."""

    def feed(self, piece: str) -> None:
        """Take more text."""
        if self._part is _Part.ANSWER and not self._held and "<" not in piece and "`" not in piece:
            self._show(piece)
            return
        self._held += piece
        while self._step():
            pass

    def end(self) -> tuple[str, str]:
        """Return the answer without blanks around it, and the thoughts."""
        held, self._held = self._held, ""
        if self._part is _Part.THOUGHT:
            self.thoughts.append(held)
        else:
            self._keep(held)
        return "".join(self.answer).strip(), "".join([*self.thoughts, *self._after])

    def _step(self) -> bool:
        """Handle what is held; return whether another part begins in it."""
        match self._part:
            case _Part.START:
                return self._start()
            case _Part.THOUGHT:
                return self._thought()
            case _Part.ANSWER | _Part.FINAL | _Part.OVER:
                return self._answer()

    def _start(self) -> bool:
        self._held = self._held.lstrip()
        for tag, part in ((_OPEN, _Part.THOUGHT), (_FINAL, _Part.FINAL)):
            found = tag.match(self._held)
            if found:
                return self._enter(part, found.end())
        if any(tag.startswith(self._held.lower()) for tag in _FIRST_TAGS):
            return False
        return self._enter(_Part.ANSWER, 0)

    def _thought(self) -> bool:
        found = _CLOSE_OR_FINAL.search(self._held)
        if found:
            self.thoughts.append(self._held[: found.start()])
            self._closed = found["final"] is None
            return self._enter(_Part.START if self._closed else _Part.FINAL, found.end())
        self.thoughts.append(self._release())
        return False

    def _answer(self) -> bool:
        close = None if self._closed else _CLOSE.search(self._held)
        end = _END.search(self._held) if self._part is _Part.FINAL else None
        if end and not (close and close.start() < end.start()):
            self._show(self._held[: end.start()])
            return self._enter(_Part.OVER, end.end())
        if close:
            self._take_back(self._held[: close.start()])
            return self._enter(_Part.START, close.end())
        self._keep(self._release())
        return False

    def _take_back(self, more: str) -> None:
        """Turn what was taken for the answer into thoughts."""
        if self.answer and self.on_restart:
            self.on_restart()
        self.thoughts += [*self.answer, *self._after, more]
        self.answer.clear()
        self._after.clear()
        self._closed = True

    def _enter(self, part: _Part, at: int) -> bool:
        self._part, self._held = part, self._held[at:]
        return True

    def _release(self) -> str:
        """Return what is held but for a tag that may only have begun."""
        begun = _BEGUN.search(self._held)
        cut = begun.start() if begun else len(self._held)
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _keep(self, text: str) -> None:
        if self._part is _Part.OVER:
            self._after.append(text)
        else:
            self._show(text)

    def _show(self, text: str) -> None:
        if not text:
            return
        self.answer.append(text)
        if self.on_text:
            self.on_text(text)
