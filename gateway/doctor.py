"""`crayfish doctor`: looks at the set-up without changing anything, and says what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pydantic import SecretStr

from gateway import config
from gateway.access import Policy
from gateway.config import (
    POSTGRES,
    SQLITE,
    ChannelAccess,
    HttpSettings,
    Loaded,
    ModelSettings,
    Settings,
    SlackAccount,
    TelegramAccount,
)
from gateway.errors import ConfigError, ModelError, ToolError
from gateway.log import visible
from gateway.redact import Redactor, secrets_in
from gateway.types import JsonObject

_SCARCE = 500 * 2**20
_NEEDED = 50 * 2**20
_TIMEOUT = 5.0
_MODEL_TIMEOUT = 60.0


class Level(StrEnum):
    """How bad a finding is; only `fail` keeps the gateway from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw; `remedy` is one sentence on what to do."""

    level: Level
    name: str
    text: str
    remedy: str = ""


Check: TypeAlias = Callable[[Loaded], Iterable[Finding]]


def examine(
    path: Path | None,
    env: Mapping[str, str],
    cwd: Path,
    *,
    deep: bool = False,
    slack_scopes: Callable[[SlackAccount], Sequence[str]] = lambda _bot: (),
) -> list[Finding]:
    """Run every check; with `deep` also those that ask platforms and model, and read the whole database.

    Nothing is written, and without `deep` nothing beyond this machine and the database is asked.
    `slack_scopes` says which scopes a Slack app needs as it is configured.
    """
    findings = [_python()]
    try:
        loaded = config.load(path, env, cwd)
    except ConfigError as error:
        return [*findings, Finding(Level.FAIL, "config", str(error), "correct it and run this again")]
    checks = (*_CHECKS, *_DEEP) if deep else _CHECKS
    findings += [finding for check in checks for finding in check(loaded)]
    findings.append(_model(loaded.settings.model, env))
    findings += _other_models(loaded.settings, env)
    if deep:
        for name, bot in loaded.settings.channels.slack.bots().items():
            findings += _slack_answers(name, bot, slack_scopes(bot))
        findings.append(_model_answers(loaded.settings.model, env))
    redact = Redactor((*config.secrets(loaded.settings), *secrets_in(env)))
    return [replace(one, text=visible(redact(one.text))) for one in findings]


def failed(findings: Iterable[Finding]) -> bool:
    """Return whether anything keeps the gateway from working."""
    return any(one.level is Level.FAIL for one in findings)


def as_text(findings: Iterable[Finding]) -> str:
    """Return one line a finding, its remedy below."""
    lines: list[str] = []
    for one in findings:
        lines.append(f"{one.level:<5} {one.name:<10} {one.text}")
        if one.remedy:
            lines.append(f"{'':17}-> {one.remedy}")
    return "\n".join(lines)


def as_json(findings: list[Finding]) -> str:
    """Return one document: `ok`, and the findings with `level`, `name`, `text`, `remedy`."""
    body = {"ok": not failed(findings), "findings": [asdict(one) for one in findings]}
    return json.dumps(body, ensure_ascii=False, indent=2)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(Level.OK, "python", f"Python {version}, SQLite {sqlite3.sqlite_version}")


def _config(loaded: Loaded) -> Iterator[Finding]:
    file = loaded.file
    if file is None:
        yield Finding(Level.OK, "config", "no config file; the defaults hold")
        return
    yield Finding(Level.OK, "config", f"{file} is valid")
    text = file.read_text(encoding="utf-8-sig")
    inline = any(one in text for one in config.secrets(loaded.settings))
    if inline and stat.S_IMODE(file.stat().st_mode) & 0o077:
        yield Finding(
            Level.WARN,
            "config",
            f"others on this machine can read the secrets in {file}",
            f"chmod 600 {file}",
        )


def _secrets(loaded: Loaded) -> Iterator[Finding]:
    states = config.secrets_set(loaded.settings)
    known = [name for name, is_set in states.items() if is_set]
    rest = len(states) - len(known)
    told = f"set: {', '.join(known)}; {rest} others are not" if known else f"none of {rest} is set"
    yield Finding(Level.OK, "secrets", told)


def _home(loaded: Loaded) -> Iterator[Finding]:
    yield _folder("home", loaded.home, "set CRAYFISH_HOME to a folder that you own")
    if loaded.home.is_dir() and stat.S_IMODE(loaded.home.stat().st_mode) & 0o077:
        yield Finding(
            Level.WARN,
            "home",
            f"others on this machine can look into {loaded.home}",
            f"chmod 700 {loaded.home}",
        )


def _workspace(loaded: Loaded) -> Iterator[Finding]:
    yield _folder("workspace", loaded.workspace, "set [workspace] path to a folder that you own")


def _folder(name: str, folder: Path, remedy: str) -> Finding:
    """Return whether a folder can be written to, or made."""
    there = _nearest(folder)
    if not there.is_dir():
        return Finding(Level.FAIL, name, f"{there} is not a folder", remedy)
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(Level.FAIL, name, f"{there} can't be written", remedy)
    return Finding(Level.OK, name, f"{folder}{'' if there == folder else ' will be made at the first start'}")


def _nearest(path: Path) -> Path:
    """Return the path, or what exists of it."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def _disk(loaded: Loaded) -> Iterator[Finding]:
    """Tell the room on each disk that holds the home, the workspace or the database."""
    url = loaded.settings.store.url
    places = {
        loaded.home: "move the home with CRAYFISH_HOME",
        loaded.workspace: "set [workspace] path to a folder elsewhere",
    }
    if not url.startswith(POSTGRES):
        places[_sqlite_file(url).parent] = "set [store] url to a file elsewhere"
    seen: set[int] = set()
    for place, elsewhere in places.items():
        there = _nearest(place)
        if not there.exists() or there.stat().st_dev in seen:
            continue  # what is wrong with a link to nowhere is told below
        seen.add(there.stat().st_dev)
        free = shutil.disk_usage(there).free
        level = Level.FAIL if free < _NEEDED else Level.WARN if free < _SCARCE else Level.OK
        remedy = "" if level is Level.OK else f"make room, or {elsewhere}"
        yield Finding(level, "disk", f"{free // 2**20} MB free at {place}", remedy)


