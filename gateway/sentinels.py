"""The gate for every visible byte of a reply: what means silence, and what must never be seen."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from gateway.types import Kind

NO_REPLY = "NO_REPLY"
HEARTBEAT_OK = "HEARTBEAT_OK"
ACK_MAX_CHARS = 300
"""Words beside HEARTBEAT_OK that still count as an acknowledgement (spec HB-24)."""

_BLANK = " \t\r\n\f\v\ufeff"
# ASCII only: a Unicode class once swallowed Chinese words beside a token (spec X-10).
_WRAPPERS = re.compile(r"\A(?:```\w*\n|[`*_\"'(\[]|<final>)+|(?:\n?```|[`*_\"')\].!]|</final>)+\Z", re.ASCII)
_ENVELOPE = re.compile(r'\A\{\s*"action"\s*:\s*"NO_REPLY"\s*\}\Z')
_EDGE = r"[`*_\"'\s.,:;!>()\[\]\-–—]*"
_OK_FIRST = re.compile(rf"\A[`*_\"'\s]*{HEARTBEAT_OK}(?![A-Za-z0-9_]){_EDGE}", re.ASCII)
_OK_LAST = re.compile(rf"[`*_\"'\s(\[]*(?<![A-Za-z0-9_]){HEARTBEAT_OK}[`*_\"'\s.!)\]]*\Z", re.ASCII)
_REPLY_TAG = re.compile(
    r"\[\[\s*(?:reply_to_current|reply_to\s*:\s*[^\]\n]{1,80}|audio_as_voice)\s*\]\]", re.ASCII
)
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)

_MARKUP = re.compile(
    r"<(?:\|?tool_call|tool_calls|function_calls?|antml:invoke|invoke\s+name=|function=\w)"
    r"|<｜tool▁calls?▁begin｜>|\[TOOL_CALLS?\]|<\|python_tag\|>",
    re.IGNORECASE,
)
_CALL_JSON = re.compile(
    r"\A\s*(?:```(?:json|tool_call|tool_code)?\s*)?\{\s*\"(?:name|tool|function|tool_name)\"\s*:\s*\"([\w.-]{1,64})\"\s*,"
    r"\s*\"(?:arguments|args|parameters|input)\"\s*:\s*\{.*\}\s*(?:```)?\s*\Z",
    re.DOTALL,
)


def _bare(text: str) -> str:
    """Return the text without blanks and one layer of marks around it; only for comparing."""
    core = text.strip(_BLANK)
    for _ in range(3):
        core = _WRAPPERS.sub("", core).strip(_BLANK)
    return core


def _is_token(text: str, token: str) -> bool:
    return _bare(text).casefold() == token.casefold()


def _strip_no_reply(text: str) -> str:
    """Drop a NO_REPLY on a line of its own at either end, or glued to the text there (spec NR-2, NR-3)."""
    if NO_REPLY.casefold() not in text.casefold():
        return text
    lines = text.strip(_BLANK).split("\n")
    while lines and _is_token(lines[0], NO_REPLY):
        lines = lines[1:]
    while lines and _is_token(lines[-1], NO_REPLY):
        lines = lines[:-1]
    kept = "\n".join(lines).strip(_BLANK)
    if kept.startswith(NO_REPLY):
        kept = kept[len(NO_REPLY) :].lstrip(_BLANK + ":-–—.,*`")
    if kept.endswith((f" {NO_REPLY}", f"*{NO_REPLY}")) and not _in_code(kept):
        # "Sure! NO_REPLY": the words were meant for somebody.
        kept = kept[: -len(NO_REPLY)].rstrip(_BLANK + "*")
    return kept


def _in_code(text: str) -> bool:
    """Return whether the end of the text is inside a fence."""
    return len(_FENCE.findall(text)) % 2 == 1


def _strip_ok(text: str) -> str | None:
    """Return the text without HEARTBEAT_OK at its start or end, None if it has none there."""
    first = _OK_FIRST.sub("", text)
    rest = _OK_LAST.sub("", first)
    return None if rest == text else rest.strip(_BLANK)


def visible(text: str, kind: Kind, *, ack_max_chars: int = ACK_MAX_CHARS) -> str:
    """Return what a person should see of a final reply; "" for nothing (agent C, spec NR-1..NR-5, HB-24)."""
    # A lone surrogate from the model's JSON can't be sent to any platform.
    shown = text.encode("utf-8", "replace").decode().replace("\0", "").strip(_BLANK)
    if _is_token(shown, NO_REPLY) or _ENVELOPE.match(shown) or _is_token(shown, HEARTBEAT_OK):
        return ""
    shown = _strip_no_reply(shown)
    rest = _strip_ok(shown)
    if rest is not None:
        if kind is Kind.HEARTBEAT and len(rest) <= ack_max_chars:
            return ""
        shown = rest
    if "[[" in shown and not _in_code(shown):
        shown = _REPLY_TAG.sub("", shown).strip(_BLANK)
    return shown


def looks_like_call(text: str, tools: Collection[str]) -> bool:
    """Return whether a reply is a tool call printed as text (agent 10.2 "pseudo-instruction bug").

    Markup inside a code fence is an explanation, not a call (case toolcall-03).
    """
    found = _MARKUP.search(text)
    if found is not None and not _in_code(text[: found.start()]) and not _quoted(text, found.start()):
        return True
    named = _CALL_JSON.match(text)
    return named is not None and named.group(1) in tools


def _quoted(text: str, at: int) -> bool:
    """Return whether a position is inside inline code."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line.count("`") % 2 == 1


_TOKENS = tuple(token.casefold() for token in (NO_REPLY, HEARTBEAT_OK))
_HELD_START = re.compile(r"\A[`*_\"'\s\ufeff(\[]*", re.ASCII)
_HELD_END = re.compile(r"[`*_\"'\s(\[]*[A-Za-z_]*[`*_\"'\s.!)\]]*\Z", re.ASCII)
_HIDDEN = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)\s*", re.DOTALL)
_ANGLE = re.compile(r"<[^<>\n]{0,24}\Z|\[{1,2}[^\[\]\n]{0,90}\]?\Z")


