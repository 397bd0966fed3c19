"""The Web API over HTTP, on slack_sdk's client, with our errors and without its own repeats."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Final
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from adapters import waiting
from adapters.markdown.text import clean
from adapters.slack.errors import Gone, Refused
from gateway.clock import Clock
from gateway.errors import ChannelStopped, DeliveryError, DeliveryRetry, DeliveryUnsure, SendError
from gateway.types import Json, JsonObject

CONNECT: Final = 5.0
"""Seconds for a new connection: a network that is back must be noticed within ten."""

LIMIT: Final = 60.0
"""Seconds for a call; a late success would be repeated, so writes get more than reads need (spec SL-5)."""

DOWNLOAD: Final = 120.0
"""Seconds for a whole file."""

BUSY: Final = 30.0
"""Seconds to wait after a 429 that does not say how long (spec SL-5)."""

_FAILURES: Final = (
    *(SlackClientError, ClientError, OSError, ValueError, TypeError),
    *(AttributeError, RecursionError),  # slack_sdk meets an answer that is a list, or nested without end
)
"""What a call raises."""

_LOCKED_OUT: Final = frozenset(
    {
        *(
            "account_inactive",
            "app_not_installed",
            "ekm_access_denied",
            "invalid_auth",
            "not_allowed_token_type",
        ),
        *("not_authed", "org_login_required", "team_access_not_granted", "token_expired", "token_revoked"),
    }
)
"""Errors that no call with this token survives (Web API, common errors)."""

_GONE: Final = frozenset(
    {
        *("cannot_dm_bot", "channel_not_found", "is_archived", "messages_tab_disabled"),
        *("not_in_channel", "restricted_action", "user_disabled", "user_not_found"),
    }
)
"""Errors of a post that tell that nothing arrives in this chat (Web API chat.postMessage)."""

_IN_DOUBT: Final = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
"""Errors after which the call may have worked all the same (Web API, common errors)."""

_HTML: Final = (b"<!doctype html", b"<html")

quiet: Final = logging.getLogger("slack_sdk.crayfish")
"""For the libraries, which write whole requests to a logger without a level of its own, and warn of tokens in
the environment that are not meant for them."""
quiet.setLevel(logging.ERROR)


class SlackApi:
    """One bot's Web API.

    Every method raises: ChannelStopped (the token is refused), DeliveryRetry (surely not taken),
    DeliveryUnsure (may have been taken), Refused, Gone (refused for good). No text holds a token.
    """

    def __init__(self, bot_token: str, api_base: str, clock: Clock) -> None:
        """`api_base` ends with a slash; nothing is sent yet. Needs a running event loop."""
        self._clock = clock
        self._secrets = [bot_token]
        self._token = bot_token
        self._base = api_base
        self.proxy = proxy_of(api_base)
        # Without a jar: what a file server sets must not travel with the next call.
        limits = ClientTimeout(total=LIMIT, connect=CONNECT)
        self.http = ClientSession(timeout=limits, cookie_jar=DummyCookieJar())
        self._client = AsyncWebClient(
            token=bot_token, base_url=api_base, session=self.http, retry_handlers=[], logger=quiet
        )
        self._client.proxy = self.proxy
        self._free: dict[str, float] = {}

    async def call(self, method: str, **args: Json) -> JsonObject:
        """Call a method; return its answer. Arguments that are None are left out; `token` replaces the bot's.

        A method that was answered with 429 is not called again before its time (spec SL-5).
        """
        if (wait := self._free.get(method, 0.0) - self._clock.now()) > 0:
            raise DeliveryRetry(f"Slack asks to wait with {method}", after=wait)
        self._free.pop(method, None)
        token = args.pop("token", self._token)
        try:
            answer = await self._client.api_call(
                method, data=_form(args), headers={"Authorization": f"Bearer {token}"}
            )
        except _FAILURES as error:
            failure = self._translate(method, error)
        else:
            if isinstance(answer.data, dict):
                return answer.data
            failure = DeliveryUnsure(f"Slack's answer to {method} is not an object")
        if isinstance(failure, DeliveryRetry) and failure.after:
            self._free[method] = self._clock.now() + failure.after
        # Raised out here it has no context: a URL with a ticket may be in the texts of what aiohttp raises.
        raise failure

    async def ticket(self, app_token: str) -> str:
        """Return the URL of one socket, good for one connection (Web API apps.connections.open)."""
        if app_token not in self._secrets:
            self._secrets.append(app_token)
        answer = await self.call("apps.connections.open", token=app_token)
        if not isinstance(url := answer.get("url"), str):
            raise DeliveryUnsure("Slack's answer to apps.connections.open has no url")
        return url

    async def download(self, url: str, most: int, *, mime: str = "") -> bytes:
        """Return a file that somebody sent, at most `most` bytes; `mime` is what it should be.

        Raises: DeliveryError with a text for people, DeliveryRetry.
        """
        if not self._ours(url):
            raise DeliveryError("it lies outside of Slack, where the bot's token must not be shown")
        content = bytearray()
        try:
            # A redirect is not followed: it leads to the sign-in page (slack-in-12).
            async with self.http.get(
                url,
                headers={"Authorization": f"Bearer {self._token}"},
                timeout=ClientTimeout(total=DOWNLOAD, connect=CONNECT),
                allow_redirects=False,
                proxy=self.proxy,
            ) as answer:
                failure = _no_file(answer.status, answer.headers, mime)
                async for chunk in answer.content.iter_any():
                    if failure is not None:
                        break
                    content += chunk
                    if len(content) > most:
                        failure = DeliveryError(f"it is larger than {most / 1_000_000:g} MB")
        except (ClientError, OSError, ValueError) as error:
            failure = DeliveryRetry(f"the file could not be fetched: {type(error).__name__}")
        if failure is None and "html" not in mime and content[:100].lstrip().lower().startswith(_HTML):
            failure = DeliveryError(_SIGN_IN)
        if failure is not None:
            raise failure
        return bytes(content)

    async def upload(self, url: str, content: bytes) -> None:
        """Hand over the bytes of a file to an address of files.getUploadURLExternal.

        Raises: DeliveryRetry, Refused.
        """
        limits = ClientTimeout(total=DOWNLOAD, connect=CONNECT)
        try:
            # As a file: bytes would be written in one piece, which holds up everybody.
            async with self.http.post(url, data=BytesIO(content), timeout=limits, proxy=self.proxy) as answer:
                status = answer.status
        except (ClientError, OSError, ValueError) as error:
            # Nobody sees a file before files.completeUploadExternal, so it may be sent again.
            status, told = 0, type(error).__name__
        else:
            told = f"HTTP {status}"
        if 400 <= status < 500 and status not in (408, 429):
            raise Refused(f"Slack does not take the file: {told}", "upload_refused")
        if status != 200:
            raise DeliveryRetry(f"Slack did not take the file: {told}")

    async def close(self) -> None:
        """Close all connections."""
        await self.http.close()

    def _ours(self, url: str) -> bool:
        host, own = urlsplit(url).hostname or "", urlsplit(self._base).hostname
        slack = urlsplit(url).scheme == "https" and f".{host}".endswith((".slack.com", ".slack-edge.com"))
        return host == own or slack

    def _translate(self, method: str, error: Exception) -> SendError:
        """Return our word for a failure of a call (reliability 3.1, fact d)."""
        match error:
            case SlackApiError():
                return self._refusal(method, error)
            case _ if isinstance(error, waiting.NOT_SENT):
                return DeliveryRetry(f"Slack could not be reached for {method}: {type(error).__name__}")
            case _:
                return DeliveryUnsure(f"no answer of Slack to {method}: {type(error).__name__}")

    def _refusal(self, method: str, error: SlackApiError) -> SendError:
        response = error.response
        status = int(getattr(response, "status_code", None) or getattr(response, "status", 0) or 0)
        answer = getattr(response, "data", None)
        answer = answer if isinstance(answer, dict) else {}
        code = str(answer.get("error") or "")
        if status == 429 or code in ("ratelimited", "rate_limited"):
            after = waiting.asked(response.headers.get("Retry-After")) or BUSY
            return DeliveryRetry(f"Slack asks to wait with {method}", after=after)
        if not code or status >= 500 or code in _IN_DOUBT:
            return DeliveryUnsure(f"no answer of Slack to {method} that can be trusted: HTTP {status} {code}")
        text = clean(f"Slack refused {method}: {'. '.join((code, *self._details(answer)))}")
        if code in _LOCKED_OUT or (method == "apps.connections.open" and code == "missing_scope"):
            return ChannelStopped(f"{text}. {_remedy(method, code)}")
        return Gone(text, code) if code in _GONE else Refused(text, code)

    def _details(self, answer: JsonObject) -> Iterator[str]:
        """Yield what Slack says about an error beyond its code; an error may quote a token."""
        found = [f"{name}: {answer[name]}" for name in ("needed", "provided") if answer.get(name)]
        metadata = answer.get("response_metadata")
        messages = metadata.get("messages") if isinstance(metadata, dict) else None
        found += map(str, messages if isinstance(messages, list) else answer.get("errors") or ())
        for one in found:
            for secret in self._secrets:
                one = one.replace(secret, "<token>")  # noqa: PLW2901 - all of them
            yield one


def proxy_of(url: str) -> str | None:
    """Return the HTTP proxy that the environment names for an address; this machine is reached directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get({"wss": "https", "ws": "http"}.get(parts.scheme, parts.scheme)) or None