def _store(loaded: Loaded) -> Iterator[Finding]:
    url = loaded.settings.store.url
    yield _postgres(url) if url.startswith(POSTGRES) else _sqlite(_sqlite_file(url))


def _sqlite_file(url: str) -> Path:
    return Path(url.removeprefix(SQLITE).partition("?")[0])


def _sqlite(file: Path) -> Finding:
    if not file.exists():
        return _folder("store", file, "set [store] url to a file in a folder that you own")
    try:
        with closing(_read_only(file)) as connection:
            tables = {
                row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")
            }
            version = (
                _one(connection, "select version_num from alembic_version")
                if "alembic_version" in tables
                else None
            )
    except sqlite3.Error as error:
        return Finding(
            Level.FAIL, "store", f"{file}: {error}", "set [store] url to another file, or restore a backup"
        )
    if tables and version is None:
        return Finding(
            Level.FAIL, "store", f"{file} belongs to another program", "set [store] url to another file"
        )
    return schema(str(file), version, revisions())


def _read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=_TIMEOUT)


def _one(connection: sqlite3.Connection, query: str) -> str | None:
    row = connection.execute(query).fetchone()
    return row[0] if row else None


def _postgres(url: str) -> Finding:
    try:
        import asyncpg
    except ImportError:
        remedy = "pip install 'crayfish-gateway[postgres]'"
        return Finding(Level.FAIL, "store", "the driver of PostgreSQL is missing", remedy)
    import asyncio

    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    place = f"PostgreSQL at {query.get('host') or parts.hostname}{parts.path}"
    try:
        version = asyncio.run(asyncio.wait_for(_postgres_version(url), _TIMEOUT))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        text = f"{place}: {str(error) or 'no answer'}"
        return Finding(Level.FAIL, "store", text, "start the server, or correct [store] url")
    return schema(place, version, revisions())


async def _postgres_version(url: str) -> str | None:
    import asyncpg

    parts = urlsplit(url)
    # What SQLAlchemy calls them, and asyncpg; what else stands there is for SQLAlchemy alone.
    names = {"ssl": "sslmode", "host": "host", "port": "port"}
    query = urlencode([(names[key], value) for key, value in parse_qsl(parts.query) if key in names])
    connection = await asyncpg.connect(parts._replace(scheme="postgresql", query=query).geturl())
    try:
        if await connection.fetchval("select to_regclass('alembic_version')") is None:
            return None
        version: str | None = await connection.fetchval("select version_num from alembic_version")
        return version
    finally:
        await connection.close()


def revisions() -> list[str]:
    """Return the migrations that this program brings, in order; a file's name begins with its version."""
    scripts = config.bundled("migrations") / "versions"
    return sorted(file.name.partition("_")[0] for file in scripts.glob("[0-9]*.py"))


