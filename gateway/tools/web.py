"""The tools that look at the web: `web_fetch` reads a page, `web_search` finds some."""

from __future__ import annotations

import asyncio
import hashlib
import http
import json
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from gateway.clock import Clock
from gateway.config import WebSettings
from gateway.errors import ToolDenied, ToolError
from gateway.fence import fenced
from gateway.tools import extract
from gateway.tools.base import Ask, Group, ToolContext
from gateway.tools.engines import ADDRESSES, LONGEST_SNIPPET, Ddgs, Engine, Found, Question, api, tidy
from gateway.tools.fetch import Answer, Fetcher, Request
from gateway.tools.netguard import PORTS, Guard, Rules, Target, read
from gateway.tools.schema import FunctionTool, tool
from gateway.types import Chat, Replay

FRESH = 15 * 60.0
"""Seconds for which a page or a search is not asked for again (agent 4.1)."""

LONGEST_QUERY = 400
MOST_RESULTS = 10

_PAGES = 32
_SEARCHES = 64
_TURNS = 256
_READERS = 3
"""Pages that are read at the same time; each takes a process."""

_TEXT = re.compile(
    r"text/[\w.+-]+|application/(?:[\w.+-]+\+)?(?:json|xml|yaml)"
    r"|application/(?:javascript|ecmascript|x-javascript|x-ndjson|jsonl|x-yaml|toml|x-sh|sql)|"
)
_HTML = re.compile(r"text/html|application/xhtml\+xml")
_MARKUP = re.compile(
    rb"\s*(?:<!--.{0,200}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_CHARSET_OF = re.compile(
    rb"(?:<meta\s[^<>]{0,200}charset|<\?xml[^<>]{0,100}encoding)\s*=\s*[\"']?\s*([\w-]{1,40})", re.IGNORECASE
)
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(?:le|be)?|iso-?8859-\d{1,2}|windows-(?:125\d|874)|cp125\d|koi8-[ru]|gbk|gb2312|gb18030|big5"
    r"|big5-hkscs|shift[_-]jis|sjis|euc-(?:jp|kr)|iso-2022-jp|macintosh|ibm866|tis-620"
)
_AS_BROWSERS = {"iso-8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "windows-874": "cp874"}
_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

Mode = Literal["markdown", "text", "raw"]
Since = Literal["", "day", "week", "month", "year"]
T = TypeVar("T")


@dataclass(slots=True)
class Recent(Generic[T]):
    """Keeps the newest so many things for some time, in seconds of a steady clock."""

    most: int
    lasts: float = FRESH
    _kept: OrderedDict[Hashable, tuple[float, T]] = field(default_factory=OrderedDict)

    def get(self, key: Hashable, now: float) -> T | None:
        """Return what is kept, None if there is nothing any more."""
        until, value = self._kept.get(key, (0.0, None))
        return value if now < until else None

    def put(self, key: Hashable, value: T, now: float) -> None:
        """Keep something, in place of the oldest if there is no room."""
        self._kept[key] = (now + self.lasts, value)
        self._kept.move_to_end(key)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read; `cut`: there was more than is taken of any page."""

    url: str
    title: str
    text: str
    cut: bool


@dataclass(slots=True, kw_only=True)
class Web:
    """What both tools share.

    `engine` is None if there is nothing to search with; `seconds` is what reading one page may take.
    """

    fetcher: Fetcher
    clock: Clock
    engine: Engine | None = None
    results: int = 5
    max_chars: int = 15_000
    seconds: int = extract.SECONDS
    pages: Recent[Page] = field(default_factory=lambda: Recent(_PAGES))
    searches: Recent[Sequence[Found]] = field(default_factory=lambda: Recent(_SEARCHES))
    shown: Recent[frozenset[str]] = field(default_factory=lambda: Recent(_TURNS))
    readers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_READERS))

    def is_known(self, context: ToolContext, target: Target) -> bool:
        """Return whether fetching a URL can tell its host nothing that was read in this turn (inject-013).

        The person who asks has named the host, or a search of this turn gave exactly this URL, or it was
        fetched a short time ago.
        """
        now = self.clock.now()
        shown = self.shown.get((context.conversation_id, context.turn), now) or frozenset()
        return (
            (context.chat is Chat.DIRECT and names(context.said, target.host))
            or target.url in shown
            or any(self.pages.get((target.url, mode), now) for mode in ("markdown", "text", "raw"))
        )

    def vet(self, context: ToolContext, url: str) -> Target:
        """Read a URL that this person may fetch. Raises: ToolDenied."""
        target = self.fetcher.guard.rules.vet(url)
        if self.fetcher.guard.rules.excepts(target) and not context.is_owner:
            raise ToolDenied(f"{target.host} is in the owner's network; only the owner reads it, in private.")
        return target

    async def page(self, context: ToolContext, url: str, mode: Mode) -> Page:
        """Return a page, from the memory of the last minutes if it is there. Raises: ToolError."""
        target = self.vet(context, url)
        known = self.pages.get((target.url, mode), self.clock.now())
        if known is not None:
            return known
        answer = await self.fetcher.fetch(
            Request(
                url=target.url,
                fits=lambda kind: _TEXT.fullmatch(kind) is not None,
                follow=self._may_follow(context),
            )
        )
        if not 200 <= answer.status < 300:
            raise ToolError(_failed(answer))
        page = await self._read(answer, mode)
        self.pages.put((target.url, mode), page, self.clock.now())
        return page

    def _may_follow(self, context: ToolContext) -> Callable[[Target, Target], None]:
        """Return what stops a redirect into the owner's network, or with what was read to a host unnamed."""
        rules = self.fetcher.guard.rules

        def follow(here: Target, there: Target) -> None:
            if rules.excepts(there) and not rules.excepts(here):
                raise ToolDenied(f"{here.host} sends on into the owner's network, to {there.url}")
            same = here.host.removeprefix("www.") == there.host.removeprefix("www.")
            if context.has_read and not same and not self.is_known(context, there):
                raise ToolError(f"{here.host} sends on to another host; call web_fetch with {there.url}")

        return follow

    async def _read(self, answer: Answer, mode: Mode) -> Page:
        url, body = answer.target.url, answer.body
        is_html = _HTML.fullmatch(answer.kind) is not None or (not answer.kind and _MARKUP.match(body))
        if b"\0" in body[:1024] and not body.startswith(tuple(_BOMS)):
            raise ToolError(f"{url[:500]} holds no text.")
        text = await asyncio.to_thread(_decoded, body, answer.charset)
        if not is_html or mode == "raw":
            cut = answer.cut or len(text) > extract.LONGEST
            return Page(url, "", text[: extract.LONGEST], cut)
        async with self.readers:
            title, text, cut = await _extracted(text, url, mode, self.seconds)
        return Page(url, title, text, cut or answer.cut)

    async def found(self, context: ToolContext, question: Question) -> Sequence[Found]:
        """Return results that may be fetched, each once. Raises: ToolError."""
        if self.engine is None:
            raise ToolError("there is nothing to search with; the owner can set [web] search.")
        now = self.clock.now()
        found = self.searches.get(question, now)
        if found is None:
            found = self._fit(await self.engine.search(question))
            self.searches.put(question, found, self.clock.now())
        turn = (context.conversation_id, context.turn)
        shown = self.shown.get(turn, now) or frozenset()
        self.shown.put(turn, shown | {one.url for one in found}, now)
        return found

    def _fit(self, found: Sequence[Found]) -> Sequence[Found]:
        fit: dict[str, Found] = {}
        for one in found:
            try:
                url = self.fetcher.guard.rules.vet(one.url).url
            except ToolDenied:
                continue
            fit.setdefault(url, Found(tidy(one.title, 200), url, tidy(one.snippet, LONGEST_SNIPPET)))
        return tuple(fit.values())


def rules_of(settings: WebSettings) -> Rules:
    """Return which hosts may be reached."""
    return Rules(
        ports=frozenset(settings.ports),
        allow_hosts=frozenset(settings.allow_hosts),
        deny_hosts=frozenset(settings.deny_hosts),
        allow_private=frozenset(settings.allow_private),
    )


def open_web(settings: WebSettings, clock: Clock) -> Web:
    """Return the web as the owner has set it."""
    return Web(
        fetcher=Fetcher(guard=Guard(rules_of(settings))),
        clock=clock,
        engine=_engine(settings),
        results=settings.max_results,
        max_chars=settings.fetch_max_chars,
    )


def _engine(settings: WebSettings) -> Engine | None:
    if settings.search in ("", "ddgs"):
        return Ddgs() if settings.search else None
    base = settings.search_url or ADDRESSES[settings.search]
    place = read(base)
    # What the owner names is trusted, exactly as named, wherever it leads but to metadata (agent 6.5).
    private = frozenset({place.place} if settings.search_url else ())
    guard = Guard(Rules(ports=PORTS | {place.port}, allow_private=private))
    return api(settings.search, Fetcher(guard=guard), base, settings.search_key.get_secret_value())


def web_tools(web: Web) -> Sequence[FunctionTool]:
    """Return `web_fetch`, and `web_search` if there is something to search with."""
    return [_fetch_tool(web), *([_search_tool(web)] if web.engine is not None else [])]


def _fetch_tool(web: Web) -> FunctionTool:
    async def asks(context: ToolContext, url: str, offset: int = 0, mode: Mode = "markdown") -> Ask | None:
        del offset, mode
        target = web.vet(context, url)
        if not context.has_read or web.is_known(context, target):
            return None
        return Ask(
            title=f"Fetch a page of {target.host}",
            detail=target.url,
            binding=hashlib.sha256(f"web_fetch {target.url}".encode()).hexdigest(),
            rule=target.host,
            note="Files or memories were read in this turn, and the request could carry what they hold to "
            "this host, which nobody named.",
        )

    @tool(Replay.SAFE, Group.WEB, untrusted=True, asks=asks)
    async def web_fetch(context: ToolContext, url: str, offset: int = 0, mode: Mode = "markdown") -> str:
        """Read a public web page or text file.

        offset: characters to skip
        """
        page = await web.page(context, url, mode)
        return _shown(page, max(0, offset), web.max_chars)

    return web_fetch


def _search_tool(web: Web) -> FunctionTool:
    @tool(Replay.SAFE, Group.WEB, untrusted=True)
    async def web_search(context: ToolContext, query: str, count: int = 0, since: Since = "") -> str:
        """Search the web: titles, addresses and snippets. Read what matters with web_fetch.

        count: results, up to 10
        since: only what is newer than a day, week, month or year
        """
        words = " ".join(query.split())
        if not 0 < len(words) <= LONGEST_QUERY:
            raise ToolError(f"query must have 1 to {LONGEST_QUERY} characters.")
        most = min(count, MOST_RESULTS) if count > 0 else web.results
        found = await web.found(context, Question(words, most, since))
        if not found:
            return "Nothing was found; try other or fewer words."
        rows = [f"{n}. {one.title}\n{one.url}\n{one.snippet}".strip() for n, one in enumerate(found, 1)]
        return fenced("\n\n".join(rows), "results of a web search")

    return web_search


def names(said: str, host: str) -> bool:
    """Return whether a person's words name a host, with or without `www.`; a mail address does not."""
    for name in {host, _as_written(host)}:
        # Between Chinese characters there are no blanks, so only letters of ASCII belong to an ASCII host.
        word = "A-Za-z0-9_" if name.isascii() else r"\w"
        pattern = rf"(?<![{word}.@-])(?:www\.)?{re.escape(name.removeprefix('www.'))}(?![{word}-]|\.[{word}])"
        if re.search(pattern, said, re.IGNORECASE):
            return True
    return False


def _as_written(host: str) -> str:
    if "xn--" not in host:
        return host
    import idna  # noqa: PLC0415 - its tables are large, and hardly a name needs them

    try:
        return idna.decode(host)
    except UnicodeError:
        return host


def _shown(page: Page, offset: int, most: int) -> str:
    total = len(page.text)
    if offset and offset >= total:
        raise ToolError(f"the page has {total} characters; give a smaller offset.")
    end = min(total, offset + most)
    head = f"URL: {page.url[:500]}\n" + (f"Title: {page.title}\n" if page.title else "")
    text = fenced(f"{head}\n{page.text[offset:end] or '(no text)'}", "a web page")
    if end < total:
        return f"{text}\n[Characters {offset} to {end} of {total}; go on with offset={end}.]"
    return f"{text}\n[The page goes on, but no more of it is read.]" if page.cut else text


def _failed(answer: Answer) -> str:
    try:
        reason = f"{answer.status} {http.HTTPStatus(answer.status).phrase}"
    except ValueError:
        reason = str(answer.status)
    advice = "check the URL, or search for the page."
    if answer.status in (401, 402, 403, 407, 451):
        advice = "it does not want to be read by programs, or without a login; use another source."
    elif answer.status in (408, 425, 429) or answer.status >= 500:
        wait = f"in {answer.wait} seconds" if re.fullmatch("[0-9]{1,5}", answer.wait) else "later"
        advice = f"try once more {wait}, or use another source."
    return f"{answer.target.host} answered {reason}: {advice}"


def _decoded(body: bytes, charset: str) -> str:
    """Return text by its mark, its announced charset, what the page says itself, or as UTF-8."""
    for mark, name in _BOMS.items():
        if body.startswith(mark):
            return body.decode(name, "replace").removeprefix("\ufeff")
    said = _CHARSET_OF.search(body[:2048])
    for name in (charset, said[1].decode("ascii", "replace").lower() if said else ""):
        if _CHARSETS.fullmatch(name):
            try:
                return body.decode(_AS_BROWSERS.get(name, name), "replace")
            except LookupError:
                continue
    return body.decode("utf-8", "replace")


async def _extracted(page: str, url: str, mode: Mode, seconds: int) -> tuple[str, str, bool]:
    """Read HTML in a process of its own, which is killed when it takes too long (models 6)."""
    asked = json.dumps({"url": url, "mode": mode})
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-X", "utf8", extract.__file__, str(seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_plain_environment(os.environ),
    )
    try:
        async with asyncio.timeout(seconds * 3):
            out, _ = await child.communicate(f"{asked}\n{page}".encode("utf-8", "replace"))
        title, text, cut = json.loads(out)
    except (OSError, ValueError):  # a time-out is the first of them, the child's end the second
        raise ToolError("the page is too tangled to be read; try mode raw, or another source.") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return title, text, cut


def _plain_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what Python needs to find its libraries, and no secret."""
    kept = ("HOME", "PATH", "PYTHONPATH", "SYSTEMROOT", "LD_LIBRARY_PATH")
    return {name: environment[name] for name in kept if name in environment}
