"""What a question about a call looks like before and after it was answered, in Markdown; pure."""

from __future__ import annotations

import re

MAX_DETAIL = 2_500
"""Characters of what would be done that are shown; the decision rests on all of it."""


_MARKUP = str.maketrans("", "", "`*[]<>")


def asked(title: str, detail: str, note: str, short: str, *, has_rule: bool, minutes: float) -> str:
    """Return a question; `short` are the letters of its id that are enough to answer it.

    The lines of the note become paragraphs below the block, which a page may cut at its edge. They may
    quote a word of the command, so signs that would be markup are left out.
    """
    always = f", `/approve {short} always`" if has_rule else ""
    how = f"`/approve {short}`{always} or `/deny {short}`, within {minutes:.0f} minutes."
    notes = note.translate(_MARKUP).splitlines()
    return "\n\n".join([f"**May I do this?** {title}", _fenced(detail), *notes, how])


def answered(said: str, title: str, detail: str) -> str:
    """Return a question that is open no more; its first line is all that others need."""
    return f"**{said}:** {title}\n\n{_fenced(detail)}"


def _fenced(detail: str) -> str:
    if len(detail) > MAX_DETAIL:
        detail = f"{detail[:MAX_DETAIL]}\n… {len(detail) - MAX_DETAIL} characters more"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", detail)), default=0))
    return f"{fence}\n{detail}\n{fence}"