def schema(place: str, version: str | None, known: list[str]) -> Finding:
    """Return what a start will make of a database at `version` (None: empty), given the known migrations."""
    if version is None:
        return Finding(Level.OK, "store", f"{place} is empty; the first start sets it up")
    if version not in known:
        return Finding(
            Level.FAIL,
            "store",
            f"{place} has schema {version}, which is newer than this program knows",
            "install the newer version again, or restore the backup from before it",
        )
    if version != known[-1]:
        return Finding(
            Level.OK, "store", f"{place} has schema {version}; the next start brings it to {known[-1]}"
        )
    return Finding(Level.OK, "store", f"{place} has schema {version}, the newest")


def _http(loaded: Loaded) -> Iterator[Finding]:
    http = loaded.settings.http
    place = f"{http.host}:{http.port}"
    if not http.enabled:
        yield Finding(Level.OK, "http", "off")
    elif problem := _bind_problem(http):
        if _is_gateway(http):
            yield Finding(Level.OK, "http", f"a gateway answers at {place}; a second one needs another port")
        else:
            yield Finding(
                Level.FAIL,
                "http",
                f"{place}: {problem}",
                "set [http] port to a free one, or host",
            )
    else:
        yield Finding(Level.OK, "http", f"{place} is free; the chat page and the API will be there")


def _bind_problem(http: HttpSettings) -> str:
    """Return why the address can't be listened on, or ""."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(http.host, http.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_gateway(http: HttpSettings) -> bool:
    from http.client import HTTPConnection, HTTPException

    try:
        with closing(HTTPConnection(http.here, http.port, timeout=2)) as connection:
            connection.request("GET", "/healthz")
            body = json.loads(connection.getresponse().read(1000))
            return isinstance(body, dict) and body.get("status") == "live"
    except (OSError, HTTPException, ValueError):
        return False


def _sandbox(loaded: Loaded) -> Iterator[Finding]:
    """Say what the model's commands run in, by a test of it."""
    settings = loaded.settings.exec
    if settings.mode == "deny" or os.name != "posix":
        reason = "by [exec] mode" if settings.mode == "deny" else "not on this system"
        yield Finding(Level.OK, "exec", f"commands of the model are off: {reason}")
        return
    from gateway.tools.sandbox import Tier, open_sandbox

    sandbox = open_sandbox(settings.sandbox)
    if sandbox.tier is not Tier.NONE:
        yield Finding(Level.OK, "exec", f"the model's commands run in {sandbox.note} (mode {settings.mode})")
        return
    remedy = "install bubblewrap (or pip install 'crayfish-gateway[sandbox]'), or set [exec] sandbox"
    yield Finding(Level.WARN, "exec", f"mode {settings.mode}, {sandbox.note}", remedy)


def _mcp(loaded: Loaded) -> Iterator[Finding]:
    """Look at how the MCP servers are set up, without starting any."""
    from gateway.mcp.servers import MISSING, is_installed
    from gateway.mcp.target import Program, target

    wanted = {name: one for name, one in loaded.settings.mcp.servers.items() if one.enabled}
    if wanted and not is_installed():
        text, _, remedy = MISSING.partition(": ")
        yield Finding(Level.FAIL, "mcp", text, remedy)
    for name, one in wanted.items():
        where = target(name, one, loaded.home, os.environ)
        if isinstance(where, Program):
            try:
                yield Finding(Level.OK, "mcp", f"{name}: {where.path}{'' if one.ask else ', does not ask'}")
            except ToolError as error:
                remedy = f"install it, or correct [mcp.servers.{name}] command"
                yield Finding(Level.WARN, "mcp", f"{name}: {error}", remedy)
            continue
        parts = urlsplit(one.url)
        if one.headers and parts.scheme == "http" and not config.is_loopback(parts.hostname or ""):
            text = f"{name}: its headers go to {parts.hostname} without encryption"
            yield Finding(Level.WARN, "mcp", text, "use an address that begins with https://")
        else:
            yield Finding(Level.OK, "mcp", f"{name}: {parts.scheme}://{parts.netloc}")


