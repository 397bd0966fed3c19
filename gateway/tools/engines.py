"""The search engines behind `web_search`: how each is asked, and how its answer is read."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from urllib.parse import urlencode

from gateway.errors import ToolError
from gateway.tools.fetch import Answer, Fetcher, Request
from gateway.tools.netguard import Target
from gateway.types import Json, JsonObject

LONGEST_SNIPPET = 400

_TAG = re.compile(r"<[^<>]{0,200}>")
_KEY_REFUSED = "the search engine refuses the key; the owner must look at [web] search_key."
_FULL = "the search engine takes no more questions for now; answer without it, or try again later."


@dataclass(frozen=True, slots=True)
class Question:
    """What is searched. `since` is `day`, `week`, `month`, `year` or ""."""

    text: str
    count: int
    since: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """One result, as the engine wrote it."""

    title: str
    url: str
    snippet: str


class Engine(Protocol):
    """Something that searches the web."""

    async def search(self, question: Question) -> Sequence[Found]:
        """Return results, the best first. Raises: ToolError."""
        ...


Ask: TypeAlias = Callable[[str, str, Question], Request]
"""Makes the request of a base address and a key."""

Read: TypeAlias = Callable[[Json], Sequence[Found]]
"""Reads an answer; raises KeyError, TypeError or AttributeError if it is not of the form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An engine that is asked over HTTP and answers with JSON."""

    fetcher: Fetcher
    base: str
    ask: Ask
    read: Read
    forbidden: str = _KEY_REFUSED
    key: str = field(default="", repr=False)

    async def search(self, question: Question) -> Sequence[Found]:
        """Return results, the best first. Raises: ToolError, which holds neither key nor answer."""
        answer = await self.fetcher.fetch(self.ask(self.base, self.key, question))
        self._check(answer)
        try:
            found = self.read(json.loads(answer.body))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ToolError("the search engine's answer can't be read; try again later.") from None
        return found[: question.count]

    def _check(self, answer: Answer) -> None:
        match answer.status:
            case 200:
                return
            case 401 | 403:
                raise ToolError(self.forbidden)
            case 402 | 429 | 432 | 433:  # the last two are Tavily's, for plans
                raise ToolError(_FULL)
            case 400 | 414 | 422:
                raise ToolError(
                    "the search engine did not understand the query; make it shorter and plainer."
                )
            case status:
                raise ToolError(f"the search engine failed with status {status}; try again later.")


def _stay(_here: Target, there: Target) -> None:
    raise ToolError(f"the search engine has moved to {there.origin}; the owner must set [web] search_url.")


def _brave(base: str, key: str, question: Question) -> Request:
    asked = {"q": question.text, "count": str(question.count), "text_decorations": "false"}
    if question.since:
        asked["freshness"] = f"p{question.since[0]}"
    url = f"{base}/res/v1/web/search?{urlencode(asked)}"
    headers = {"Accept": "application/json", "X-Subscription-Token": key}
    return Request(url=url, headers=headers, follow=_stay)


def _read_brave(answer: Json) -> Sequence[Found]:
    results = (answer.get("web") or {}).get("results") or []
    return [Found(one["title"], one["url"], one.get("description") or "") for one in results]


def _tavily(base: str, key: str, question: Question) -> Request:
    asked: JsonObject = {"query": question.text, "max_results": question.count}
    if question.since:
        asked["time_range"] = question.since
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body = json.dumps(asked).encode()
    return Request(url=f"{base}/search", method="POST", headers=headers, body=body, follow=_stay)


def _searxng(base: str, key: str, question: Question) -> Request:
    asked = {"q": question.text, "format": "json"}
    if question.since:
        asked["time_range"] = question.since
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    return Request(url=f"{base}/search?{urlencode(asked)}", headers=headers, follow=_stay)


def _read_results(answer: Json) -> Sequence[Found]:
    """Read what Tavily and SearXNG answer."""
    return [Found(one.get("title") or "", one["url"], one.get("content") or "") for one in answer["results"]]


ADDRESSES = {"brave": "https://api.search.brave.com", "tavily": "https://api.tavily.com"}
"""Where an engine is, if the owner says nothing else."""

_NO_JSON = (
    "SearXNG gives no JSON; the owner must add json to search.formats in its settings.yml, or set "
    "[web] search_key if a proxy asks for one."
)


def api(name: str, fetcher: Fetcher, base: str, key: str) -> Engine:
    """Return one of `brave`, `tavily` and `searxng` at an address."""
    if name == "brave":
        return Api(fetcher=fetcher, base=base, key=key, ask=_brave, read=_read_brave)
    if name == "tavily":
        return Api(fetcher=fetcher, base=base, key=key, ask=_tavily, read=_read_results)
    return Api(fetcher=fetcher, base=base, key=key, ask=_searxng, read=_read_results, forbidden=_NO_JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ddgs:
    """The library of that name, which reads the pages of several engines, and needs no key.

    It connects by itself, only to those engines. `authority` is a file of a certificate that is trusted
    instead of the usual ones.
    """

    proxy: str | None = None
    authority: str = ""

    async def search(self, question: Question) -> Sequence[Found]:
        """Return results, the best first. Raises: ToolError."""
        try:
            async with asyncio.timeout(30):
                return await asyncio.to_thread(self._search, question)
        except TimeoutError:
            raise ToolError("the search engines gave no answer; try once more later.") from None

    def _search(self, question: Question) -> Sequence[Found]:
        try:
            from ddgs import DDGS  # noqa: PLC0415 - the extra "search"
            from ddgs.exceptions import DDGSException, TimeoutException  # noqa: PLC0415 - the same
        except ImportError:
            raise ToolError(
                "the owner must run pip install 'crayfish-gateway[search]', or set [web] search otherwise."
            ) from None
        engines = DDGS(proxy=self.proxy, timeout=8, verify=self.authority or True)
        try:
            results = engines.text(
                question.text, max_results=question.count, timelimit=question.since[:1] or None
            )
        except TimeoutException:
            raise ToolError("the search engines gave no answer; try once more later.") from None
        except DDGSException as error:
            if "No results" in str(error):
                return []
            raise ToolError(_FULL) from None
        return [Found(one["title"], one["href"], one.get("body") or "") for one in results]


def tidy(text: str, most: int) -> str:
    """Return an engine's words on one line, without marks, at most so many characters."""
    plain = " ".join(html.unescape(_TAG.sub("", text)).split())
    return plain if len(plain) <= most else f"{plain[: most - 1].rstrip()}…"
