"""The command line: reads arguments, calls one function, turns errors into exit codes.

Heavy modules are imported inside the command that needs them, so that `--help` costs nothing.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from gateway import __version__
from gateway.errors import GatewayError, leaves

if TYPE_CHECKING:
    from gateway.config import Loaded, SlackAccount
    from gateway.control import Control
    from gateway.export import Archive
    from gateway.types import JsonObject

T = TypeVar("T")

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: done; a bug; the set-up can't work (also argparse's); Ctrl-C."""

Command: TypeAlias = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return the exit code; without any, print the help."""
    parser, words = _parser(), sys.argv[1:] if argv is None else argv
    if not words:
        parser.print_help(sys.stderr)
        return REFUSED
    arguments = parser.parse_args(words)
    return exit_code(lambda: arguments.command(arguments))


def exit_code(command: Callable[[], int]) -> int:
    """Return the code of a command; an error that it raises ends as text on stderr and a code."""
    try:
        return command()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone (`crayfish config show | head`); nothing may be flushed to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - the root of the process: there is nobody above
        return _report(error)


def _report(error: Exception) -> int:
    """Print one line for each error that we raised on purpose, else a traceback without secrets."""
    causes = list(leaves(error))
    if all(isinstance(cause, GatewayError) for cause in causes):
        for cause in causes:
            print(f"crayfish: {cause}", file=sys.stderr)
        return REFUSED
    import traceback

    from gateway.log import redact

    print(redact("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    return FAILED


def _run(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, loaded.settings.log.level)
    import asyncio

    from gateway.app import serving

    asyncio.run(serving.serve(loaded))
    return OK


def _chat(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    import asyncio

    from gateway.app import console

    return asyncio.run(console.chat(loaded, arguments.session))


def _migrate(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    import asyncio

    from gateway.app import offline

    print(asyncio.run(offline.migrate(loaded)))
    return OK


def _doctor(arguments: argparse.Namespace) -> int:
    import logging

    from gateway import doctor

    logging.getLogger().addHandler(logging.NullHandler())  # the findings say it all
    findings = doctor.examine(
        arguments.config, os.environ, Path.cwd(), deep=arguments.deep, slack_scopes=_slack_scopes
    )
    print(doctor.as_json(findings) if arguments.json else doctor.as_text(findings))
    return REFUSED if doctor.failed(findings) else OK


def _slack_scopes(bot: SlackAccount) -> Sequence[str]:
    from gateway.app import slack

    return slack.scopes(bot)


def _config_show(arguments: argparse.Namespace) -> int:
    from gateway.config import shown

    loaded = _load(arguments)
    print(f"# file: {loaded.file or 'none, these are the defaults'}\n# home: {loaded.home}\n")
    print(shown(loaded.settings))
    return OK


def _config_check(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    print(f"{loaded.file} is valid" if loaded.file else "no config file found, the defaults hold")
    return OK


def _pairing_list(arguments: argparse.Namespace) -> int:
    from gateway import pairing

    print(_harmless(pairing.listed(_ask(arguments, lambda control: control.pairing()))))
    return OK


def _pairing_approve(arguments: argparse.Namespace) -> int:
    from gateway import pairing

    answer = _ask(arguments, lambda control: control.approve(arguments.code, notify=arguments.notify))
    if answer["person"] is None:
        print(f"crayfish: {pairing.WRONG}", file=sys.stderr)
        return REFUSED
    print(_harmless(pairing.approved(answer["person"])))
    return OK


def _pairing_revoke(arguments: argparse.Namespace) -> int:
    from gateway import pairing

    channel, sender = arguments.channel, arguments.sender
    answer = _ask(arguments, lambda control: control.revoke(channel, sender))
    print(_harmless(pairing.revoked(channel, sender, found=answer["found"])))
    return OK if answer["found"] else REFUSED


def _cron(action: str, arguments: argparse.Namespace) -> int:
    name = getattr(arguments, "name", "")
    answer = _ask(arguments, lambda control: control.cron(action, name))
    if "problem" in answer:
        print(f"crayfish: {_harmless(answer['problem'])}", file=sys.stderr)
        return REFUSED
    print(_harmless(answer["text"]))
    return OK


def _memory(action: str, arguments: argparse.Namespace) -> int:
    query, chats = getattr(arguments, "query", ""), getattr(arguments, "chats", False)
    answer = _ask(arguments, lambda control: control.memory(action, query, chats=chats))
    if "problem" in answer:
        print(f"crayfish: {_harmless(answer['problem'])}", file=sys.stderr)
        return REFUSED
    print(_harmless(answer["text"]))
    return OK


def _prompt_show(arguments: argparse.Namespace) -> int:
    import asyncio
    import json

    from gateway import context
    from gateway.app import console

    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    shown = asyncio.run(console.prompt(loaded, arguments.conversation))["prompt"]
    if shown is None:
        print(f"crayfish: there is no conversation {arguments.conversation!r}", file=sys.stderr)
        return REFUSED
    if arguments.json:
        print(json.dumps(shown, ensure_ascii=False, indent=2))
    else:
        print(_harmless(context.lines(shown) if arguments.sizes else context.text(shown)))
    return OK


def _usage(arguments: argparse.Namespace) -> int:
    import json

    from gateway.usage import as_table

    report = _ask(arguments, lambda control: control.usage(arguments.by, arguments.days))
    text = json.dumps(report, ensure_ascii=False, indent=2) if arguments.json else as_table(report)
    print(text if arguments.json else _harmless(text))
    return OK


def _why(arguments: argparse.Namespace) -> int:
    from gateway import why

    chat, message = arguments.chat, arguments.message
    answer = _ask(arguments, lambda control: control.why(chat, message))
    print(_harmless(why.as_text(answer["message"], chat, message)))
    return OK


def _heartbeat(arguments: argparse.Namespace) -> int:
    action, dry_run = arguments.action, getattr(arguments, "dry_run", False)
    answer = _ask(arguments, lambda control: control.heartbeat(action, dry_run=dry_run))
    print(_harmless(answer["text"]))
    return OK


def _skills(action: str, arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    from gateway.clock import SystemClock
    from gateway.skills import cli
    from gateway.tools.download import downloader

    fetch = downloader(loaded.settings.web)
    text, good = cli.run(action, arguments, loaded, SystemClock(), _agrees, _chat_commands(action), fetch)
    print(text if getattr(arguments, "json", False) else _harmless(text))
    return OK if good else REFUSED


def _chat_commands(action: str) -> Sequence[str]:
    """Return the words that people type in chats, if a new skill must not be called like one."""
    if action not in ("install", "update"):
        return ()
    from gateway.commands import TABLE

    return [name for command in TABLE for name in (command.name, *command.aliases)]


def _agrees(question: str) -> bool:
    """Ask whoever sits at the terminal; nobody there is a no."""
    print(f"{_harmless(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tools_list(arguments: argparse.Namespace) -> int:
    import json

    from gateway import capabilities

    found = _ask(arguments, lambda control: capabilities.everything(control, arguments.kind))
    text = json.dumps(found, ensure_ascii=False, indent=2)
    print(text if arguments.json else _harmless(capabilities.as_text(found)))
    return OK


def _tools_show(arguments: argparse.Namespace) -> int:
    from gateway import capabilities

    name, kind = arguments.name, arguments.kind
    found = _ask(arguments, lambda control: capabilities.everything(control, kind))
    rows = [one for one in found["capabilities"] if one["name"] == name]
    if not rows:
        print(
            f"crayfish: there is no tool or skill {name!r}; `crayfish tools list` shows them", file=sys.stderr
        )
        return REFUSED
    print(_harmless("\n".join(map(capabilities.in_full, rows))))
    return OK


def _tools(action: str, arguments: argparse.Namespace) -> int:
    name, kind = arguments.name, arguments.kind
    agent, user = getattr(arguments, "agent", ""), getattr(arguments, "user", "")
    answer = _ask(arguments, lambda control: control.tool(action, name, kind=kind, agent=agent, user=user))
    if "problem" in answer:
        print(f"crayfish: {_harmless(answer['problem'])}", file=sys.stderr)
        return REFUSED
    print(_harmless(answer["text"]))
    return OK


def _sessions_list(arguments: argparse.Namespace) -> int:
    print(_harmless(_look(arguments, lambda archive: archive.listed())))
    return OK


def _sessions_show(arguments: argparse.Namespace) -> int:
    print(_harmless(_look(arguments, lambda archive: archive.show(arguments.conversation))))
    return OK


def _sessions_export(arguments: argparse.Namespace) -> int:
    name, out = arguments.conversation, arguments.out
    entries = _look(arguments, lambda archive: archive.export(name, arguments.format, arguments.session, out))
    print(f"{entries} entries{f' written to {out}' if out else ''}", file=sys.stderr)
    return OK


def _import(program: str, arguments: argparse.Namespace) -> int:
    import asyncio

    from gateway.app import offline

    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    print(_harmless(asyncio.run(offline.take_over(loaded, program, arguments.path, dry=arguments.dry_run))))
    return OK


def _look(arguments: argparse.Namespace, question: Callable[[Archive], Awaitable[T]]) -> T:
    """Read the database, whether or not a gateway runs on it."""
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    import asyncio

    from gateway.app import offline

    return asyncio.run(offline.look(loaded, question))


def _ask(arguments: argparse.Namespace, question: Callable[[Control], Awaitable[JsonObject]]) -> JsonObject:
    """Ask the gateway that runs, or else its database."""
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    import asyncio

    from gateway.app import offline

    return asyncio.run(offline.control(loaded, question))


def _harmless(text: str) -> str:
    """Return text that holds what strangers chose, such as their names, so that no terminal obeys it."""
    from gateway.log import visible

    return "\n".join(map(visible, text.splitlines()))


def _mcp_list(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, "error")
    import asyncio

    from gateway.app import offline
    from gateway.log import redact
    from gateway.mcp.servers import as_text

    print(_harmless(redact(as_text(asyncio.run(offline.mcp_servers(loaded))))))
    return OK


def _slack_manifest(arguments: argparse.Namespace) -> int:
    import json

    from gateway.app import slack

    url = "" if arguments.socket else arguments.http
    print(json.dumps(slack.manifest(_load(arguments), arguments.account, url), ensure_ascii=False, indent=2))
    return OK


def _load(arguments: argparse.Namespace) -> Loaded:
    from gateway import config

    return config.load(arguments.config, os.environ, Path.cwd())


def _log_to_stderr(loaded: Loaded, level: str) -> None:
    from gateway import config, log
    from gateway.redact import secrets_in

    known = (*config.secrets(loaded.settings), *secrets_in(os.environ))
    log.configure(level, loaded.settings.log.format, known)


def _https(text: str) -> str:
    if not re.fullmatch(r"https://[^\s/?#]+[^\s?#]*", text):
        raise argparse.ArgumentTypeError("the address must begin with https://: Slack posts to nothing else")
    return text


def _session(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        raise argparse.ArgumentTypeError(
            "a session name has up to 64 letters, digits, dashes and underscores"
        )
    return text


GROUPS = {
    "config": "look at the config",
    "pairing": "decide who may talk to the bot",
    "heartbeat": "what the bot looks after by itself",
    "cron": "what the bot does at set times",
    "skills": "what the bot has learned",
    "tools": "who may use what",
    "sessions": "look at what was said",
    "memory": "what the bot has written down",
    "mcp": "tools of other programs",
    "prompt": "what the model is sent",
    "import": "take over what another program has",
    "slack": "set up a Slack app",
}

COMMANDS: dict[str, tuple[Command, str]] = {
    "run": (_run, "run the gateway until it is stopped"),
    "chat": (_chat, "talk to the bot in this terminal"),
    "doctor": (_doctor, "check the set-up and say what to do"),
    "config show": (_config_show, "print what holds, secrets as set or unset"),
    "config check": (_config_check, "say whether the file is valid"),
    "pairing list": (_pairing_list, "show who asks to be let in, and who was"),
    "pairing approve": (_pairing_approve, "let in whoever got a code"),
    "pairing revoke": (_pairing_revoke, "undo an approval, or close a request"),
    "heartbeat status": (_heartbeat, "show the last and the next heartbeats"),
    "heartbeat now": (_heartbeat, "let the bot look after things now"),
    "heartbeat pause": (_heartbeat, "stop heartbeats until they are resumed"),
    "heartbeat resume": (_heartbeat, "let heartbeats go on"),
    "cron list": (functools.partial(_cron, "list"), "show the schedules of all chats"),
    "cron show": (functools.partial(_cron, "show"), "show one schedule"),
    "cron history": (functools.partial(_cron, "history"), "show its newest runs, also of one that is gone"),
    "cron run": (functools.partial(_cron, "run"), "run it now, beside its times"),
    "cron pause": (functools.partial(_cron, "pause"), "keep it from running"),
    "cron resume": (functools.partial(_cron, "resume"), "let it run again"),
    "cron rm": (functools.partial(_cron, "rm"), "remove it"),
    "skills list": (functools.partial(_skills, "list"), "show all skills, and why one is off"),
    "skills show": (functools.partial(_skills, "show"), "show one skill"),
    "skills inspect": (functools.partial(_skills, "inspect"), "say what a zip or a folder would bring along"),
    "skills install": (functools.partial(_skills, "install"), "install a zip, a folder, or a name"),
    "skills update": (functools.partial(_skills, "update"), "install what has a newer version"),
    "skills rollback": (functools.partial(_skills, "rollback"), "put an older version back"),
    "skills remove": (functools.partial(_skills, "remove"), "take an installed skill out"),
    "skills enable": (functools.partial(_skills, "enable"), "switch a skill on"),
    "skills disable": (functools.partial(_skills, "disable"), "switch a skill off"),
    "skills verify": (functools.partial(_skills, "verify"), "check that skills are as they were installed"),
    "skills new": (functools.partial(_skills, "new"), "write a new skill to begin with"),
    "tools list": (_tools_list, "show all tools and skills, and which are off"),
    "tools show": (_tools_show, "show one"),
    "tools enable": (functools.partial(_tools, "enable"), "switch one on, from the next message on"),
    "tools disable": (functools.partial(_tools, "disable"), "switch one off for everybody"),
    "tools bind": (functools.partial(_tools, "bind"), "put one on the list of an agent or a person"),
    "tools unbind": (functools.partial(_tools, "unbind"), "take one off such a list"),
    "tools remove": (functools.partial(_tools, "remove"), "take one away that does not come with Crayfish"),
    "sessions list": (_sessions_list, "show the conversations"),
    "sessions show": (_sessions_show, "show the sessions of one"),
    "sessions export": (_sessions_export, "write what was said, as Markdown or JSON"),
    "memory status": (functools.partial(_memory, "status"), "say how large the index of the notes is"),
    "memory index": (functools.partial(_memory, "index"), "bring it up to date, vectors included"),
    "memory search": (functools.partial(_memory, "search"), "search the notes as the bot does"),
    "prompt show": (_prompt_show, "print what the model is sent for a conversation"),
    "why": (_why, "say why a message was answered or not"),
    "usage": (_usage, "show the tokens and the money that models took"),
    "mcp list": (_mcp_list, "show the tools of each server, or why it is down"),
    "import openclaw": (functools.partial(_import, "openclaw"), "take over the folder of OpenClaw"),
    "import nanobot": (functools.partial(_import, "nanobot"), "take over the folder of nanobot"),
    "slack manifest": (_slack_manifest, "print what Slack makes an app from"),
    "migrate": (_migrate, "bring the database to this version's schema"),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("crayfish", description="A chat-bot gateway for messaging platforms.")
    parser.add_argument("--version", action="version", version=f"crayfish {__version__}")
    commands = _subcommands(parser)
    groups = {"": commands}
    for name, (command, text) in COMMANDS.items():  # in this order `--help` shows commands and groups
        group, _, last = name.rpartition(" ")
        if group not in groups:
            groups[group] = _subcommands(commands.add_parser(group, help=GROUPS[group]))
        _fill(name, groups[group].add_parser(last, help=text, description=text), command)
    return parser


def _subcommands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _fill(name: str, parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the arguments of a command."""
    places = "the config file ($CRAYFISH_CONFIG, ./config.toml, $CRAYFISH_HOME/config.toml)"
    parser.add_argument("--config", metavar="PATH", type=Path, help=places)
    parser.set_defaults(command=command)
    if name == "chat":
        parser.add_argument("--session", metavar="NAME", type=_session, default="main", help="default: main")
    if name == "doctor":
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.add_argument(
            "--deep", action="store_true", help="also ask platforms and model, read the database"
        )
    group, _, action = name.partition(" ")
    if group in _FILL:
        _FILL[group](action, parser)
    if name.startswith("cron ") and name != "cron list":
        parser.add_argument("name", metavar="NAME", help="the id, or the name if only one chat has it")
    if name == "memory search":
        parser.add_argument("query", metavar="QUERY", help="words to look for")
        parser.add_argument("--chats", action="store_true", help="search what was said, in all conversations")
    if name.startswith("heartbeat "):
        parser.set_defaults(action=name.partition(" ")[2])
    if name == "heartbeat now":
        parser.add_argument("--dry-run", action="store_true", help="only say what a scheduled one would do")
    if name == "slack manifest":
        way = parser.add_mutually_exclusive_group()
        way.add_argument("--socket", action="store_true", help="for Socket Mode")
        way.add_argument("--http", metavar="URL", type=_https, help="for events that Slack posts there")
        parser.add_argument("--account", metavar="NAME", default="", help="of [channels.slack.accounts]")
    if name.startswith("sessions ") and name != "sessions list":
        _name_conversation(name, parser)
    if name.startswith("import "):
        usual = f"its folder, such as ~/.{name.partition(' ')[2]}, or only its workspace"
        parser.add_argument("path", metavar="PATH", type=Path, help=usual)
        parser.add_argument("--dry-run", action="store_true", help="only tell what would be done")
    if name in ("prompt show", "usage", "why"):
        _fill_question(name, parser)


