"""The command line: reads arguments, calls one function, turns errors into exit codes.

Heavy modules are imported inside the command that needs them, so that `--help` costs nothing.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from gateway import __version__
from gateway.errors import GatewayError

if TYPE_CHECKING:
    from gateway.config import Loaded, SlackAccount
    from gateway.control import Control
    from gateway.types import JsonObject

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: done; a bug; the set-up can't work (also argparse's); Ctrl-C."""

Command: TypeAlias = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name and return the exit code."""
    arguments = _parser().parse_args(argv)
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
    causes = list(_leaves(error))
    if all(isinstance(cause, GatewayError) for cause in causes):
        for cause in causes:
            print(f"crayfish: {cause}", file=sys.stderr)
        return REFUSED
    import traceback

    from gateway.log import redact

    print(redact("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    return FAILED


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that task groups wrapped, or the one itself."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _run(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, loaded.settings.log.level)
    import asyncio

    from gateway import app

    asyncio.run(app.serve(loaded))
    return OK


def _chat(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    import asyncio

    from gateway import app

    return asyncio.run(app.chat(loaded, arguments.session))


def _migrate(arguments: argparse.Namespace) -> int:
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    import asyncio

    from gateway import app

    print(asyncio.run(app.migrate(loaded)))
    return OK


def _doctor(arguments: argparse.Namespace) -> int:
    from gateway import doctor

    findings = doctor.examine(
        arguments.config, os.environ, Path.cwd(), deep=arguments.deep, slack_scopes=_slack_scopes
    )
    print(doctor.as_json(findings) if arguments.json else doctor.as_text(findings))
    return REFUSED if doctor.failed(findings) else OK


def _slack_scopes(bot: SlackAccount) -> Sequence[str]:
    from gateway import app

    return app.slack_scopes(bot)


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


def _ask(arguments: argparse.Namespace, question: Callable[[Control], Awaitable[JsonObject]]) -> JsonObject:
    """Ask the gateway that runs, or else its database."""
    loaded = _load(arguments)
    _log_to_stderr(loaded, "warning")
    import asyncio

    from gateway import app

    return asyncio.run(app.control(loaded, question))


def _harmless(text: str) -> str:
    """Return text that holds what strangers chose, such as their names, so that no terminal obeys it."""
    from gateway.log import visible

    return "\n".join(map(visible, text.splitlines()))


def _slack_manifest(arguments: argparse.Namespace) -> int:
    import json

    from gateway import app

    url = "" if arguments.socket else arguments.http
    print(json.dumps(app.slack_app(_load(arguments), arguments.account, url), ensure_ascii=False, indent=2))
    return OK


def _load(arguments: argparse.Namespace) -> Loaded:
    from gateway import config

    return config.load(arguments.config, os.environ, Path.cwd())


def _log_to_stderr(loaded: Loaded, level: str) -> None:
    from gateway import config, log

    known = (*config.secrets(loaded.settings), *log.secrets_in(os.environ))
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
    "why": (_why, "say why a message was answered or not"),
    "slack manifest": (_slack_manifest, "print what Slack makes an app from"),
    "migrate": (_migrate, "bring the database to this version's schema"),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("crayfish", description="A chat-bot gateway for messaging platforms.")
    parser.add_argument("--version", action="version", version=f"crayfish {__version__}")
    commands = _subcommands(parser)
    groups = {"": commands} | {
        name: _subcommands(commands.add_parser(name, help=text)) for name, text in GROUPS.items()
    }
    for name, (command, text) in COMMANDS.items():
        group, _, last = name.rpartition(" ")
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
    if name.startswith("cron ") and name != "cron list":
        parser.add_argument("name", metavar="NAME", help="the id, or the name if only one chat has it")
    if name == "pairing approve":
        parser.add_argument("code", metavar="CODE", help="what the person was told")
        parser.add_argument("--notify", action="store_true", help="tell the person")
    if name == "pairing revoke":
        parser.add_argument("channel", metavar="CHANNEL", help="as `pairing list` shows it")
        parser.add_argument("sender", metavar="ID", help="the person's id there")
    if name.startswith("heartbeat "):
        parser.set_defaults(action=name.partition(" ")[2])
    if name == "heartbeat now":
        parser.add_argument("--dry-run", action="store_true", help="only say what a scheduled one would do")
    if name == "slack manifest":
        way = parser.add_mutually_exclusive_group()
        way.add_argument("--socket", action="store_true", help="for Socket Mode")
        way.add_argument("--http", metavar="URL", type=_https, help="for events that Slack posts there")
        parser.add_argument("--account", metavar="NAME", default="", help="of [channels.slack.accounts]")
    if name == "why":
        parser.add_argument("chat", metavar="CHAT", help="a chat's id, alone or as channel:id")
        parser.add_argument("message", metavar="MESSAGE", nargs="?", default="", help="default: the newest")
