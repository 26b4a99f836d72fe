"""The inputs of a measurement: read once, checked, and kept where they may be needed again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import EnvironmentLack
from edgekit.quantize._feeds import check_feed
from edgekit.quantize._measure_state import digest_of_feed

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["Feeds", "rows"]

# inputs kept in memory; what is above lies in a temporary file
_IN_MEMORY = 1 << 27

Feed = tuple[dict[str, "np.ndarray"], int | None]


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
        self._kept: list[tuple[tuple[str, ...], int | None]] = []
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
        import numpy as np

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
        self._kept.append((tuple(feed), valid))

    def again(self) -> Iterator[Feed]:
        """Yields the inputs that were read, from the first."""
        import numpy as np

        place = 0
        for names, valid in list(self._kept):
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
