"""The HTTP face: a small API, a stream of events for each session, and the page that uses both."""

from adapters.web.reads import Reads
from adapters.web.server import Web

__all__ = ["Reads", "Web"]
