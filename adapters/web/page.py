"""The files of the page, and the headers that tell a browser what it may do with an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TypeAlias

from aiohttp import web

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def assets() -> dict[str, Handler]:
    """Return a handler for each path of the page; its files are small and stay in memory."""
    here = files(__package__)
    return {path: _asset(here.joinpath(name).read_bytes(), kind) for path, (name, kind) in FILES.items()}


async def harden(_: web.Request, response: web.StreamResponse) -> None:
    """Give every answer the headers above, unless it brings its own; nobody is told what runs here."""
    response.headers["Server"] = "crayfish"
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _asset(body: bytes, kind: str) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8")

    return answer
