"""English words without their endings: M. F. Porter, An algorithm for suffix stripping, 1980.

One rule is from his later revision: `weekly` loses its ending as `hourly` does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

_CONSONANT = r"(?:[^aeiouy]|(?<![a-z])y|(?<=[aeiou])y)"
_VOWEL = r"(?:[aeiou]|(?<![aeiou])(?<=[a-z])y)"
_SEQUENCE = f"{_CONSONANT}*{_VOWEL}+{_CONSONANT}+"

_HAS_VOWEL = re.compile(f"{_CONSONANT}*{_VOWEL}")
_SOME = re.compile(_SEQUENCE)
_MORE = re.compile(f"{_SEQUENCE}{_VOWEL}+{_CONSONANT}+")
_JUST_ONE = re.compile(f"{_SEQUENCE}{_VOWEL}*$")
_SHORT = re.compile(f"(?:.*{_CONSONANT})?{_CONSONANT}{_VOWEL}(?![wxy]){_CONSONANT}$")
_LI = re.compile(r"[cdeghkmnrt]li$")
_DOUBLED = re.compile(r"(?:.*)([^aeiouylsz])\1$")


def _pairs(text: str) -> Mapping[str, str]:
    return dict(pair.split(":") for pair in text.split())


_STEP_2 = _pairs(
    "ational:ate tional:tion enci:ence anci:ance izer:ize abli:able alli:al entli:ent eli:e ousli:ous "
    "ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous "
    "aliti:al iviti:ive biliti:ble"
)
_STEP_3 = _pairs("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
_STEP_4: Sequence[str] = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("sion", "tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return what the forms of a word of small letters a to z have in common; it need not be a word."""
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _y, _long, _longer, _last, _tidy):
        word = step(word)
    return word


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _SOME.match(word[:-3]) else word
    for ending in ("ed", "ing"):
        base = word.removesuffix(ending)
        if base != word:
            return _mended(base) if _HAS_VOWEL.match(base) else word
    return word


def _mended(base: str) -> str:
    """Give back what an ending took: `hop(p)ing`, `fil(e)ing`."""
    if base.endswith(("at", "bl", "iz")) or (_JUST_ONE.match(base) and _SHORT.match(base)):
        return base + "e"
    return base[:-1] if _DOUBLED.match(base) else base


def _y(word: str) -> str:
    return f"{word[:-1]}i" if word.endswith("y") and _HAS_VOWEL.match(word[:-1]) else word


def _long(word: str) -> str:
    shorter = _replaced(word, _STEP_2)
    if shorter == word and _LI.search(word) and _SOME.match(word[:-2]):
        return word[:-2]
    return shorter


def _longer(word: str) -> str:
    return _replaced(word, _STEP_3)


def _replaced(word: str, endings: Mapping[str, str]) -> str:
    ending = max((one for one in endings if word.endswith(one)), key=len, default="")
    base = word.removesuffix(ending)
    return base + endings[ending] if ending and _SOME.match(base) else word


def _last(word: str) -> str:
    ending = max((one for one in _STEP_4 if word.endswith(one)), key=len, default="")
    if ending in ("sion", "tion"):
        ending = "ion"
    base = word.removesuffix(ending)
    return base if ending and _MORE.match(base) else word


def _tidy(word: str) -> str:
    base = word[:-1]
    if word.endswith("e") and (_MORE.match(base) or (_SOME.match(base) and not _SHORT.match(base))):
        word = base
    return word[:-1] if word.endswith("ll") and _MORE.match(word[:-1]) else word
