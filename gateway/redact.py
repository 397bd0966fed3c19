"""Takes secrets out of texts: those that are known, in each spelling, and what looks like one; pure."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gateway.types import AssistantEntry, Json

SHORTEST = 6
"""A shorter secret would blank out ordinary words, and protects nothing."""

MASK = "***"

_LONGEST_WORD = 4096
"""Signs without a blank that may be one secret; a stream holds back no more of them."""

_CONTEXT = 128
"""Characters in front of a secret that can say that it is one."""

_ENDS_SHOWN = 18
"""From this length on both ends of a secret are shown, to tell which one it was (agent 9)."""


class Span(NamedTuple):
    """A secret in a text, and what stands for it."""

    start: int
    end: int
    mask: str


def mask(secret: str) -> str:
    """Return what stands for a secret: three stars, between its ends if it is long."""
    return f"{secret[:6]}{MASK}{secret[-4:]}" if len(secret) >= _ENDS_SHOWN else MASK


@dataclass(frozen=True, slots=True)
class _Shape:
    """What secrets of a kind look like.

    The pattern's last group is the secret. It is tried only on texts that hold one of the `hints`, in small
    letters; what it finds counts only behind a text that ends as `behind` says. `whole`: not even the ends
    are shown. `mixed`: only if there are letters and digits in it, as there are not in the words that can
    stand in the same place.
    """

    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    behind: re.Pattern[str] | None = None
    whole: bool = False
    mixed: bool = False

    def may_be_in(self, small: str) -> bool:
        # A generator would cost more than what it saves.
        for hint in self.hints:  # noqa: SIM110 - see above
            if hint in small:
                return True
        return False

    def spans(self, text: str, *, spares_examples: bool) -> Iterator[Span]:
        for found in self.pattern.finditer(text):
            secret = found[self.pattern.groups]
            if MASK in secret or (self.mixed and not (_LETTER.search(secret) and _DIGIT.search(secret))):
                continue
            if self.behind and not self.behind.search(
                text, max(0, found.start() - _CONTEXT // 2), found.start()
            ):
                continue
            if spares_examples and _EXAMPLE.search(secret):
                continue
            yield Span(*found.span(self.pattern.groups), MASK if self.whole else mask(secret))


def _shape(hints: str, pattern: str, *, behind: str = "", whole: bool = False, mixed: bool = False) -> _Shape:
    return _Shape(
        tuple(hints.split()),
        re.compile(pattern, re.VERBOSE | re.DOTALL),
        re.compile(behind, re.VERBOSE | re.IGNORECASE) if behind else None,
        whole=whole,
        mixed=mixed,
    )


_LETTER = re.compile(r"[A-Za-z]")
_DIGIT = re.compile(r"[0-9]")

# What stands in documentation and in answers about code where a key will be.
_EXAMPLE = re.compile(
    r"your|\buser(?:name)?:|:pass\b|example|placeholder|change.?me|insert|dummy|sample|replace|redacted|here\b|passw(?:or)?d|secret"
    r"|<[^>]|\$[A-Z{(]|\{\{|x{4}|\.{3}|…|\A[^A-Za-z0-9]*\Z",
    re.IGNORECASE,
)

# Every repetition has an end, or nothing behind it that could fail: strangers write these texts, too.
_SHAPES = (
    # Telegram, in the path of an address and alone.
    _shape("/bot", r"/bot(\d{1,20}:[\w-]+)"),
    _shape(":", r"(\d(?<!\w\d)\d{5,19}:[A-Za-z0-9_-]{30,})"),
    # User and password of an address.
    _shape("://", r"://([^\s/:@]{0,200}:[^\s/]{1,200})@", whole=True),
    # Headers.
    _shape(
        "authorization",
        r"""(?i:authorization)["']?\s{0,3}[:=]\s{0,3}["']?(?:[A-Za-z]{1,20}\s{1,3})?([^\s"'*]{8,})""",
    ),
    _shape("bearer basic", r"(?i:\bbearer|\bbasic)\s{1,3}([\w.~+/=-]{8,})", mixed=True),
    _shape("cookie", r"""(?i:\bcookie)["']?:\s{0,3}["']?([\w-]{1,64}=[^\r\n"']{8,})""", whole=True),
    # What is asked for in an address.
    _shape(
        "=",
        r"""[?&](?i:[a-z_-]{0,20}(?:key|token|secret)|sig|signature|password)=([^&\s"'<>]+)""",
    ),
    # What the vendors begin their keys with.
    _shape(
        "sk- aiza xox xapp- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- hf_ gsk_ tvly- xai- npm_ pypi- "
        "sg. ya29. sk_live_ sk_test_ rk_live_ dop_v1_ age-secret-key-",
        r"""\b(
            sk-(?=[\w-]{0,60}\d)[\w-]{16,} | AIza[\w-]{30,} | xox[a-z]-[\w-]{10,} | xapp-[\w-]{10,}
          | gh[pousr]_[A-Za-z0-9]{30,} | github_pat_\w{30,} | glpat-[\w-]{18,} | hf_[A-Za-z0-9]{30,}
          | gsk_[A-Za-z0-9]{30,} | tvly-[\w-]{16,} | xai-[\w-]{20,} | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{50,}
          | SG\.[\w-]{16,}\.[\w-]{16,} | ya29\.[\w-]{20,} | [sr]k_(?:live|test)_\w{16,} | dop_v1_\w{30,}
          | AGE-SECRET-KEY-1[A-Z0-9]{40,}
        )""",
    ),
    _shape("akia asia", r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b"),
    _shape("eyj", r"\b(eyJ[\w-]{10,400}\.eyJ[\w-]{10,4000}\.[\w-]{10,1000})"),
    # A private key, also one whose end is cut off.
    _shape(
        "-----begin",
        r"""-----BEGIN\ [A-Z0-9\ ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----
            (\s*[A-Za-z0-9+/=:,.\s\\-]{40,}?)
            (?:-----END\ [A-Z0-9\ ]{0,30}PRIVATE\ KEY(?:\ BLOCK)?-----|\Z|(?=[^A-Za-z0-9+/=:,.\s\\-]))""",
        whole=True,
    ),
    # A name that says so, and a value: in JSON and other files, in code, on command lines.
    _shape(
        "key secret token",
        r"""["']\s{0,3}[:=]\s{0,3}["']([^\s"']{8,400})["']""",
        behind=r"(?:api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|secret|(?<!page)(?<!page_)token)\Z",
        mixed=True,
    ),
    _shape(
        "key secret token",
        r"""[:=]\s{0,3}["']?([A-Za-z0-9_/+=~-]{16,400})(?![\w(\[{.])""",
        behind=r"""(?:api[_-]?key|access[_-]?key(?:[_-]id)?|secret[_-]?key|private[_-]?key|secret
            |(?<!page)(?<!page_)token)["']?\s{0,3}\Z""",
        mixed=True,
    ),
    _shape("--", r"--(?i:[a-z_-]{0,30}(?:key|token|secret))\s([A-Za-z0-9_/+=~-]{16,400})", mixed=True),
    _shape(
        "passw passphrase",
        r"""[:=]\s{0,3}["']?([^\s"',;<>(){}\[\]]{6,200})(?![(\[{])""",
        behind=r"""(?:passw(?:or)?d|passphrase)["']?\s{0,3}\Z""",
        whole=True,
        mixed=True,
    ),
)

_PEM = "-----BEGIN "
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_WORD = re.compile(r"[\x21-\x7e]*\Z")
_ENV_LINE = re.compile(r"^([ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*)(\S.*)$", re.MULTILINE)
_SECRET_NAME = re.compile(r"key|token|secret|pass|pwd|auth|cred", re.IGNORECASE)
_HARMLESS = re.compile(r"[A-Za-z]{1,12}|[\d.:]{1,15}")


class Redactor:
    """Replaces the `known` secrets in a text, and whatever has the shape of one."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        long = [one for one in known if len(one) >= SHORTEST]
        self._masks = {form: mask(min(one, form, key=len)) for one in long for form in _spellings(one)}
        # The longest first: a secret that contains another one is replaced as a whole.
        self._spellings = tuple(sorted(self._masks, key=len, reverse=True))
        self._known = re.compile("|".join(map(re.escape, self._spellings)) or r"(?!)")
        self._in_words = tuple(one for one in self._spellings if not re.fullmatch(r"[\x21-\x7e]+", one))

    def __call__(self, text: str) -> str:
        """Return a text for the log, or a tool's result, with a mask for each secret."""
        return _masked(text, self.spans(text))

    def reply(self, text: str) -> str:
        """Return a text for people, in which examples with made-up keys stay as they are."""
        return _masked(text, self.spans(text, spares_examples=True))

    def known(self, text: str) -> str:
        """Return a text without the known secrets; what only looks like one stays."""
        return self._known.sub(lambda found: self._masks[found[0]], text) if self.is_in(text) else text

    def is_in(self, text: str) -> bool:
        """Return whether a text holds a known secret."""
        return any(one in text for one in self._spellings)

    def entry(self, entry: AssistantEntry) -> AssistantEntry:
        """Return what a model said, as it may be stored, run and shown.

        In the arguments of tools only known secrets are replaced: what a person has written or read stays
        as it was meant. A thought that tells a secret can't be sent back, for it is signed.
        """
        said, thought = self.reply(entry.text), self.reply(entry.reasoning)
        calls, state = entry.calls, entry.state
        if self._spellings:
            calls = tuple(
                call if (args := self._everywhere(call.args)) == call.args else replace(call, args=args)
                for call in calls
            )
            state = state if self._everywhere(state) == state else {}
        return replace(entry, text=said, reasoning=thought, calls=calls, state=state)

    def stream(self) -> Stream:
        """Return what does for a text in pieces what `reply` does for a whole one."""
        return Stream(self)

    def spans(self, text: str, *, spares_examples: bool = False) -> Sequence[Span]:
        """Return the secrets in the order in which they begin; they may overlap."""
        found = (
            [Span(*one.span(), self._masks[one[0]]) for one in self._known.finditer(text)]
            if self.is_in(text)
            else []
        )
        small = text.lower()
        for shape in _SHAPES:
            if shape.may_be_in(small):
                found += shape.spans(text, spares_examples=spares_examples)
        return sorted(found) if len(found) > 1 else found

    def waits_from(self, text: str) -> int:
        """Return where the part of a text begins that may become a secret when more comes."""
        begins = _WORD.search(text, max(0, len(text) - _LONGEST_WORD)).start()  # type: ignore[union-attr]  # it matches the empty text
        for one in self._in_words:
            tail = max(0, len(text) - len(one) + 1)
            begins = min([begins, *(at for at in range(tail, len(text)) if one.startswith(text[at:]))])
        key = text.rfind(_PEM)
        if key >= 0 and _PEM_END.search(text, key) is None:
            begins = min(begins, key)
        return begins

    def _everywhere(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.known(value)
        if isinstance(value, dict):
            return {key: self._everywhere(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._everywhere(one) for one in value]
        return value


@dataclass(slots=True)
class Stream:
    """Lets through, while a text comes, what surely is no part of a secret."""

    redactor: Redactor
    _text: str = ""
    _through: int = 0

    def feed(self, chunk: str) -> str:
        """Take more text; return what may be shown now."""
        self._text += chunk
        until = self.redactor.waits_from(self._text)
        if until <= self._through:
            return ""
        out, at = [], self._through
        for start, end, stars in self.redactor.spans(self._text, spares_examples=True):
            if start >= until:
                break
            if end > until:
                until = max(at, start)
                break
            if start >= at:
                out += [self._text[at:start], stars]
            at = max(at, end)
        out.append(self._text[at:until])
        self._through = max(at, until)
        dropped = max(0, self._through - _CONTEXT)
        self._text, self._through = self._text[dropped:], self._through - dropped
        return "".join(out)


def _masked(text: str, spans: Sequence[Span]) -> str:
    """Replace spans in the order in which they begin; of those that overlap the first counts."""
    if not spans:
        return text
    out, at = [], 0
    for start, end, stars in spans:
        if start >= at:
            out += [text[at:start], stars]
        at = max(at, end)
    return "".join([*out, text[at:]])


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    yield urllib.parse.quote(secret, safe="")
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    # Of a bot token only what is behind its number is secret, and stands alone now and then.
    _, colon, rest = secret.partition(":")
    if colon and len(rest) >= _ENDS_SHOWN:
        yield rest


def secrets_in(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of environment variables whose names say that they are secret."""
    return tuple(
        value for name, value in env.items() if re.search(r"(?i)(^|_)(KEY|TOKEN|SECRET)$|PASSWORD$", name)
    )


def values_hidden(text: str) -> str:
    """Return the text of an `.env` file without its values, but for those that are hardly secrets."""

    def hide(line: re.Match[str]) -> str:
        value = line[3].strip().strip("\"'")
        is_harmless = _HARMLESS.fullmatch(value) and not _SECRET_NAME.search(line[2])
        return line[0] if is_harmless else f"{line[1]}{MASK}"

    return _ENV_LINE.sub(hide, text)
