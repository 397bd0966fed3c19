"""What a failed request over HTTP tells about whether it left, and when it may be sent again."""

from __future__ import annotations

import math
from typing import Final

from aiohttp import ClientConnectorError, ClientHttpProxyError, ConnectionTimeoutError, InvalidURL

from gateway.types import Json

NOT_SENT: Final = (ClientConnectorError, ClientHttpProxyError, ConnectionTimeoutError, InvalidURL)
"""Failures after which no byte of the request has left; any other may have reached the platform."""

_LONGEST: Final = 86_400.0
"""Seconds that a request to wait may ask for: what is waited out must end while somebody still cares."""


def asked(told: Json) -> float:
    """Return for how many seconds we are asked to wait, 0 if that can't be told; some send it as text."""
    try:
        seconds = 0.0 if isinstance(told, bool) else float(told)
    except (OverflowError, TypeError, ValueError):
        return 0.0
    return min(seconds, _LONGEST) if math.isfinite(seconds) and seconds > 0 else 0.0