def _fill_question(name: str, parser: argparse.ArgumentParser) -> None:
    if name == "prompt show":
        parser.add_argument("conversation", metavar="CONVERSATION", help="channel:chat, or with :thread")
        parser.add_argument("--sizes", action="store_true", help="only how large each part is")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        return
    if name == "why":
        parser.add_argument("chat", metavar="CHAT", help="a chat's id, alone or as channel:id")
        parser.add_argument("message", metavar="MESSAGE", nargs="?", default="", help="default: the newest")
        return
    way = parser.add_mutually_exclusive_group()
    for by in ("day", "conversation", "model", "sender", "kind"):
        usual = ", the default" if by == "day" else ""
        way.add_argument(f"--{by}", dest="by", action="store_const", const=by, help=f"a line for each{usual}")
    parser.set_defaults(by="day")
    parser.add_argument("--days", metavar="NUMBER", type=_days, default=30, help="with today; default: 30")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _days(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text) or int(text) > 3660:
        raise argparse.ArgumentTypeError("it must be a number from 1 to 3660")
    return int(text)


def _fill_pairing(action: str, parser: argparse.ArgumentParser) -> None:
    if action == "approve":
        parser.add_argument("code", metavar="CODE", help="what the person was told")
        parser.add_argument("--notify", action="store_true", help="tell the person")
    if action == "revoke":
        parser.add_argument("channel", metavar="CHANNEL", help="as `pairing list` shows it")
        parser.add_argument("sender", metavar="ID", help="the person's id there")


