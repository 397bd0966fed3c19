"""The documentation tells everything there is, and nothing that there is not."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from adapters.web import Web
from adapters.web.page import assets
from gateway import cli, config
from gateway.clock import SystemClock
from gateway.config import HttpSettings, Settings
from gateway.control import RemoteControl
from gateway.feed import Feed
from tests.fakes.web_face import Core

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config.example.toml"
KEYS = {name: field for name, field in config.fields() if "." in name}
LISTS = [name for name, _ in config.fields() if "." not in name]
"""Tables of tables, and lists of them: their keys are no setting until somebody adds one."""

MANUAL = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")

CORE = ROOT / "gateway"
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("\n## Modules\n")[2]


def modules(folder: Path) -> set[str]:
    """Return the modules and (with a slash) packages of a folder."""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return files | {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}


PACKAGES = sorted(name for name in modules(CORE) if name.endswith("/"))


def test_the_example_loads_as_it_is_and_changes_nothing() -> None:
    assert config.parse(EXAMPLE.read_text(encoding="utf-8"), {}, ROOT) == Settings()


def uncommented() -> str:
    return re.sub(r"(?m)^# ([a-z_]+ = )", r"\1", EXAMPLE.read_text(encoding="utf-8"))


def test_the_example_shows_every_key_with_its_default() -> None:
    text = uncommented()
    assert config.parse(text, {}, ROOT) == Settings()
    for name in KEYS:
        table, _, key = name.rpartition(".")
        section = text.partition(f"\n[{table}]")[2].partition("\n[")[0]
        assert re.search(rf"(?m)^{key} = ", section), name


@pytest.mark.parametrize("name", KEYS)
def test_the_manual_explains_every_key_with_its_default(name: str) -> None:
    table, _, key = name.rpartition(".")
    section = MANUAL.partition(f"\n## `[{table}]`")[2].partition("\n## ")[0]
    row = re.search(rf"(?m)^\| `{key}` \| `(.*?)` \| \S", section)
    assert row, name
    default = KEYS[name].default
    shown = default.get_secret_value() if hasattr(default, "get_secret_value") else default
    assert row[1] == json.dumps(shown, ensure_ascii=False)


@pytest.mark.parametrize("name", LISTS)
def test_the_example_and_the_manual_show_how_to_add_a_table(name: str) -> None:
    assert re.search(rf"(?m)^# \[\[?{name}", EXAMPLE.read_text(encoding="utf-8"))
    assert re.search(rf"(?m)^## `\[\[?{name}", MANUAL)


def test_the_manual_explains_no_key_that_is_gone() -> None:
    sections = re.findall(r"(?ms)^## `\[([a-z_.]+)\]`\n(.*?)(?=^## |\Z)", MANUAL)
    told = {
        f"{table}.{key}" for table, text in sections for key in re.findall(r"(?m)^\| `([a-z_]+)` \|", text)
    }
    assert told == set(KEYS)


def test_the_manual_lists_the_secrets() -> None:
    for name in config.secrets_set(Settings()):
        assert f"`{name}`" in MANUAL


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_manual_explains_every_command(command: str) -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert re.search(rf"(?m)^\| `crayfish {command}[ `]", text)


@pytest.mark.parametrize(
    "page",
    sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_map_has_a_line_for_every_module_and_package_and_for_nothing_else() -> None:
    assert sorted(re.findall(r"(?m)^\| `([a-z_]+/?)` \| \S", MAP)) == sorted(modules(CORE))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_names_all_that_is_in_a_package(package: str) -> None:
    section = MAP.partition(f"\n### `{package}`\n")[2].partition("\n### ")[0]
    assert set(re.findall(r"`([a-z_]+)`", section)) == modules(CORE / package)


def test_the_manual_explains_every_route_of_the_web_adapter_and_none_that_is_gone() -> None:
    face = Web(
        host="127.0.0.1",
        port=0,
        token="",
        feed=Feed(),
        clock=SystemClock(),
        reads=Core(),
        control=RemoteControl(HttpSettings()),
    )
    pages = assets()
    manual = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    told = re.findall(r"(?m)^### `([A-Z]+) (/[^`]*)`$", manual)
    served = [(route.method, route.path) for route in face._own(pages) if route.path not in pages]
    assert sorted(told) == sorted(served)
    assert all(f"`{path}`" in manual for path in pages)


def test_the_readme_leads_to_every_page_of_the_manual() -> None:
    linked = set(re.findall(r"\]\(docs/([a-z-]+\.md)[)#]", README))
    assert linked == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_the_readme_tells_what_each_extra_brings() -> None:
    wanted = PROJECT["optional-dependencies"].keys() - {"test"}
    assert set(re.findall(r"(?m)^\| `([a-z]+)` \| ", README)) >= wanted
