"""A new skill to begin with, which works as it is."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.errors import ConfigError
from gateway.skills.scan import FILE

_DOCUMENT = """\
---
name: {name}
description: {description}
version: 0.1.0
---

# {title}

Use this skill when somebody asks for what the description says.

## Steps

1. Run `python3 scripts/{script}.py TEXT` in this skill's folder. It prints one JSON object:
   `{{"text": …, "words": …, "characters": …}}`.
2. Tell the person the numbers in one sentence.

If the script prints `{{"error": …}}`, say what it says and stop.
"""

_SCRIPT = '''\
"""Count the words and characters of a text; prints one JSON object."""

import json
import sys


def main() -> int:
    """Answer for the text in the arguments."""
    text = " ".join(sys.argv[1:]).strip()
    if not text:
        print(json.dumps({{"error": "give a text, such as: python3 {script}.py hello world"}}))
        return 2
    found = {{"text": text, "words": len(text.split()), "characters": len(text)}}
    print(json.dumps(found, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''


def create(folder: Path, name: str, description: str = "") -> Path:
    """Write a skill into `folder / name` and return that. Raises: ConfigError."""
    if len(name) > 64 or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ConfigError(
            f"{name[:80]!r} is no name for a skill: small letters, digits and single dashes, at most 64"
        )
    described = (
        " ".join(description.split())
        or "Counts the words and characters of a text. Use it when asked how long a text is."
    )
    script = name.replace("-", "_")
    here = folder / name
    try:
        (here / "scripts").mkdir(parents=True)
        title = name.replace("-", " ").capitalize()
        quoted = '"' + described.replace("\\", "\\\\").replace('"', '\\"') + '"'
        (here / FILE).write_text(
            _DOCUMENT.format(name=name, description=quoted, title=title, script=script), encoding="utf-8"
        )
        program = here / "scripts" / f"{script}.py"
        program.write_text(_SCRIPT.format(script=script), encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"{here} is there already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"{here} can't be written ({(error.strerror or str(error)).lower()})") from error
    return here
