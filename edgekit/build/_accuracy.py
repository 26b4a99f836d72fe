"""How far a build is from ONNX Runtime's FP32, whole and segment by segment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.build._runner import Runner
from edgekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build._types import Artefacts
    from edgekit.network import Model

__all__ = ["Deviation", "accuracy", "worst_of"]


@dataclass(slots=True)
class Deviation:
    """How far a tensor is from its reference: running sums over the inputs, in double precision."""

    cosines: list[float] = field(default_factory=list)
    squares: float = 0.0
    total: float = 0.0
    total_squares: float = 0.0
    elements: int = 0
    max_abs: float = 0.0
    agree: int = 0
    rows: int = 0

    def add(self, reference: np.ndarray, found: np.ndarray) -> None:
        """Takes in one inference."""
        import numpy as np

        # integer and boolean outputs (labels) are compared as numbers
        a = reference.reshape(-1).astype(np.float64)
        b = found.reshape(-1).astype(np.float64)
        difference = b - a
        self.squares += float(difference @ difference)
        self.total += float(a.sum())
        self.total_squares += float(a @ a)
        self.elements += a.size
        # max() would let a NaN pass unseen
        largest = float(np.abs(difference).max(initial=0.0))
        self.max_abs = max(self.max_abs, largest if math.isfinite(largest) else math.inf)
        norms = math.sqrt(float(a @ a) * float(b @ b))
        same = not difference.any()
        # two zero vectors agree, a zero and another do not
        self.cosines.append(1.0 if same else float(a @ b) / norms if norms else 0.0)
        axis = _class_axis(reference)
        matches = reference.argmax(axis=axis) == found.argmax(axis=axis)
        # the arg max of NaN means nothing
        self.agree += int(np.count_nonzero(matches)) if np.isfinite(b).all() else 0
        self.rows += int(np.size(matches))

    def top1_agreement(self) -> float:
        """Returns the share of rows whose largest value is at the same place, 0 to 1."""
        return self.agree / self.rows if self.rows else 1.0

    def snr_db(self) -> float | None:
        """Variance of the reference over mean squared error; None when there is no error."""
        if self.squares == 0.0:
            return None
        if not math.isfinite(self.squares):
            return -math.inf
        mean = self.total / self.elements
        variance = max(self.total_squares / self.elements - mean * mean, 0.0)
        ratio = variance / (self.squares / self.elements)
        return 10.0 * math.log10(ratio) if ratio > 0 else -math.inf


def _class_axis(array: np.ndarray) -> int | None:
    """Returns the axis of the classes: the first after the batch that has more than one."""
    for axis in range(1, array.ndim):
        if array.shape[axis] > 1:
            return axis
    return None


def accuracy(
    model: Model,
    artefacts: Artefacts,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    outputs: Sequence[str] | None = None,
    lane: int = 0,
) -> dict[str, Any]:
    """Compares a reference build with the model in ONNX Runtime FP32.

    Args:
        model: The FP32 model.
        artefacts: A build of it.
        data: Inputs by name, one dict an inference; read once.
        outputs: Outputs to compare; all when None.
        lane: Which plan variant to run.

    Returns:
        ``cosine`` (mean over inputs, the worst output's), ``cosine_min``, ``snr_db`` (variance
        of the reference over mean squared error, the worst output's; None with ``exact`` true
        when every output is bit-equal), ``max_abs``, ``top1_agreement`` (first output, 0 to 1),
        ``count``, and ``per_segment`` with the error of each segment's outputs accumulated up to
        there. JSON-ready: never NaN or infinite, an output that is not finite gives -999 dB.

    Raises:
        DataError: No data, or it does not fit.
        BuildError: ONNX Runtime failed in an engine.
    """
    import numpy as np

    from edgekit.network import session

    runner = Runner(artefacts, lane=lane)
    wanted = list(outputs or artefacts.outputs)
    borders = [name for segment in runner.segments for name in segment.outputs]
    names = list(dict.fromkeys([*wanted, *borders]))
    reference = session(model, outputs=names)
    errors = {name: Deviation() for name in names}
    count = 0
    for feed in data:
        found = runner.run(feed, observe=True)
        for name, value in zip(names, reference.run(names, dict(feed)), strict=True):
            if name in wanted and value.dtype.kind == "f" and not np.isfinite(value).all():
                raise DataError(
                    f"in FP32 the network itself gives NaN or infinity in {name!r}",
                    code="accuracy.nonfinite",
                    where=f"input {count}",
                    hint="look for NaN in the weights and for inputs out of range",
                )
            errors[name].add(value, found[name])
        count += 1
    if count == 0:
        raise DataError(
            "there is no data to measure the accuracy on",
            code="data.empty",
            hint="give at least one input",
        )
    first = errors[wanted[0]]
    whole = worst_of([errors[name] for name in wanted])
    return {
        **whole,
        "top1_agreement": first.top1_agreement(),
        "count": count,
        "per_segment": [
            {
                "segment": segment.index,
                "device": segment.device,
                **worst_of([errors[name] for name in segment.outputs]),
            }
            for segment in runner.segments
        ],
    }


def worst_of(errors: Sequence[Deviation]) -> dict[str, Any]:
    """Returns ``cosine``, ``cosine_min``, ``snr_db``, ``exact`` and ``max_abs``: of the worst."""
    finite = _finite
    ratios = [error.snr_db() for error in errors]
    known = [ratio for ratio in ratios if ratio is not None]
    return {
        "cosine": min((finite(sum(e.cosines) / len(e.cosines), 0.0) for e in errors), default=1.0),
        "cosine_min": min((finite(min(e.cosines), 0.0) for e in errors), default=1.0),
        "snr_db": finite(min(known), -999.0) if known else None,
        "exact": not known,
        "max_abs": finite(max((e.max_abs for e in errors), default=0.0), 3.4e38),
    }


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise
