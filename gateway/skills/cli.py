"""What `crayfish skills …` does: each command returns the text to print, or raises ConfigError."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path

from gateway.clock import Clock
from gateway.config import Loaded
from gateway.errors import ConfigError
from gateway.skills import audit, registry, template
from gateway.skills.audit import Report
from gateway.skills.index import Skill, Skills, Snapshot
from gateway.skills.packages import RESERVED, Packages
from gateway.skills.receipt import Receipt
from gateway.skills.registry import Fetch, offline
from gateway.skills.roots import installed, open_skills
from gateway.types import JsonObject


def run(
    command: str,
    given: argparse.Namespace,
    loaded: Loaded,
    clock: Clock,
    ask: Callable[[str], bool],
    commands: Collection[str] = (),
    fetch: Fetch = offline,
) -> tuple[str, bool]:
    """Do it; return the text to print, and whether all is well. Raises: ConfigError.

    `ask` puts a question to the person; `commands` are names that no skill may get.
    """
    shell = Shell(loaded, clock, ask, RESERVED.union(commands), fetch)
    match command:
        case "list":
            return shell.listed(as_json=given.json)
        case "show":
            return shell.shown(given.name, as_json=given.json)
        case "inspect":
            return shell.inspected(given.source, given.registry, as_json=given.json)
        case "install":
            return shell.install(given)
        case "update":
            return shell.update(given)
        case "rollback":
            receipt = shell.packages.rollback(given.name, given.to)
            return f"{given.name} is {receipt.version} again (number {receipt.number})", True
        case "remove":
            return shell.remove(given.name, purge=given.purge)
        case "enable" | "disable":
            return shell.switch(given.name, on=command == "enable")
        case "verify":
            return shell.verify(given.name)
        case _:
            folder = template.create(
                loaded.workspace / "skills", given.name, given.description, given.address
            )
            return f"{folder} is ready: the bot has it at its next message", True


class Shell:
    """What the commands share: the skills as they are, and the means to change them.

    `ask` puts a question to the person who typed the command.
    """

    def __init__(
        self,
        loaded: Loaded,
        clock: Clock,
        ask: Callable[[str], bool],
        reserved: Collection[str],
        fetch: Fetch,
    ) -> None:
        self.loaded, self.ask, self.fetch = loaded, ask, fetch
        self.skills = open_skills(loaded)
        self.packages = Packages(
            folder=installed(loaded), wall=clock.wall, others=_elsewhere(self.skills), reserved=reserved
        )

    def listed(self, *, as_json: bool) -> tuple[str, bool]:
        """Show all skills, with what is wrong."""
        found = self.skills.snapshot()
        if as_json:
            return _json(
                {
                    "skills": [_as_json(one) for one in found.skills],
                    "shadowed": [_as_json(one) for one in found.shadowed],
                    "problems": list(found.problems),
                }
            ), True
        lines = [line for skill in found.skills for line in _lines(skill)]
        lines += [f"problem: {one}" for one in found.problems]
        return "\n".join(lines) or "no skill was found; `crayfish skills new NAME` writes one", True

    def shown(self, name: str, *, as_json: bool) -> tuple[str, bool]:
        """Show one skill in full."""
        skill = self._skill(self.skills.snapshot(), name)
        versions = self.packages.versions(name) if skill.receipt else []
        if as_json:
            numbers = [
                {"number": one.receipt.number, "version": one.receipt.version, "live": one.live}
                for one in versions
            ]
            return _json(_as_json(skill) | {"versions": numbers}), True
        lines = [*_lines(skill), f"  file: {skill.file}"]
        if skill.asked_tools:
            granted = ", ".join(skill.granted_tools) or "none"
            lines.append(f"  tools it asks for: {', '.join(skill.asked_tools)}; granted: {granted}")
        if skill.env:
            lines.append(f"  variables: {', '.join(skill.env)}")
        if skill.receipt:
            lines.append(f"  from: {skill.receipt.source}")
        lines += [
            f"  number {one.receipt.number}: {one.receipt.version}{' (in use)' if one.live else ''}"
            for one in versions
        ]
        return "\n".join(lines), True

    def inspected(self, source: str, registries: Collection[str], *, as_json: bool) -> tuple[str, bool]:
        """Say what a package would bring along."""
        if Path(source).exists() or not self._is_offer(source):
            found = self.packages.inspect(Path(source))
        else:
            with registry.fetched(self._offer(source, registries), self.fetch) as place:
                found = self.packages.inspect(place)
        return _json(asdict(found)) if as_json else audit.as_text(found), True

    def install(self, given: argparse.Namespace) -> tuple[str, bool]:
        """Install a package after showing what it would bring along."""
        approve, granted = self._approval(yes=given.yes, trust=given.trust), _words(given.grant)
        if Path(given.source).exists() or not self._is_offer(given.source):
            receipt = self.packages.install(
                Path(given.source), approve=approve, replace=given.replace, grant=granted
            )
            return _installed(receipt)
        offer = self._offer(given.source, given.registry)
        with registry.fetched(offer, self.fetch) as place:
            receipt = self.packages.install(
                place, origin=offer.origin, approve=approve, replace=given.replace, grant=granted
            )
        return _installed(receipt)

    def update(self, given: argparse.Namespace) -> tuple[str, bool]:
        """Install again what has a newer version where it came from."""
        there = self.packages.installed()
        if given.name and given.name not in there:
            raise ConfigError(
                f"no installed skill is called {given.name!r}; `crayfish skills list` shows them"
            )
        chosen = [there[given.name]] if given.name else list(there.values())
        approve, granted = self._approval(yes=given.yes, trust=given.trust), _words(given.grant)
        told, good = [], True
        for receipt in chosen:
            try:
                told.append(self._update(receipt, approve, granted))
            except ConfigError as error:
                told.append(f"{receipt.name}: {error}")
                good = False
        return "\n".join(told) or "no skill is installed", good

    def remove(self, name: str, *, purge: bool) -> tuple[str, bool]:
        """Take an installed skill out; one of another kind can only be switched off."""
        skill = self.skills.snapshot().get(name)
        if skill and not skill.receipt and name not in self.packages.names():
            raise ConfigError(
                f"{name!r} was not installed, it lies in {skill.folder}; `crayfish skills disable {name}`, "
                "or delete the folder"
            )
        self.packages.remove(name, purge=purge)
        return f"{name} is gone" + (
            "" if purge else f"; `crayfish skills rollback {name}` brings it back"
        ), True

    def switch(self, name: str, *, on: bool) -> tuple[str, bool]:
        """Switch a skill on or off."""
        self._skill(self.skills.snapshot(), name)
        self.packages.switch(name, on=on)
        skill = self._skill(self.skills.snapshot(), name)
        if on and not skill.eligible:
            return f"{name} is switched on, but {'; '.join(skill.reasons)}", False
        return f"{name} is {'on' if on else 'off'}", True

    def verify(self, name: str) -> tuple[str, bool]:
        """Check the files of installed skills against their receipts."""
        told, good = [], True
        for one in [name] if name else self.packages.installed():
            differences = self.packages.verify(one)
            told.append(f"{one}: {'; '.join(differences) or 'as it was installed'}")
            good = good and not differences
        return "\n".join(told) or "no skill is installed", good

    def _update(self, receipt: Receipt, approve: Callable[[Report], bool], granted: Collection[str]) -> str:
        """Install again what is newer, or not any more as it was installed."""
        changed = bool(self.packages.verify(receipt.name))
        index, mark, name = receipt.source.rpartition("#")
        if mark and name == receipt.name:
            offer = registry.newest(name, [index], self.fetch)
            if not changed and registry.order(offer.version) <= registry.order(receipt.version):
                return f"{receipt.name} {receipt.version} is the newest"
            with registry.fetched(offer, self.fetch) as place:
                return self._again(receipt, place, approve, granted)
        place = Path(receipt.source)
        if not place.exists():
            raise ConfigError(f"{place} is gone; install it from where it is now, with --replace")
        if not changed and self.packages.inspect(place).sha256 == receipt.sha256:
            return f"{receipt.name} {receipt.version} is the newest"
        return self._again(receipt, place, approve, granted)

    def _again(
        self,
        before: Receipt,
        place: Path,
        approve: Callable[[Report], bool],
        granted: Collection[str],
    ) -> str:
        def same(report: Report) -> bool:
            if report.name != before.name:
                raise ConfigError(f"{place} holds {report.name!r} now")
            return approve(report)

        # What was granted before was granted to what a person had read then.
        receipt = self.packages.install(
            place, origin=before.source, approve=same, replace=True, grant=granted
        )
        return _installed(receipt)[0]

    def _approval(self, *, yes: bool, trust: bool) -> Callable[[Report], bool]:
        def approve(report: Report) -> bool:
            if trust or (yes and not report.findings):
                return True
            return self.ask(f"{audit.as_text(report)}\nInstall it?")

        return approve

    def _is_offer(self, source: str) -> bool:
        return not source.endswith(".zip") and "/" not in source

    def _offer(self, source: str, registries: Collection[str]) -> registry.Offer:
        name, _, version = source.partition("@")
        indexes = list(registries) or self.loaded.settings.skills.registries
        return registry.newest(name, indexes, self.fetch, version=version)

    def _skill(self, found: Snapshot, name: str) -> Skill:
        skill = found.get(name)
        if skill is None:
            raise ConfigError(f"there is no skill {name!r}; `crayfish skills list` shows them")
        return skill


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _elsewhere(skills: Skills) -> frozenset[str]:
    """Return the names of the skills that were not installed."""
    return frozenset(one.name for one in skills.snapshot().skills if one.receipt is None)


def _installed(receipt: Receipt | None) -> tuple[str, bool]:
    if receipt is None:
        return "nothing was installed", False
    granted = f", with the tools {', '.join(receipt.granted)}" if receipt.granted else ""
    return f"{receipt.name} {receipt.version} is installed{granted}: the bot has it at its next message", True


def _lines(skill: Skill) -> list[str]:
    version = f" {skill.version}" if skill.version else ""
    return [
        f"{skill.name}{version} ({skill.source}, {'on' if skill.eligible else 'off'}): {skill.description}",
        *(f"  off: {reason}" for reason in skill.reasons),
        *(f"  note: {warning}" for warning in skill.warnings),
    ]


def _as_json(skill: Skill) -> JsonObject:
    return {
        "name": skill.name,
        "description": skill.description,
        "version": skill.version,
        "source": skill.source,
        "file": str(skill.file),
        "eligible": skill.eligible,
        "reasons": list(skill.reasons),
        "warnings": list(skill.warnings),
        "asked_tools": list(skill.asked_tools) if skill.asked_tools is not None else None,
        "granted_tools": list(skill.granted_tools),
        "env": list(skill.env),
        "sha256": skill.receipt.sha256 if skill.receipt else skill.sha256,
        "installed_from": skill.receipt.source if skill.receipt else None,
    }


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