def _fill_skills(action: str, parser: argparse.ArgumentParser) -> None:
    if action in ("inspect", "install"):
        parser.add_argument(
            "source", metavar="SOURCE", help="a zip file, a folder, or NAME[@VERSION] of a registry"
        )
        here = "instead of those in [skills] registries"
        parser.add_argument("--registry", metavar="INDEX", action="append", default=[], help=here)
    elif action in ("update", "verify"):
        parser.add_argument("name", metavar="NAME", nargs="?", default="", help="default: all installed ones")
    elif action != "list":
        parser.add_argument("name", metavar="NAME")
    if action in ("list", "show", "inspect"):
        parser.add_argument("--json", action="store_true", help="print one JSON document")
    if action in ("install", "update"):
        parser.add_argument("--yes", action="store_true", help="don't ask, unless something looks bad")
        parser.add_argument("--trust", action="store_true", help="don't ask even then")
        asked = "tools that it gets of those it asks for, e.g. exec,write"
        parser.add_argument("--grant", metavar="TOOLS", default="", help=asked)
    if action == "install":
        parser.add_argument("--replace", action="store_true", help="replace the one of the same name")
    if action == "rollback":
        parser.add_argument("--to", metavar="NUMBER", type=int, default=0, help="as `skills show` lists them")
    if action == "remove":
        parser.add_argument("--purge", action="store_true", help="delete its versions, too")
    if action == "new":
        parser.add_argument("--description", metavar="TEXT", default="", help="what it does, and when")
        parser.add_argument("--address", metavar="URL", default="", help="what its script asks")


