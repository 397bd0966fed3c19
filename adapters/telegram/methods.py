"""A request of the Bot API, before it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO

from aiohttp import FormData

from gateway.types import Json


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
        """Return the body: texts as they are, everything else as JSON."""
        form = FormData(quote_fields=False)
        for name, value in self.params.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                form.add_field(name, text)
        for name, file in self.files.items():
            form.add_field(name, BytesIO(file.content), filename=file.name)
        return form
