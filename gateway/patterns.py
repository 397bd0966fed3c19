"""Whether a regular expression of the configuration can be searched in what strangers write; pure."""

from __future__ import annotations

import re
import re._parser as parser  # type: ignore[import-not-found]  # unknown to typeshed
from math import prod
from typing import Any

LONGEST = 200
MOST_PATHS = 10_000
"""Ways to match from one place: with a thousand places, more would hold up everybody (spec IN-18)."""

ENDLESS = 1000
"""What a repetition without an end counts as: the characters that are searched."""


def problem_of(pattern: str) -> str:
    """Return what is wrong with a pattern, with the remedy, "" if nothing is."""
    if len(pattern) > LONGEST:
        return f"is longer than {LONGEST} characters; use several short ones"
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression ({error}); put a backslash before signs that mean themselves"
    if re.compile(pattern).match(""):
        return "matches an empty text, so every message; make a part of it obligatory"
    if _repeats(tree, inside=False):
        return "repeats a repetition, as in (a+)+, which can take for ever; write it without the outer one"
    if _paths(tree) > MOST_PATHS:
        return r"can take too long; use one * or + at most, and {0,9} in place of others, as in \s{0,9}"
    return ""


def literal_of(pattern: str) -> str:
    """Return the longest text that every match of a valid pattern holds as it is, "" if none is sure."""
    tree = parser.parse(pattern)
    if tree.state.flags & re.IGNORECASE:
        return ""
    signs = "".join(chr(value) if sign is parser.LITERAL else "\n" for sign, value in tree)
    return max(signs.split("\n"), key=len)


_REPEATS = (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT)


def _repeats(node: Any, *, inside: bool) -> bool:  # noqa: ANN401 - the parser's tree has no types
    """Return whether what a repetition repeats can itself match in several ways."""
    if isinstance(node, tuple) and node and node[0] in _REPEATS:
        least, most, body = node[1]
        many = most > 1 and least != most
        return (inside and many) or _repeats(body, inside=inside or most > 1)
    if isinstance(node, tuple) and node and node[0] is parser.BRANCH and inside:
        return True
    if isinstance(node, parser.SubPattern | tuple | list):
        return any(_repeats(one, inside=inside) for one in node)
    return False


def _paths(node: Any) -> int:  # noqa: ANN401 - the parser's tree has no types
    """Return an upper bound of the ways in which a pattern without nested repetitions can match."""
    if isinstance(node, tuple) and node and node[0] in _REPEATS:
        least, most, body = node[1]
        return (min(int(most), ENDLESS) - min(int(least), ENDLESS) + 1) * _paths(body)
    if isinstance(node, tuple) and node and node[0] is parser.BRANCH:
        return sum(map(_paths, node[1][1]))
    if isinstance(node, parser.SubPattern | tuple | list):
        return prod(map(_paths, node))
    return 1