def _form(args: Mapping[str, Json]) -> dict[str, str]:
    """Return arguments as a form, which every method takes, whatever it reads besides (Web API basics).

    Half a character can't be sent, and must not cost the message.
    """
    return {
        name: clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in args.items()
        if value is not None
    }


def _remedy(method: str, code: str) -> str:
    if method == "apps.connections.open":
        return (
            "app_token must be an app-level token (xapp-…) with the scope connections:write: make one at "
            "api.slack.com/apps, Basic Information, App-Level Tokens, configure it and restart."
        )
    if code == "not_allowed_token_type":
        return (
            "bot_token must be the Bot User OAuth Token (xoxb-…) of api.slack.com/apps, OAuth & Permissions."
        )
    return (
        "Install the app again at api.slack.com/apps, OAuth & Permissions, put its Bot User OAuth Token "
        "(xoxb-…) into bot_token and restart."
    )


_SIGN_IN: Final = "Slack showed its sign-in page instead of the file: the bot needs the scope files:read"


def _no_file(status: int, headers: Mapping[str, str], mime: str) -> SendError | None:
    """Return why an answer is not the file, None if it may be."""
    if status == 429 or status >= 500:
        return DeliveryRetry(f"the file could not be fetched: HTTP {status}")
    if 300 <= status < 400 or status in (401, 403):
        return DeliveryError(_SIGN_IN)
    if status != 200:
        return DeliveryError(f"Slack does not have the file any more (HTTP {status})")
    page = headers.get("Content-Type", "").startswith("text/html") and "Content-Disposition" not in headers
    return DeliveryError(_SIGN_IN) if page and "html" not in mime else None
