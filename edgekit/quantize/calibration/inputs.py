"""The inputs of a measurement: read once, checked, retained where they may be needed again;
and an interrupted measurement's state in a file.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import EnvironmentLack
from edgekit.files import write_atomically
from edgekit.network.model import Model
from edgekit.quantize.calibration.histogram import BINS, ValueHistogram
from edgekit.quantize.data.rows import check_feed

_SCHEMA = "edgekit.measuring/2"
# seconds between two states, and how many times as long as writing one takes
_EVERY = 5.0
_SPARE = 20.0
# inputs kept in memory; what is above lies in a temporary file
_IN_MEMORY = 1 << 27
Feed = tuple[dict[str, "np.ndarray"], int | None]


class MeasurementState:
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

    def load(self) -> tuple[dict[str, ValueHistogram], int, str] | str:
        """Returns histograms, inputs counted and their digest; or why not, empty for no file."""
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

    def _histograms(self, archive: Mapping[str, np.ndarray]) -> dict[str, ValueHistogram]:
        ranges, has, counts = archive["ranges"], archive["has"], archive["counts"]
        if ranges.shape != (len(self._names), 6) or counts.shape != (int(has.sum()), 2 * BINS):
            raise ValueError("sizes")
        rows = iter(counts.astype("int64"))
        found = {}
        for name, ends, there in zip(self._names, ranges.tolist(), has, strict=True):
            low, high, top, zeros, sided, bottom = ends
            own = next(rows) if there else None
            found[name] = ValueHistogram(low, high, top, own, int(zeros), bool(sided), bottom)
        return found

    def due(self) -> bool:
        """Tells whether a state should be written now."""
        return self._path is not None and time.monotonic() >= self._next

    def save(self, histograms: Mapping[str, ValueHistogram], done: int, inputs: str) -> None:
        """Writes the state; the file is the old one or the new one, whatever happens."""
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


def _ends(h: ValueHistogram) -> list[float]:
    return [h.low, h.high, h.top, h.zeros, h.sided, h.bottom]


def digest_of_feed(before: str, feed: Mapping[str, np.ndarray], valid: int | None) -> str:
    """Returns the digest of all inputs up to this one."""
    digest = hashlib.blake2b(f"{before}{valid}".encode(), digest_size=16)
    for name, array in feed.items():
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(array.reshape(-1).view("uint8").data)
    return digest.hexdigest()


class Feeds:
    """Reads each input once; keeps them to be read again.

    Args:
        data: Inputs by name, one dict a run. Where it has a method ``valid(index)``, only so many
            rows of a run count, of ``data.batch`` (by default the first input's first dimension);
            the others fill up a batch.
        model: The model.

    Attributes:
        batch: Rows of a run.
        read: Runs read.
        digest: Of all inputs that were read.
    """

    def __init__(self, data: Iterable[Mapping[str, np.ndarray]], model: Model) -> None:
        self._data = iter(data)
        self._valid = getattr(data, "valid", None)
        self.batch: int = getattr(data, "batch", 0) or _batch(model)
        self._model = model
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._stored: list[tuple[tuple[str, ...], int | None]] = []
        self.read = 0
        self.digest = ""

    def __enter__(self) -> Feeds:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Feed]:
        """Yields the inputs that were not read yet, with the rows that count (None: all)."""
        for feed in self._data:
            checked = check_feed(feed, self._model, where=f"calibration sample {self.read}")
            valid = None if self._valid is None else int(self._valid(self.read))
            self.digest = digest_of_feed(self.digest, checked, valid)
            self._keep(checked, valid)
            self.read += 1
            yield checked, valid

    def skip(self, count: int) -> str:
        """Reads inputs without handing them out; returns the digest of all that were read."""
        feeds = iter(self)
        while self.read < count and next(feeds, None) is not None:
            pass
        return self.digest

    def _keep(self, feed: Mapping[str, np.ndarray], valid: int | None) -> None:
        try:
            self._file.seek(0, 2)
            for array in feed.values():
                np.save(self._file, array, allow_pickle=False)
        except OSError as error:
            raise EnvironmentLack(
                f"cannot keep the inputs in a temporary file: {error.strerror or error}",
                code="file.write",
                where=tempfile.gettempdir(),
                hint="free space there or set TMPDIR to another folder; or give fewer inputs",
            ) from error
        self._stored.append((tuple(feed), valid))

    def again(self) -> Iterator[Feed]:
        """Yields the inputs that were read, from the first."""
        place = 0
        for names, valid in list(self._stored):
            self._file.seek(place)
            feed = {name: np.load(self._file, allow_pickle=False) for name in names}
            place = self._file.tell()
            yield feed, valid


def _batch(model: Model) -> int:
    inputs = model.proto.graph.input
    dims = inputs[0].type.tensor_type.shape.dim if len(inputs) else []
    return int(dims[0].dim_value) if len(dims) else 1


def rows(array: np.ndarray, batch: int, valid: int | None) -> np.ndarray:
    """Returns the part of a tensor that belongs to the first ``valid`` of ``batch`` rows.

    Tensors whose first axis is no multiple of the batch are returned whole.
    """
    if valid is None or valid >= batch or not array.ndim or array.shape[0] % batch:
        return array
    return array[: array.shape[0] // batch * valid]
