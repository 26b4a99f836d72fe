"""How far a build is from ONNX Runtime's FP32, whole and segment by segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.build._nonfinite import Nonfinite
from edgekit.build._runner import Runner
from edgekit.errors import DataError
from edgekit_device._deviation import Deviation, worst_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build._types import Artefacts
    from edgekit.network import Model

__all__ = ["Deviation", "accuracy", "worst_of"]


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
        model: The FP32 model; of one with opaque layers what comes before them is compared.
        artefacts: A build of it.
        data: Inputs by name, one dict an inference; read once.
        outputs: Outputs to compare; all when None.
        lane: Which plan variant to run.

    Returns:
        ``cosine`` (mean over inputs, the worst output's), ``cosine_min``, ``snr_db`` (variance
        of the reference over mean squared error, the worst output's; None with ``exact`` true
        when every output is bit-equal), ``max_abs``, ``top1_agreement`` (first output, 0 to 1),
        ``count``, and ``per_segment`` with the error of each segment's outputs accumulated up to
        there; ``nonfinite`` has the outputs with NaN or infinity, and the node that began it.
        JSON-ready: never NaN or infinite, an output that is not finite gives -999 dB.

    Raises:
        DataError: No data, or it does not fit.
        BuildError: ONNX Runtime failed in an engine.
    """
    import numpy as np

    from edgekit.network import before_opaque, session

    model = before_opaque(model)
    runner = Runner(artefacts, lane=lane)
    wanted = list(outputs or artefacts.outputs)
    borders = [name for segment in runner.segments for name in segment.outputs]
    names = list(dict.fromkeys([*wanted, *borders]))
    reference = session(model, outputs=names)
    errors = {name: Deviation() for name in names}
    nonfinite = Nonfinite(model, runner)
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
            if name in wanted:
                nonfinite.add(name, found[name], feed)
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
        "nonfinite": nonfinite.rows(count),
        "per_segment": [
            {
                "segment": segment.index,
                "device": segment.device,
                **worst_of([errors[name] for name in segment.outputs]),
            }
            for segment in runner.segments
        ],
    }
