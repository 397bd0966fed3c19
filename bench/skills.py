"""How long it takes to look for 500 skills: the first time, and when nothing has changed.

python bench/skills.py [number]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from gateway.config import SkillSettings  # noqa: E402 - the path comes first
from gateway.skills import Root, Skills  # noqa: E402 - the same

HEAD = """\
---
name: {name}
description: "Does task {at}: reads a file, looks up what is in it, and writes a table. Use it for tables."
license: MIT
allowed-tools: Read Bash(git:*)
metadata: {{"openclaw": {{"emoji": "x", "requires": {{"bins": ["sh"], "env": []}}}}}}
---
"""


def fill(folder: Path, count: int) -> None:
    """Write skills with a body of a page and two scripts each."""
    for at in range(count):
        name = f"task-{at}"
        here = folder / name
        (here / "scripts").mkdir(parents=True)
        (here / "SKILL.md").write_text(HEAD.format(name=name, at=at) + f"# {name}\n" + "Do it well.\n" * 150)
        (here / "scripts" / "a.py").write_text("print(1)\n")


def took(work: Callable[[], object]) -> tuple[float, float]:
    """Return the milliseconds that a call takes, by the clock and of this process alone."""
    clock, own = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - clock) * 1000, (time.process_time() - own) * 1000


def told(what: str, figures: Sequence[tuple[float, float]]) -> None:
    """Print the first and the median of some figures."""
    first, middle = figures[0], sorted(figures)[len(figures) // 2]
    print(
        f"{what:12} first {first[0]:7.2f} ms ({first[1]:7.2f} CPU)  "
        f"median {middle[0]:7.2f} ms ({middle[1]:7.2f} CPU)"
    )


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "skills"
        fill(root, count)

        def fresh() -> Skills:
            return Skills([Root("extra", root)], SkillSettings())

        cold = [took(fresh().snapshot) for _ in range(9)]
        skills = fresh()
        assert sum(skill.eligible for skill in skills.snapshot().skills) == min(count, 500)
        unchanged = [took(skills.snapshot) for _ in range(30)]
        changed = []
        for at in range(9):
            (root / "task-0" / "SKILL.md").write_text(HEAD.format(name="task-0", at=f"new {at}"))
            changed.append(took(skills.snapshot))
        print(f"{count} skills, {len(skills.current.xml)} characters in the prompt")
        told("cold", cold)
        told("unchanged", unchanged)
        told("one changed", changed)


if __name__ == "__main__":
    main()
