"""What a skill would bring along: its programs, the hosts and variables it names, and what looks bad."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.skills.front import Front
from gateway.skills.gate import Needs

MAX_TEXT = 1_000_000
"""Bytes of a file that are searched."""

_SCRIPTS = re.compile(
    r"\.(?:py|sh|bash|zsh|ps1|js|mjs|ts|rb|pl|php|bat|cmd|exe|so|dll|dylib|jar)\Z", re.IGNORECASE
)
_ARCHIVES = re.compile(r"\.(?:zip|tar|gz|tgz|bz2|xz|7z|rar|whl|jar)\Z", re.IGNORECASE)
_HOST = re.compile(r"\b(?:https?|wss?|ftp)://(?:[^\s/@\"'<>]*@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])")
_VARIABLES = (
    re.compile(r"""(?:environ(?:\.get)?\s*[\[(]|getenv\(|ENV\[|process\.env\[)\s*["']([A-Za-z_]\w*)"""),
    re.compile(r"process\.env\.([A-Za-z_]\w*)"),
    re.compile(r"\$env:([A-Za-z_]\w*)", re.IGNORECASE),
    re.compile(r"\$\{?([A-Z][A-Z0-9_]{2,})\b"),
)
_USUAL = frozenset(
    {"HOME", "PATH", "PWD", "USER", "LANG", "SHELL", "TERM", "TMPDIR", "BASH_SOURCE", "RANDOM", "IFS"}
)

_SIGNS: tuple[tuple[str, str], ...] = (
    (
        r"(?:curl|wget|iwr|Invoke-WebRequest)\b[^\n|;]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b",
        "runs what it downloads",
    ),
    (r"(?:ba)?sh\s+(?:-c\s+)?[\"']?(?:<\(|\$\()\s*(?:curl|wget)\b", "runs what it downloads"),
    (
        r"(?:iex|Invoke-Expression)\b[^\n]{0,200}(?:DownloadString|iwr|Invoke-WebRequest)",
        "runs what it downloads",
    ),
    (
        r"(?:exec|eval)\s*\(\s*[^\n]{0,80}(?:b64decode|fromhex|decompress|atob\(|urlopen|requests\.get)",
        "runs hidden code",
    ),
    (r"base64\s+(?:-d|-D|--decode)\b[^\n]{0,80}\|\s*(?:ba|z)?sh\b", "runs hidden code"),
    (r"powershell[^\n]{0,80}\s-e(?:nc|ncodedcommand)?\s+[A-Za-z0-9+/=]{20,}", "runs hidden code"),
    (
        r"/dev/tcp/|\bnc(?:at)?\b[^\n]{0,60}\s-[a-z]*e\b|socket[^\n]{0,200}dup2|mkfifo[^\n]{0,100}\bnc\b",
        "opens a shell for others",
    ),
    (
        r"\.ssh/(?:id_|authorized_keys)|\.aws/credentials|\.config/gcloud|\.kube/config|\.netrc\b|/etc/shadow",
        "reads where passwords are kept",
    ),
    (
        r"login\.keychain|Login Data|cookies\.sqlite|wallet\.dat|\.gnupg\b|\.docker/config\.json",
        "reads where passwords are kept",
    ),
    (
        r"(?:>>?|tee|open\()\s*\S*(?:AGENTS|SOUL|IDENTITY|MEMORY|HEARTBEAT)\.md",
        "writes into the bot's own files",
    ),
    (
        r"\bcrontab\s+-|/etc/cron|LaunchAgents|systemctl\s+enable|\.bashrc|\.zshrc|\.profile\b",
        "wants to be started again later",
    ),
    (
        r"\brm\s+-[a-z]*r[a-z]*f?\s+(?:/|~|\$HOME)(?:\s|$)|mkfs\.|:\(\)\s*\{\s*:\|:",
        "can destroy files of others",
    ),
    (r"xattr\s+-[a-z]*d[^\n]*quarantine|Set-MpPreference|setenforce\s+0", "switches protection off"),
    (
        r"\b(?:ignore|disregard)\s+(?:all\s+)?(?:previous|prior|above)\s+instructions\b",
        "tells the model to disobey",
    ),
    (r"do not (?:tell|inform) the user", "tells the model to disobey"),
    (
        r"[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]",
        "holds signs that nobody sees",
    ),
    (r"[A-Za-z0-9+/=]{1000,}|(?:\\x[0-9a-fA-F]{2}){200,}", "holds a long piece that nobody can read"),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), told) for pattern, told in _SIGNS)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that looks bad: the file, the line from 1, and what it does."""

    path: str
    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a skill may do, before it is installed. `findings` are advice, no proof of anything."""

    name: str
    version: str
    description: str
    sha256: str
    files: int
    size: int
    scripts: tuple[str, ...]
    binaries: tuple[str, ...]
    archives: tuple[str, ...]
    hosts: tuple[str, ...]
    env: tuple[str, ...]
    bins: tuple[str, ...]
    tools: tuple[str, ...]
    brings: tuple[str, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...] = ()


def hosts_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts of all addresses in the texts."""
    return tuple(sorted({host.lower().rstrip(".") for text in texts for host in _HOST.findall(text)}))


def variables_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the environment variables that scripts read."""
    found = {name for text in texts for pattern in _VARIABLES for name in pattern.findall(text)}
    return tuple(sorted(found - _USUAL))


def findings_in(texts: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return what looks bad in the files, each kind once a file."""
    found = []
    for path, text in sorted(texts.items()):
        told: set[str] = set()
        for pattern, what in _COMPILED:
            if what not in told and (match := pattern.search(text, 1 if text.startswith("\ufeff") else 0)):
                told.add(what)
                found.append(Finding(path, text.count("\n", 0, match.start()) + 1, what))
    return tuple(found)


def report(  # noqa: PLR0913 - what was read of a skill, each by its name
    files: Mapping[str, bytes],
    *,
    name: str,
    version: str,
    description: str,
    sha256: str,
    size: int,
    executables: Sequence[str],
    front: Front,
    needs: Needs,
    tools: Sequence[str],
    brings: Sequence[str] = (),
) -> Report:
    """Sum up a skill; `files` holds the beginning of each file."""
    texts = {path: data.decode("utf-8", "replace") for path, data in files.items() if b"\0" not in data}
    scripts = {path for path in files if _SCRIPTS.search(path)} | set(executables)
    scripts |= {path for path, data in files.items() if data.startswith(b"#!")}
    return Report(
        name=name,
        version=version,
        description=description,
        sha256=sha256,
        files=len(files),
        size=size,
        scripts=tuple(sorted(scripts)),
        binaries=tuple(
            sorted(
                path
                for path, data in files.items()
                if data.startswith((b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe"))
            )
        ),
        archives=tuple(sorted(path for path in files if _ARCHIVES.search(path))),
        hosts=hosts_in(texts.values()),
        env=tuple(
            sorted({*needs.env, *variables_in(text for path, text in texts.items() if path in scripts)})
        ),
        bins=tuple(dict.fromkeys((*needs.bins, *needs.any_bins))),
        tools=tuple(tools),
        brings=tuple(brings),
        findings=findings_in(texts),
        warnings=front.problems,
    )


def as_text(found: Report, *, bad_first: bool = False) -> str:
    """Return a report for people, what looks bad at the end, or at once where the end may be cut off."""
    bad = [f"  LOOKS BAD: {one.path}, line {one.line}: it {one.what}" for one in found.findings]
    lines = [
        f"{found.name} {found.version}".rstrip(),
        *(bad if bad_first else ()),
        f"  {found.description}",
        f"  {found.files} files, {found.size} bytes, sha256 {found.sha256}",
        _row(
            "programs in it", (*found.scripts, *(one for one in found.binaries if one not in found.scripts))
        ),
        _row("hosts it names", found.hosts),
        _row("variables it reads", found.env),
        _row("programs it needs", found.bins),
        _row("tools it asks for", found.tools),
        _row("tools it brings", found.brings) if found.brings else "",
        _row("archives in it, left packed", found.archives) if found.archives else "",
        *(f"  note: {one}" for one in found.warnings),
        *(() if bad_first else bad),
    ]
    return "\n".join(line for line in lines if line)


def _row(title: str, values: Sequence[str]) -> str:
    shown = ", ".join(values[:20]) + (f" and {len(values) - 20} more" if len(values) > 20 else "")
    return f"  {title}: {shown or 'none'}"