@dataclass(slots=True)
class Gate:
    """Lets through, while a reply streams, only what is sure to be part of the final visible text."""

    _raw: list[str] = field(default_factory=list)
    _shown: int = 0

    def feed(self, chunk: str) -> str:
        """Take more raw text; return what may be shown now."""
        self._raw.append(chunk)
        safe = _safe_prefix("".join(self._raw))
        new = safe[self._shown :]
        self._shown = max(self._shown, len(safe))
        return new


def _safe_prefix(raw: str) -> str:
    text = _HIDDEN.sub("", raw).lstrip(_BLANK) if "<think" in raw else raw.lstrip(_BLANK)
    markup = _MARKUP.search(text)
    if markup is not None:
        text = text[: markup.start()]
    text = _REPLY_TAG.sub("", text).lstrip(_BLANK) if "[[" in text else text
    angle = _ANGLE.search(text)
    if angle is not None:
        text = text[: angle.start()]
    head = text[_HELD_START.match(text).end() :].casefold()  # type: ignore[union-attr]  # it matches the empty text
    if any(token.startswith(head) or head.startswith(token) for token in _TOKENS):
        return ""
    return text[: _held_from(text)]


def _held_from(text: str) -> int:
    """Return where a tail begins that may still become a token at the end of the reply."""
    tail = _HELD_END.search(text)
    if tail is None:
        return len(text)
    word = tail.group().strip("`*_\"' \t\r\n([.!)]").casefold()
    blank_start = tail.start()
    if word and not any(token.startswith(word) for token in _TOKENS):
        # Only the blanks behind an ordinary word wait, since `visible` trims them at the end.
        return len(text.rstrip(_BLANK))
    return blank_start
