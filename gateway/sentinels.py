"""The gate for every visible byte of a reply: what means silence, and what must never be seen."""

from __future__ import annotations

import re
import string
from collections.abc import Collection
from dataclasses import dataclass

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
_OK_LAST = re.compile(rf"\s*[`*_\"'(\[]*(?<![A-Za-z0-9_]){HEARTBEAT_OK}[`*_\"'\s.!)\]]*\Z", re.ASCII)
_REPLY_TAG = re.compile(
    r"\[\[\s*(?:reply_to_current|reply_to\s*:\s*[^\]\n]{1,80}|audio_as_voice)\s*\]\]", re.ASCII
)
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)
_HTML = re.compile(r"</?[A-Za-z][^<>\n]{0,40}>|&nbsp;")
# A model that sees labelled messages begins its own with a label now and then (case heartbeat-reply-03).
_LABEL = re.compile(r"\A\[[^\[\]\n]{1,64}\]:?\s*")
_STOPS = re.compile(rf"(?<={HEARTBEAT_OK})[。！？…]{{1,4}}\Z")
_GLUED = re.compile(rf"\A{NO_REPLY}(?!\s|_|\Z)[:\-–—.,*`：。，]*\s*|\A{NO_REPLY}\s*[:\-–—]+\s*")

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


def _is_only_tokens(text: str) -> bool:
    """Return whether a text begins with a token, and nothing but tokens in it is a word."""
    rest = text.replace(NO_REPLY, "").replace(HEARTBEAT_OK, "")
    return _begins_as_token(text) and not any(map(str.isalnum, rest))


def _strip_no_reply(text: str) -> str:
    """Drop a NO_REPLY on a line of its own at either end, or glued to the text there (spec NR-2, NR-3)."""
    if NO_REPLY.casefold() not in text.casefold():
        return text
    lines = text.strip(_BLANK).split("\n")
    while lines and _is_token(lines[0], NO_REPLY):
        lines = lines[1:]
    while lines and _is_token(lines[-1], NO_REPLY):
        lines = lines[:-1]
    # "NO_REPLY is the word for silence" is a sentence; "NO_REPLY: nothing new" and "NO_REPLYHello" are slips.
    kept = _GLUED.sub("", "\n".join(lines).strip(_BLANK))
    if kept.endswith((f" {NO_REPLY}", f"*{NO_REPLY}")) and not _in_code(kept):
        # "Sure! NO_REPLY": the words were meant for somebody; stars at the token are its own.
        kept = kept[: -len(NO_REPLY)].rstrip("*").rstrip(_BLANK)
    return kept


def _in_code(text: str) -> bool:
    """Return whether the end of the text is inside a fence."""
    return len(_FENCE.findall(text)) % 2 == 1


def _is_code(text: str, found: re.Match[str]) -> bool:
    """Return whether what was found is inline code of a sentence, and not a whole line of its own."""
    before, after = text[: found.start()].rpartition("\n")[2], text[found.end() :].partition("\n")[0]
    is_line = "\n" in found.group().rstrip("\n`") or not (before + after).strip(_BLANK)
    return "`" in found.group() and not is_line


def _strip_ok(text: str, *, spares_code: bool = False) -> str | None:
    """Return the text without HEARTBEAT_OK at its start or end, None if it has none there."""
    if HEARTBEAT_OK not in text:
        return None
    first = _OK_FIRST.match(text)
    rest = text[first.end() :] if first is not None and not (spares_code and _is_code(text, first)) else text
    last = _OK_LAST.search(rest)
    if last is not None and not _in_code(rest[: last.start()]) and not (spares_code and _is_code(rest, last)):
        rest = rest[: last.start()]
    return None if rest == text else rest.strip(_BLANK)


def _alert(text: str, ack_max_chars: int) -> str:
    """Return what of a heartbeat's reply is an alert, without tokens; few words beside one are none.

    A token on a line of its own is none of the words around it, wherever it stands (heartbeat-reply-05).
    """
    text = _STOPS.sub("", text)
    plain = _LABEL.sub("", _HTML.sub(" ", text).strip(_BLANK))
    rest = _strip_ok(plain)
    kept = _strip_no_reply(plain if rest is None else rest)
    if (rest is not None or kept != plain) and len(kept) <= ack_max_chars:
        return ""
    bare = text if rest is None else _strip_ok(text)
    return _without_token_lines(_strip_no_reply(kept if bare is None else bare))


def _without_token_lines(text: str) -> str:
    if HEARTBEAT_OK not in text and NO_REPLY not in text:
        return text
    kept: list[str] = []
    fenced = False
    for line in text.split("\n"):
        fenced ^= _FENCE.match(line) is not None
        if fenced or not (_is_token(line, HEARTBEAT_OK) or _is_token(line, NO_REPLY)):
            kept.append(line)
    return "\n".join(kept).strip(_BLANK)


