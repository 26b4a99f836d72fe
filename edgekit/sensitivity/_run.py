"""One kernel on many rows at once, and in INT8 on the row of the FP32 network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from edgekit.errors import BuildError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Kernel, Kernels

__all__ = ["Running"]

# what one call reads: more rows at once are no faster
_CALL_BYTES = 1 << 25
# as far as sums in another order differ
_CLOSE = 1e-3


class Running:
    """A kernel's sessions, opened when they are needed.

    Rows are stacked along the batch where the kernel treats them alike. That is tried, once, on
    two rows of different values: together they must give what each gives alone.
    """

    def __init__(self, kernels: Kernels, kernel: Kernel) -> None:
        self._open: Callable[..., Any] = kernels.session
        self.kernel = kernel
        self._plain: Any = None
        self._stacked: Any = None
        self._quantised: Any = None
        self._tried = False

    def prepare(self, feed: Mapping[str, np.ndarray], *, quantised: bool) -> None:
        """Opens what is not open yet; ``feed`` are values to try stacking with."""
        if quantised and self._quantised is None:
            self._quantised = self._open(self.kernel, quantised=True)
        if not self._tried:
            self._try(feed)

    def quantised(self, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Runs the kernel in INT8 on tensors of the FP32 network."""
        return self._call(self._quantised, feed)

    def rows(
        self, feed: Mapping[str, np.ndarray], count: int, spare: int, pool: Executor, workers: int
    ) -> list[np.ndarray]:
        """Runs the kernel in FP32 on ``count`` rows of each tensor.

        Returns:
            By output its rows, and room for ``spare`` more behind them.
        """
        import numpy as np

        size = sum(value.nbytes for value in feed.values()) // count
        step = max(1, min(-(-count // workers), _CALL_BYTES // max(1, size)))
        step = step if self._stacked is not None else 1
        made: list[np.ndarray] = []

        def work(start: int) -> list[np.ndarray]:
            end = min(start + step, count)
            return self._some({name: value[start:end] for name, value in feed.items()})

        for start, values in zip(
            range(0, count, step), pool.map(work, range(0, count, step)), strict=True
        ):
            if not made:
                made = [np.empty((count + spare, *v.shape[1:]), v.dtype) for v in values]
            for target, value in zip(made, values, strict=True):
                target[start : start + len(value)] = value
        return made

    def _some(self, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        count = len(next(iter(feed.values()))) if feed else 1
        if self._stacked is not None:
            flat = {name: v.reshape(-1, *v.shape[2:]) for name, v in feed.items()}
            found = self._call(self._stacked, flat)
            return [value.reshape(count, -1, *value.shape[1:]) for value in found]
        # one row, as `rows` cuts them
        return [v[None] for v in self._call(self._plain, {n: v[0] for n, v in feed.items()})]

    def _try(self, feed: Mapping[str, np.ndarray]) -> None:
        """Finds out whether rows can be stacked."""
        import numpy as np

        self._tried = True
        feed = {name: _finite(value) for name, value in feed.items()}
        if feed and all(value.ndim for value in feed.values()):
            try:
                session = self._open(self.kernel, quantised=False, stacked=True)
                other = {name: _other(value) for name, value in feed.items()}
                both = {name: np.concatenate([feed[name], other[name]]) for name in feed}
                alone = zip(self._call(session, feed), self._call(session, other), strict=True)
                apart = [np.concatenate(pair) for pair in alone]
                if all(map(_alike, self._call(session, both), apart)):
                    self._stacked = session
                    return
            except (BuildError, ValueError):
                pass  # ONNX Runtime or NumPy refuses rows: then one after the other
        self._plain = self._open(self.kernel, quantised=False)

    def _call(self, session: Any, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        try:
            found: list[np.ndarray] = session.run(list(self.kernel.outputs), dict(feed))
        except Exception as error:  # ONNX Runtime's exceptions share no base class
            raise BuildError(
                f"ONNX Runtime failed in {self.kernel.layers[0]!r}: {' '.join(str(error).split())}",
                code="build.runtime",
                where=self.kernel.layers[0],
                hint="check that the model itself runs in ONNX Runtime",
            ) from error
        return found


def _finite(value: np.ndarray) -> np.ndarray:
    """Returns the values with 0 for NaN and 1 for infinity, which no comparison tells apart."""
    import numpy as np

    if value.dtype.kind != "f" or np.isfinite(value).all():
        return value
    finite: np.ndarray = np.nan_to_num(value, nan=0.0, posinf=1.0, neginf=-1.0)
    return finite


def _other(value: np.ndarray) -> np.ndarray:
    """Returns values of the same range that differ from ``value`` everywhere it matters."""
    import numpy as np

    turned = np.ascontiguousarray(value.reshape(-1)[::-1]).reshape(value.shape)
    if value.dtype.kind != "f" or not value.size:
        return turned
    most = np.abs(value).max() or value.dtype.type(1)
    return np.ascontiguousarray(turned / 2 + most / 4, value.dtype)


def _alike(found: np.ndarray, wanted: np.ndarray) -> bool:
    import numpy as np

    if found.shape != wanted.shape or not found.ndim:
        return False
    if found.dtype.kind != "f":
        return bool((found == wanted).all())
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(found)):
        return False
    most = float(np.abs(wanted[finite]).max(initial=0.0))
    return bool(np.allclose(found[finite], wanted[finite], rtol=0, atol=_CLOSE * most))
