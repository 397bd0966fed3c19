"""What is installed is what was tested."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import gateway

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("==") for line in lines if not line.startswith("#")]
    return {_normal(name): version for name, version in rows}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_pinned_to_a_version_that_the_project_allows() -> None:
    wanted = [
        *PROJECT["dependencies"],
        *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
    ]
    for requirement in map(Requirement, wanted):
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(pins()[_normal(requirement.name)]), requirement


def test_the_pins_hold_nothing_but_names_and_versions() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line) for line in text.splitlines())


def test_what_a_pinned_package_needs_is_pinned_too() -> None:
    pinned = pins()
    for name in pinned:
        for line in metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert _normal(requirement.name) in pinned, f"{name} needs {requirement.name}"


def test_the_changelog_has_a_section_for_what_is_not_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"(?m)^## \[Unreleased\]$", text)
    assert f"## [{gateway.__version__}]" not in text.partition("## [Unreleased]")[0]