def _fill_tools(action: str, parser: argparse.ArgumentParser) -> None:
    if action != "list":
        parser.add_argument("name", metavar="NAME", help="as `tools list` shows it")
    which = "only these" if action == "list" else "if a tool and a skill have this name"
    parser.add_argument("--kind", choices=("tool", "skill"), default="", help=which)
    if action == "list":
        parser.add_argument("--json", action="store_true", help="print one JSON document")
    if action in ("bind", "unbind"):
        parser.add_argument("--agent", metavar="NAME", default="", help="whose list; `main` is the usual one")
        parser.add_argument(
            "--user", metavar="CHANNEL:ID", default="", help="whose list, or with which agent"
        )


_FILL = {"pairing": _fill_pairing, "skills": _fill_skills, "tools": _fill_tools}
"""What adds the arguments of all commands of a group."""


def _name_conversation(name: str, parser: argparse.ArgumentParser) -> None:
    named = "`channel:chat`, or the chat's id alone, as `sessions list` shows them"
    parser.add_argument("conversation", metavar="CONVERSATION", help=named)
    if name == "sessions export":
        parser.add_argument("--format", choices=("md", "jsonl"), default="md", help="default: md")
        parser.add_argument("--session", metavar="NUMBER", type=int, help="only this one; default: all")
        parser.add_argument("--out", metavar="FILE", type=Path, help="a new file; default: stdout")
