"""Text as the terms that it is found by: stems of words, and pairs of signs where no blanks divide words.

The same terms go into both databases, so that both find the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from gateway.memory.stem import stem

VERSION = 1
"""Raise it when the terms of a text change: what was indexed by others is then indexed again."""

MAX_TERMS = 32
"""Terms of a query; those behind add nothing but time."""

_LONGEST = 64

# Han, kana, Hangul; and Thai, Lao, Burmese and Khmer, which write no blanks either.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W_{_DENSE}]"
_TOKEN = re.compile(rf"(?P<dense>[{_DENSE}]+)|{_LETTER}+(?:[-_./:@+']{_LETTER}+)*")
_PART = re.compile(rf"{_LETTER}+")
_POSSESSIVE = re.compile(r"['’]s\b")
_ACCENT = re.compile("[\u0300-\u036f]")
_SMALL_LETTERS = re.compile("[a-z]+")
_ONE_SIGN = re.compile(f"[{_DENSE}]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")

_COMMON = """
a about all am an and any are as at be been but by can cannot could did do does for from had has have he her
him his how i if in into is it its me my no not of on or our should so some someone that the their them then
there these they this to us was we were what when where which who why will with would you your
的 了 是 吗 呢 要 我 你 他 她 在 有 和 就 都 也 很 吧 啊 什么 时候 么时 为什 怎么 么样 多少 应该 哪些 哪里
哪个 几个 是不 不是 有没 没有 可以 我们 你们 他们 一下 这个 那个 です ます した から
"""
_STOP = frozenset(map(stem, _COMMON.split()))
"""Terms that a query leaves out."""

_STOP_SIGNS = frozenset(sign for term in _STOP for sign in term if _ONE_SIGN.match(sign))


def terms(text: str) -> list[str]:
    """Return the terms of a text, each as often as it occurs.

    A run of signs gives each pair of neighbours and its last sign alone, so that every sign begins a term.
    `E-07` gives `e`, `07` and `e07`: a code is found as a whole before its parts are.
    """
    return [term for token in _tokens(text) for term in _of(token)]


def query(text: str) -> list[str]:
    """Return the different terms to look for; words that every text has only if there are no others.

    A sign that stands alone means every term that begins with it.
    """
    found = dict.fromkeys(term for token in _tokens(text) for term in _asked(token))
    telling = [term for term in found if term not in _STOP and not _is_letter(term)]
    return (telling or [*found])[:MAX_TERMS]


def begins_others(term: str) -> bool:
    """Return whether a term of a query is a sign that stands for every pair that begins with it."""
    return len(term) == 1 and _ONE_SIGN.match(term) is not None


def is_pair(term: str) -> bool:
    """Return whether a term is a pair of signs: a word, a part of one, or the seam between two."""
    return len(term) == 2 and _ONE_SIGN.match(term) is not None


def loose(missing: Iterable[str]) -> list[str]:
    """Return the different Han signs of the pairs among terms that no text has.

    Words that mean the like often share a sign: `车辆` is told of as `汽车`, `回答` as `回复`. Signs of other
    scripts mean nothing alone.
    """
    signs = dict.fromkeys(sign for term in missing if is_pair(term) for sign in term if _HAN.match(sign))
    return [sign for sign in signs if sign not in _STOP_SIGNS]


def _tokens(text: str) -> Iterator[re.Match[str]]:
    plain = _POSSESSIVE.sub("", unicodedata.normalize("NFKC", text).casefold())
    return _TOKEN.finditer(plain)


def _of(token: re.Match[str]) -> list[str]:
    run = token[0]
    if token["dense"]:
        return [run[at : at + 2] for at in range(len(run))]
    parts = _PART.findall(run)
    found = [_stemmed(part) for part in parts]
    return found if len(parts) == 1 else [*found, "".join(parts)[:_LONGEST]]


def _asked(token: re.Match[str]) -> Sequence[str]:
    found = _of(token)
    return found[:-1] if token["dense"] and len(found) > 1 else found


def _stemmed(word: str) -> str:
    if not word.isascii():
        word = _ACCENT.sub("", unicodedata.normalize("NFD", word))
    return stem(word) if _SMALL_LETTERS.fullmatch(word) else word[:_LONGEST]


def _is_letter(term: str) -> bool:
    return len(term) == 1 and term.isascii()
