#!/usr/bin/env python3
"""Drafts, checks and installs a skill: a folder with SKILL.md and scripts."""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[1] / "assets"
MAX_FILES = 200
MAX_BYTES = 1_000_000
MAX_LINES = 500
ONE_LINE = 160
"""Characters of a description that every conversation pays for; the standard allows 1,024."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KEYS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
_SPECIAL = re.compile(r"[\[\]{}>|*&!%@`,?#-]|.*(: | #)|.*:$")
"""Plain values that YAML would take for something else."""

_SECRET = re.compile(
    r"sk-[\w-]{20,}|xox[abp]-[\w-]{10,}|xapp-[\w-]{10,}|gh[pous]_\w{30,}|AKIA[0-9A-Z]{16}|\d{8,10}:[\w-]{35}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_HOST = re.compile(r"https?://([\w.-]+\.\w+)")
_VARIABLE = re.compile(r"""(?:environ(?:\.get\(|\[)|getenv\()\s*["'](\w+)""")


class Trouble(Exception):
    """What keeps a skill from being made or installed; the text is for the person."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong with a skill, what it could reach, and a digest of all of it."""

    problems: Sequence[str]
    scripts: Sequence[str]
    hosts: Sequence[str]
    variables: Sequence[str]
    digest: str


def main() -> None:
    arguments = _arguments()
    try:
        sys.exit(arguments.act(arguments))
    except Trouble as trouble:
        sys.exit(_told(str(trouble)))
    except OSError as error:
        sys.exit(_told(f"{error.filename}: {error.strerror}"))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Draft, check and install a skill.")
    acts = parser.add_subparsers(required=True, metavar="new|check|install")
    new = acts.add_parser("new", help="draft a skill in WORKSPACE/drafts")
    new.add_argument("name", help="1-64 of a-z, 0-9 and single hyphens")
    new.add_argument("--workspace", type=Path, required=True, help="full path of the workspace")
    new.add_argument("--description", required=True, help="one line: what it does, and when to use it")
    new.add_argument("--address", default="https://example.com/", help="the address that it asks")
    new.set_defaults(act=_new)
    check = acts.add_parser("check", help="say what is wrong with a skill, and what it can reach")
    check.add_argument("folder", type=Path, help="full path of the skill")
    check.add_argument("--run", action="store_true", help="also run each script with --help")
    check.set_defaults(act=_check)
    install = acts.add_parser("install", help="move a draft to WORKSPACE/skills")
    install.add_argument("folder", type=Path, help="full path of the draft")
    install.add_argument("--workspace", type=Path, required=True, help="full path of the workspace")
    install.add_argument(
        "--digest", required=True, help="what check printed, so that only what was seen is installed"
    )
    install.add_argument(
        "--replace", action="store_true", help="keep the skill of that name that is there as a draft"
    )
    install.set_defaults(act=_install)
    return parser.parse_args()


def _new(arguments: argparse.Namespace) -> int:
    name, description = arguments.name, " ".join(arguments.description.split())
    if not (_NAME.fullmatch(name) and len(name) <= 64):
        raise Trouble(f"{name!r} must be 1-64 of a-z, 0-9 and single hyphens between them")
    if not 1 <= len(description) <= ONE_LINE:
        raise Trouble(f"the description has {len(description)} characters; 1 to {ONE_LINE} are good")
    if not re.fullmatch(r"https?://[^\s\"'\\<>{}]+", arguments.address):
        raise Trouble(f"{arguments.address!r} is no http:// or https:// address")
    folder = _workspace(arguments.workspace) / "drafts" / name
    if folder.exists():
        raise Trouble(f"{folder} is there already: change that, or take another name")
    script = f"{name.replace('-', '_')}.py"
    values = {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "description": json.dumps(description, ensure_ascii=False),
        "address": arguments.address,
        "script": script,
        "variable": f"{name.replace('-', '_').upper()}_URL",
    }
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(_filled("SKILL.template.md", values), encoding="utf-8")
    (folder / "scripts" / script).write_text(_filled("script.py.txt", values), encoding="utf-8")
    (folder / "scripts" / script).chmod(0o755)
    print(f"drafted {folder}: edit SKILL.md and scripts/{script}, then check it")
    return 0


def _filled(name: str, values: dict[str, str]) -> str:
    text = (ASSETS / name).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


def _check(arguments: argparse.Namespace) -> int:
    folder = arguments.folder.expanduser().resolve()
    checked = _look(folder)
    problems = [*checked.problems, *(_helpless(folder, checked.scripts) if arguments.run else [])]
    for title, found in (
        ("scripts", checked.scripts),
        ("asks hosts", checked.hosts),
        ("reads variables", checked.variables),
    ):
        print(f"{title}: {', '.join(found) or 'none'}")
    print(f"digest: {checked.digest}")
    for problem in problems:
        _told(problem)
    return 2 if problems else 0


def _install(arguments: argparse.Namespace) -> int:
    draft = arguments.folder.expanduser().resolve()
    checked = _look(draft)
    if checked.problems:
        raise Trouble(f"it is not ready: {'; '.join(checked.problems)}")
    if arguments.digest != checked.digest:
        raise Trouble("it was changed after it was checked: check it and ask again")
    workspace = _workspace(arguments.workspace)
    target = workspace / "skills" / draft.name
    target.parent.mkdir(exist_ok=True)
    if target.exists():
        if not arguments.replace:
            raise Trouble(f"there is a skill called {draft.name}: with --replace it is kept as a draft")
        target.rename(_free(workspace / "drafts", f"{draft.name}-old"))
    draft.rename(target)
    print(f"installed {target}; it is there from the next message on")
    return 0


def _workspace(path: Path) -> Path:
    workspace = path.expanduser().resolve()
    if not workspace.is_dir():
        raise Trouble(f"{workspace} is no folder; give the full path of the workspace")
    return workspace


def _free(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    return next(path for number in range(1, 10_000) if not (path := folder / f"{name}-{number}").exists())


def _look(folder: Path) -> Checked:
    """Return what there is to know about a skill. Raises: Trouble if there is none."""
    if not (folder / "SKILL.md").is_file():
        raise Trouble(f"{folder} has no SKILL.md; give the full path of the skill's folder")
    files = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    problems = list(_file_problems(folder, files))
    if problems:  # links and huge files are not looked into
        return Checked(problems, (), (), (), "none")
    texts = {path: path.read_bytes().decode("utf-8", "replace") for path in files if path.is_file()}
    scripts = [path for path in texts if path.parent.name in {"scripts", "tools"} or os.access(path, os.X_OK)]
    problems += _manifest_problems(folder, texts[folder / "SKILL.md"])
    for path in scripts:
        problems += _script_problems(path, path.relative_to(folder).as_posix(), texts[path])
    problems += [
        f"{path.name} holds what looks like a secret" for path in texts if _SECRET.search(texts[path])
    ]
    everything = "\n".join(texts.values())
    return Checked(
        problems=problems,
        scripts=[path.relative_to(folder).as_posix() for path in scripts],
        hosts=sorted({host.lower() for host in _HOST.findall(everything)}),
        variables=sorted({name for path in scripts for name in _VARIABLE.findall(texts[path])}),
        digest=_digest(folder, list(texts)),
    )


def _digest(folder: Path, files: Sequence[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        name = path.relative_to(folder).as_posix()
        whole.update(f"{name}\0{os.access(path, os.X_OK)}\0{path.stat().st_size}\0".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()[:32]


def _file_problems(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    if len(files) > MAX_FILES:
        yield f"it has more than {MAX_FILES} files"
    for path in files:
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield f"{name} is a link"
        elif path.is_file() and path.stat().st_size > MAX_BYTES:
            yield f"{name} is larger than {MAX_BYTES // 1_000_000} MB"
        elif path.name == "SKILL.md" and path.parent != folder:
            yield f"{name}: a skill has one SKILL.md, at its top"


def _manifest_problems(folder: Path, text: str) -> Iterator[str]:
    found = re.match(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    if not found:
        yield "SKILL.md must begin with front matter between two lines of ---"
        return
    values: dict[str, str] = {}
    for line in found[1].split("\n"):
        entry = re.fullmatch(r"([a-z-]+):(?: (.*))?", line)
        if entry and entry[1] in _KEYS and entry[1] not in values:
            values[entry[1]] = (entry[2] or "").strip()
        elif not (line.startswith("  ") and list(values)[-1:] == ["metadata"]):
            yield f"the front matter has a line that not every reader takes: {line!r}"
    yield from _value_problems(folder, values)
    body = found[2]
    if not body.strip():
        yield "SKILL.md says nothing below its front matter"
    if body.count("\n") >= MAX_LINES:
        yield f"SKILL.md has more than {MAX_LINES} lines: move details to references/"
    for name in sorted(set(re.findall(r"\{baseDir\}/([\w./-]*\w)", body))):
        if not (folder / name).exists():
            yield f"SKILL.md names {{baseDir}}/{name}, which is not there"


def _value_problems(folder: Path, values: dict[str, str]) -> Iterator[str]:
    plain = {key: _plain(value) for key, value in values.items() if key != "metadata"}
    for key, value in plain.items():
        if value is None:
            yield f"{key} must be plain, or in double quotes: {values[key]!r}"
    name, description = plain.get("name"), plain.get("description")
    if name != folder.name or not _NAME.fullmatch(name) or len(name) > 64:
        yield f"name must be the folder's ({folder.name}): 1-64 of a-z, 0-9 and single hyphens"
    if not description or len(description) > ONE_LINE:
        yield f"description must have 1 to {ONE_LINE} characters and say what it does, and when to use it"
    if len(plain.get("compatibility") or "") > 500:
        yield "compatibility has more than 500 characters"


def _plain(value: str) -> str | None:
    """Return what a one-line YAML value means, None if it is none that every reader takes."""
    if value.startswith('"'):
        try:
            return str(json.loads(value))
        except ValueError:
            return None
    return None if not value or value.startswith("'") or _SPECIAL.match(value) else value


def _script_problems(path: Path, name: str, text: str) -> Iterator[str]:
    if text.startswith("#!") and not os.access(path, os.X_OK):
        yield f"{name} has no run bit: chmod +x"
    if path.suffix == ".py":
        try:
            ast.parse(text)
        except (SyntaxError, ValueError) as error:
            yield f"{name} is no Python: {error}"
    if path.suffix == ".sh" and (bash := shutil.which("bash")):
        found = subprocess.run([bash, "-n", path], capture_output=True, text=True, timeout=10, check=False)
        if found.returncode:
            yield f"{name} is no shell script: {found.stderr.strip()[:200]}"


def _helpless(folder: Path, scripts: Sequence[str]) -> Iterator[str]:
    """Yield the scripts that do not answer --help, run as the gateway would run them."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    for name in scripts:
        path = folder / name
        command = [sys.executable, path] if path.suffix == ".py" else [path]
        if not (path.suffix == ".py" or os.access(path, os.X_OK)) or "__main__" not in path.read_text(
            errors="replace"
        ):
            continue
        try:
            found = subprocess.run(
                [*command, "--help"], env=kept, cwd=path.parent, capture_output=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield f"{name} --help does not work: {error}"
            continue
        if found.returncode or not found.stdout.strip():
            yield f"{name} --help ends with {found.returncode}: {found.stderr.decode(errors='replace').strip()[-300:]}"


def _told(problem: str) -> int:
    print(f"skill: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