def _mcp_answers(loaded: Loaded) -> Iterator[Finding]:
    """Start each MCP server, and ask it what it offers."""
    import asyncio

    from gateway.clock import SystemClock
    from gateway.mcp.servers import look

    try:
        seen = asyncio.run(look(loaded.settings.mcp, loaded.home, os.environ, SystemClock()))
    except ConfigError:
        return  # said already
    for one in seen:
        if one.problem:
            remedy = "start it by hand to see more, or set enabled = false"
            yield Finding(Level.WARN, "mcp", f"{one.name}: {one.problem}", remedy)
        elif one.enabled:
            yield Finding(Level.OK, "mcp", f"{one.name}: {len(one.tools)} tools, in {one.seconds:.1f} s")
        for text in one.left_out:
            yield Finding(Level.WARN, "mcp", f"{one.name}: {text}")


def _access(loaded: Loaded) -> Iterator[Finding]:
    owners, known = loaded.settings.access.owners, config.ChannelSettings.model_fields
    for owner in owners:
        if owner.partition(":")[0] not in known:
            text = f'"{owner}" in [access] owners names no platform'
            yield Finding(Level.WARN, "access", text, f"begin it with one of: {', '.join(known)}")


def _open_doors(loaded: Loaded) -> Iterator[Finding]:
    """Warn of a channel that anybody may use as much as they like."""
    channels, limits = loaded.settings.channels, loaded.settings.limits
    bots: dict[str, ChannelAccess] = {**channels.telegram.bots(), **channels.slack.bots()}
    capped = limits.per_sender_per_minute.guests or limits.daily_tokens or limits.daily_usd
    for name, bot in bots.items():
        if not capped and bot.dm_policy == "open" and "*" in bot.allow_from:
            text = "anybody may write, as often as they like, and your model is asked each time"
            remedy = "set guests = 5 in [limits.per_sender_per_minute], or daily_tokens in [limits]"
            yield Finding(Level.WARN, name, text, remedy)


def _telegram(loaded: Loaded) -> Iterator[Finding]:
    telegram = loaded.settings.channels.telegram
    bots = telegram.bots()
    if not bots:
        known = telegram.token.get_secret_value()
        yield Finding(Level.OK, "telegram", "off" if known else "off: no token")
    for name, bot in bots.items():
        yield from _bot(name, bot, loaded.settings.access.owners)


def _bot(name: str, bot: TelegramAccount, owners: Iterable[str]) -> Iterator[Finding]:
    """Look at how one bot is set up, without asking the platform."""
    if not re.fullmatch(r"\d+:[A-Za-z0-9_-]{20,}", bot.token.get_secret_value()):
        text, remedy = "the token does not look like 123456:ABC-DEF…", "copy it again from @BotFather"
        yield Finding(Level.WARN, name, text, remedy)
        return
    way = "webhook" if bot.webhook_url else "long polling"
    yield Finding(Level.OK, name, f"token set, {way}, dm_policy {bot.dm_policy}")
    for problem in Policy.of(config.section_of(name), bot, owners).problems():
        yield Finding(Level.WARN, name, problem)
    if bot.local_files and not Path(bot.local_files).is_dir():
        remedy = "create it, or mount the folder of the Bot API server there"
        yield Finding(Level.WARN, name, f"local_files {bot.local_files} is no folder", remedy)


def _slack(loaded: Loaded) -> Iterator[Finding]:
    slack = loaded.settings.channels.slack
    bots = slack.bots()
    if not bots:
        known = slack.bot_token.get_secret_value()
        yield Finding(Level.OK, "slack", "off" if known else "off: no bot_token")
    for name, bot in bots.items():
        yield from _workspace_app(name, bot, loaded.settings.access.owners)


def _workspace_app(name: str, bot: SlackAccount, owners: Iterable[str]) -> Iterator[Finding]:
    """Look at how one app is set up, without asking the platform."""
    shapes = [("bot_token", bot.bot_token, r"xoxb-[A-Za-z0-9-]{10,}", "OAuth & Permissions")]
    if bot.by_socket:
        shapes.append(("app_token", bot.app_token, r"xapp-[A-Za-z0-9-]{10,}", "Basic Information"))
    else:
        shapes.append(("signing_secret", bot.signing_secret, r"[0-9a-zA-Z]{16,}", "Basic Information"))
    wrong = [(key, page) for key, secret, shape, page in shapes if not _has_shape(secret, shape)]
    for key, page in wrong:
        remedy = f"copy it again from api.slack.com/apps, {page}"
        yield Finding(Level.WARN, name, f"{key} does not look like one", remedy)
    if not wrong:
        way = "Socket Mode" if bot.by_socket else "events over HTTP"
        yield Finding(Level.OK, name, f"tokens set, {way}, dm_policy {bot.dm_policy}")
    for problem in Policy.of(config.section_of(name), bot, owners).problems():
        yield Finding(Level.WARN, name, problem)