def visible(text: str, kind: Kind, *, ack_max_chars: int = ACK_MAX_CHARS) -> str:
    """Return what a person should see of a final reply; "" for nothing (agent C, spec NR-1..NR-5, HB-24)."""
    # A lone surrogate from the model's JSON can't be sent to any platform.
    shown = text.encode("utf-8", "replace").decode().replace("\0", "").strip(_BLANK)
    if _is_token(shown, NO_REPLY) or _ENVELOPE.match(shown) or _is_token(shown, HEARTBEAT_OK):
        return ""
    if _is_only_tokens(shown):
        return ""
    if kind is Kind.HEARTBEAT:
        shown = _alert(shown, ack_max_chars)
    else:
        shown = _strip_no_reply(shown)
        rest = _strip_ok(shown, spares_code=True)
        shown = shown if rest is None else rest
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
_HELD_START = re.compile(r"\A(?:```\w*(?:\n|\Z)|<final>|[`*_\"'\s\ufeff(\[])*", re.ASCII)
_MARKS = "`*_\"' \t\n\r\f\v"
_OPENING = _MARKS + "(["
_ENDING = _MARKS + ".!)]"
_WORD = "_" + string.ascii_letters
_MOST_HELD = 256
"""Characters of marks after which no token is waited for any more."""

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)
_THINKING = re.compile(r"<think(?:ing)?>")
_CLOSING = len("</thinking>") - 1
"""Characters of a thought that may be the beginning of its end."""

_ANGLE = re.compile(r"<[^<>\n]{0,24}\Z|\[{1,2}[^\[\]\n]{0,90}\]?\Z")


@dataclass(slots=True)
class Gate:
    """Lets through, while a reply streams, only what is sure to be part of the final visible text.

    Keeps what it holds back and nothing else, so a chunk costs the same at the end of a long reply.
    """

    _held: str = ""
    _before: str = ""
    _begun: bool = False
    _shut: bool = False

    def feed(self, chunk: str) -> str:
        """Take more raw text; return what may be shown now."""
        if self._shut:
            return ""
        text, thought = _without_thoughts(self._held + chunk)
        text, self._shut = _without_markup(text)
        safe = len(text) if not (angle := _ANGLE.search(text)) else angle.start()
        if not self._begun:
            text, safe = _lstripped(text, safe)
            if _begins_as_token(text[:safe]):
                self._shut = True
                return ""
            if _may_become_token(text[:safe]):
                safe = 0
        safe = _held_from(text[:safe], self._before)
        self._begun = self._begun or safe > 0
        self._before = _last_word(self._before + text[:safe])
        self._held = text[safe:] + thought
        return text[:safe]


def _without_thoughts(raw: str) -> tuple[str, str]:
    """Return the text without reasoning, and what must be kept of a thought that has not ended."""
    if "<think" not in raw:
        return raw, ""
    text = _THOUGHT.sub("", raw)
    begins = _THINKING.search(text)
    if begins is None:
        return text, ""
    return text[: begins.start()], begins.group() + text[begins.end() :][-_CLOSING:]


def _without_markup(text: str) -> tuple[str, bool]:
    """Return the text without reply tags, up to a printed tool call; and whether there was one."""
    call = _MARKUP.search(text) if "<" in text or "[" in text else None
    if call is not None:
        text = text[: call.start()]
    return _REPLY_TAG.sub("", text) if "[[" in text else text, call is not None


def _lstripped(text: str, safe: int) -> tuple[str, int]:
    """Drop blanks at the beginning, which nobody sees."""
    bare = text.lstrip(_BLANK)
    return bare, max(0, safe - (len(text) - len(bare)))


def _begins_as_token(text: str) -> bool:
    return any(_head(text).startswith(token) for token in _TOKENS)


def _may_become_token(text: str) -> bool:
    """Return whether a beginning is still too little to tell it from a token."""
    head = _head(text)
    may = any(token.startswith(head) for token in _TOKENS) or _may_be_envelope(text)
    return may and len(text) <= _MOST_HELD


def _head(text: str) -> str:
    """Return the text behind the marks that may stand before a token; only for comparing."""
    return text[_HELD_START.match(text).end() :].casefold()  # type: ignore[union-attr]  # it matches the empty text


def _may_be_envelope(text: str) -> bool:
    """Return whether `{"action": "NO_REPLY"}` begins, or is, like this (spec NR-4)."""
    return text.startswith("{") and '{"action":"NO_REPLY"}'.startswith("".join(text.split()))


def _held_from(text: str, before: str) -> int:
    """Return where a tail begins that may still become a token at the end of the reply.

    `before` is what `_last_word` keeps of the text in front of it.
    """
    whole = before + text
    at, word = _tail(whole)
    if word and not any(token.startswith(word) for token in _TOKENS):
        # Only the blanks behind an ordinary word wait, since `visible` trims them at the end.
        return len(text.rstrip(_BLANK))
    if len(whole) - at > _MOST_HELD:
        return len(text)
    while at > 0 and (further := _tail(whole[:at]))[1] in _TOKENS:  # one token behind another
        at = further[0]
    return max(0, at - len(before))


def _tail(text: str) -> tuple[int, str]:
    """Return where the last word with the marks around it begins, and the word."""
    at = len(text.rstrip(_ENDING).rstrip(_WORD).rstrip(_OPENING))
    return at, text[at:].strip(_OPENING + _ENDING).casefold()


def _last_word(text: str) -> str:
    """Return the word at the end of a text, as much of it as matters, and a dot for marks behind it."""
    bare = text.rstrip(_ENDING)
    word = bare[len(bare.rstrip(_WORD)) :][-len(HEARTBEAT_OK) - 1 :]
    return word if len(bare) == len(text) else f"{word}."
