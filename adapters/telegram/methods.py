"""A request of the Bot API, before it is sent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO

from aiohttp import FormData

from adapters.telegram.text import clean
from gateway.types import Json

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""What no header may hold."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that goes along, and the name that people see."""

    content: bytes
    name: str


@dataclass(frozen=True, slots=True)
class Method:
    """`sendMessage` and the like with its parameters; those that are None are left out.

    A parameter names one of `files` as `attach://<key>` (Bot API, Sending files).
    """

    name: str
    params: Mapping[str, Json]
    files: Mapping[str, Upload] = field(default_factory=dict)

    def form(self) -> FormData:
        """Return the body: texts as they are, everything else as JSON.

        Half a character would be refused as invalid UTF-8, and a control character in the name of a file
        ends the header that tells it: neither may cost the message.
        """
        form = FormData(quote_fields=False)
        for name, value in self.params.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                form.add_field(name, clean(text))
        for name, file in self.files.items():
            form.add_field(name, BytesIO(file.content), filename=_CONTROL.sub("_", clean(file.name)))
        return form