def _has_shape(secret: SecretStr, shape: str) -> bool:
    return re.fullmatch(shape, secret.get_secret_value()) is not None


def _model(model: ModelSettings, env: Mapping[str, str]) -> Finding:
    """Say which model would be asked, without asking anybody."""
    from gateway.models.auto import configured
    from gateway.models.providers import PROVIDERS

    if model.dialect == "demo":
        return Finding(Level.OK, "model", "the demo model, chosen in the configuration")
    try:
        plan = configured(model, env)
    except ConfigError as error:
        return Finding(Level.FAIL, "model", str(error), "correct [model] in the config file")
    if plan:
        return Finding(Level.OK, "model", f"{plan.model} at {plan.base_url} ({plan.why})")
    keys = ", ".join(provider.env for provider in PROVIDERS)
    text = (
        "no key is set, so it will be a model server on this machine, "
        "or if none answers the demo model, which only echoes"
    )
    return Finding(Level.WARN, "model", text, f"set one of {keys}, or [model] in the config file")


def _other_models(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find which of the models that are named beside the usual one would keep the gateway from starting."""
    from gateway.models.auto import beside, configured

    try:
        first = configured(settings.model, env)
    except ConfigError:
        return
    if first is None:
        return
    named = [("[model] fallbacks", name) for name in settings.model.fallbacks]
    named += [
        ("[heartbeat] model", settings.heartbeat.model),
        ("[compaction] model", settings.compaction.model),
        ("[media] image_model", settings.media.image_model),
    ]
    named += [(f"[agents.{agent}] model", one.model) for agent, one in settings.agents.items()]
    for section, name in named:
        try:
            if name:
                beside(name, env, first, section)
        except ConfigError as error:
            yield Finding(Level.FAIL, "model", str(error), "correct it in the config file")


def _model_answers(model: ModelSettings, env: Mapping[str, str]) -> Finding:
    """Ask the model one short question."""
    import asyncio

    remedy = "check key, name and base_url in [model]"
    try:
        asked, answered = asyncio.run(asyncio.wait_for(_one_question(model, env), _MODEL_TIMEOUT))
    except (ConfigError, ModelError, TimeoutError) as error:
        text = f"no answer: {error}" if str(error) else f"no answer within {_MODEL_TIMEOUT:.0f} s"
        return Finding(Level.FAIL, "model", text, remedy)
    if answered != asked:
        return Finding(Level.WARN, "model", f"{asked} does not answer, {answered} does in its place", remedy)
    return Finding(Level.OK, "model", f"{asked} answers")


async def _one_question(model: ModelSettings, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the model that was asked and of the one that answered."""
    from gateway.clock import SystemClock
    from gateway.models.auto import open_model
    from gateway.models.base import Prompt
    from gateway.types import Kind, Sender, UserEntry

    clock = SystemClock()
    choice = await open_model(model, env, clock)
    try:
        question = UserEntry("Are you there?", Sender("doctor"), Kind.MESSAGE, clock.wall())
        reply = await choice.model.reply(Prompt(system="Answer with one word.", entries=(question,)))
    finally:
        await choice.model.close()
    return choice.model.name, reply.entry.model


def _integrity(loaded: Loaded) -> Iterator[Finding]:
    """Read the whole database file."""
    file = _sqlite_file(loaded.settings.store.url)
    if loaded.settings.store.url.startswith(POSTGRES) or not file.exists():
        return
    try:
        with closing(_read_only(file)) as connection:
            result = _one(connection, "pragma quick_check(1)")
    except sqlite3.Error as error:
        result = str(error)
    if result == "ok":
        yield Finding(Level.OK, "store", f"{file} is intact")
    else:
        yield Finding(
            Level.FAIL, "store", f"{file} is damaged: {result}", "stop the gateway and restore a backup"
        )


def _telegram_answers(loaded: Loaded) -> Iterator[Finding]:
    """Ask the Bot API who each bot is, and what else asks for its updates (getMe, getWebhookInfo)."""
    for name, bot in loaded.settings.channels.telegram.bots().items():
        yield from _bot_answers(name, bot)


_REMEDIES: Final = dict.fromkeys((401, 404), "copy the token again from @BotFather")


def _bot_answers(name: str, bot: TelegramAccount) -> Iterator[Finding]:
    from http.client import HTTPException
    from urllib.error import HTTPError

    try:
        me, webhook = _ask(bot, "getMe"), _ask(bot, "getWebhookInfo")
        yield Finding(Level.OK, name, f"{bot.api_base} knows us as @{me['username']}")
        yield from _contradictions(name, bot, me, webhook)
    except HTTPError as error:
        error.close()
        remedy = _REMEDIES.get(error.code, "check api_base" if error.code < 400 else "try again later")
        yield Finding(Level.FAIL, name, f"{bot.api_base} answers {error.code} {error.reason}", remedy)
    except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError) as error:
        remedy = "check the network, api_base and proxy"
        yield Finding(Level.FAIL, name, f"{bot.api_base} gives no answer: {error}", remedy)


