"""A measurement that was interrupted, kept in a file: what was counted, and of which inputs."""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._files import write_atomically
from edgekit.quantize._histogram import BINS, Histogram

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["Keeper", "digest_of_feed"]

_SCHEMA = "edgekit.measuring/2"
# seconds between two states, and how many times as long as writing one takes
_EVERY = 5.0
_SPARE = 20.0


class Keeper:
    """Keeps the state of a measurement in a file every few seconds.

    Args:
        path: The file; None keeps nothing.
        model: The model.
        names: The tensors that are measured, in order.
    """

    def __init__(self, path: Path | None, model: Model, names: list[str]) -> None:
        self._path = path
        self._names = names
        self._next = time.monotonic() + _EVERY
        if path is not None:
            import onnxruntime

            parts = [_SCHEMA, BINS, onnxruntime.__version__, model.digest, names]
            self._identity = hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self) -> tuple[dict[str, Histogram], int, str] | str:
        """Returns histograms, inputs counted and their digest; or why not, empty for no file."""
        import numpy as np

        if self._path is None or not self._path.exists():
            return ""
        try:
            with self._path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                head = json.loads(bytes(archive["head"]))
                if head["identity"] != self._identity:
                    return "it is of another model or edgekit"
                return self._histograms(archive), int(head["done"]), str(head["inputs"])
        except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
            return "it is damaged"

    def _histograms(self, archive: Mapping[str, np.ndarray]) -> dict[str, Histogram]:
        ranges, has, counts = archive["ranges"], archive["has"], archive["counts"]
        if ranges.shape != (len(self._names), 6) or counts.shape != (int(has.sum()), 2 * BINS):
            raise ValueError("sizes")
        rows = iter(counts.astype("int64"))
        found = {}
        for name, ends, there in zip(self._names, ranges.tolist(), has, strict=True):
            low, high, top, zeros, sided, bottom = ends
            own = next(rows) if there else None
            found[name] = Histogram(low, high, top, own, int(zeros), bool(sided), bottom)
        return found

    def due(self) -> bool:
        """Tells whether a state should be written now."""
        return self._path is not None and time.monotonic() >= self._next

    def save(self, histograms: Mapping[str, Histogram], done: int, inputs: str) -> None:
        """Writes the state; the file is the old one or the new one, whatever happens."""
        import numpy as np

        if self._path is None:
            return
        began = time.monotonic()
        head = json.dumps({"identity": self._identity, "done": done, "inputs": inputs})
        values = list(histograms.values())
        there = [h.counts for h in values if h.counts is not None]
        counts = np.stack(there) if there else np.zeros((0, 2 * BINS), np.int64)
        narrow = not counts.size or counts.max() < 1 << 32
        with write_atomically(self._path) as path, path.open("wb") as file:
            np.savez(
                file,
                head=np.frombuffer(head.encode(), np.uint8),
                ranges=np.array([_ends(h) for h in values], np.float64),
                has=np.array([h.counts is not None for h in values]),
                counts=counts.astype(np.uint32) if narrow else counts,
            )
        spent = time.monotonic() - began
        self._next = began + spent + max(_EVERY, _SPARE * spent)

    def remove(self) -> None:
        """Removes the file: the measurement is finished."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _ends(h: Histogram) -> list[float]:
    return [h.low, h.high, h.top, h.zeros, h.sided, h.bottom]


def digest_of_feed(before: str, feed: Mapping[str, np.ndarray], valid: int | None) -> str:
    """Returns the digest of all inputs up to this one."""
    digest = hashlib.blake2b(f"{before}{valid}".encode(), digest_size=16)
    for name, array in feed.items():
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(array.reshape(-1).view("uint8").data)
    return digest.hexdigest()