def _ask(bot: TelegramAccount, method: str) -> JsonObject:
    """Call a method of the Bot API. Raises: OSError, HTTPException, ValueError, LookupError, TypeError."""
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        """Follows no redirect, as the gateway does: the address holds the token."""

        def redirect_request(self, *_: Any) -> None:  # noqa: ANN401 - what urllib hands over
            return None

    proxy = bot.proxy.get_secret_value()
    opener = build_opener(ProxyHandler({"http": proxy, "https": proxy} if proxy else None), Stay)
    request = Request(f"{bot.api_base}/bot{bot.token.get_secret_value()}/{method}", b"")  # noqa: S310 - http(s) only, by config
    with opener.open(request, timeout=_TIMEOUT) as answer:
        result: JsonObject = json.load(answer)["result"]
    return result


def _contradictions(
    name: str, bot: TelegramAccount, me: JsonObject, webhook: JsonObject
) -> Iterator[Finding]:
    """Name what the platform and the configuration do not agree on."""
    if webhook.get("url") and not bot.webhook_url:
        remedy = "the gateway removes it when it starts; make sure that no other program needs it"
        yield Finding(Level.WARN, name, "a webhook was left behind, so nobody may poll", remedy)
    if bot.webhook_url and (problem := webhook.get("last_error_message")):
        text = f"posts to the webhook fail: {problem}"
        yield Finding(Level.WARN, name, text, "check webhook_url and what stands before the gateway")
    if bot.hears_all and not me.get("can_read_all_group_messages"):
        yield Finding(
            Level.WARN,
            name,
            "a group has require_mention = false, but privacy mode hides what is said there",
            "/setprivacy at @BotFather, then add the bot to the group again; or make it an admin there",
        )


def _slack_answers(name: str, bot: SlackAccount, needed: Sequence[str]) -> Iterator[Finding]:
    """Ask the Web API who we are and what we may do (Web API auth.test and its header x-oauth-scopes)."""
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    token = {"Authorization": f"Bearer {bot.bot_token.get_secret_value()}"}
    try:
        with urlopen(Request(f"{bot.api_base}auth.test", b"", token), timeout=_TIMEOUT) as answer:  # noqa: S310 - http(s) only, by config
            me, header = json.load(answer), answer.headers.get("x-oauth-scopes")
    except (OSError, HTTPException, ValueError) as error:
        yield Finding(
            Level.FAIL, name, f"{bot.api_base} gives no answer: {error}", "check the network and api_base"
        )
        return
    if not isinstance(me, dict) or not me.get("ok"):
        problem = me.get("error") if isinstance(me, dict) else "no object"
        remedy = "install the app again at api.slack.com/apps and copy its bot token"
        yield Finding(Level.FAIL, name, f"{bot.api_base} answers {problem}", remedy)
        return
    yield Finding(Level.OK, name, f"{bot.api_base} knows us as {me.get('user')} in {me.get('team')}")
    if header is not None and (missing := lacking(needed, header)):
        remedy = "add them at api.slack.com/apps, OAuth & Permissions (`crayfish slack manifest` prints all)"
        text = f"the bot token lacks {', '.join(missing)}"
        yield Finding(Level.WARN, name, text, f"{remedy}, and install the app again")


def lacking(needed: Iterable[str], granted: str) -> list[str]:
    """Return which scopes are not in a list that is separated by commas."""
    return sorted(set(needed) - {one.strip() for one in granted.split(",")})


_CHECKS: tuple[Check, ...] = (
    _config,
    _secrets,
    _home,
    _disk,
    _store,
    _workspace,
    _http,
    _sandbox,
    _mcp,
    _access,
    _open_doors,
    _telegram,
    _slack,
)
_DEEP: tuple[Check, ...] = (_integrity, _telegram_answers, _mcp_answers)
