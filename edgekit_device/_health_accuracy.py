"""Accuracy on the board: the inputs that travelled with the bundle, held against FP32's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from ._deviation import Deviation, decibels, right_of, worst_of
from ._errors import DeviceError
from ._types import TensorEntry
from ._verify import read_checked

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model
    from ._verify import Checked

__all__ = ["measure_accuracy", "need_accuracy"]


def measure_accuracy(model: Model, checked: Checked) -> Optional[Dict[str, Any]]:
    """Runs the bundle's samples on every lane and takes the worst lane's figures.

    Returns:
        "metric", "value" (None: "snr_db" without any error, or where nothing varies), "min" (the
        bundle's), "samples", "source", "synthetic", and all of "cosine", "cosine_min", "snr_db",
        "exact", "max_abs", "top1_agreement", and with labels "top1_accuracy"; "collapsed": groups
        of an output's channels that are not what they were ("output", "channels", "cosine"); None
        for a bundle without samples.

    Raises:
        DeviceError: "blob.*" when a sample is missing or altered, or a segment fails.
    """
    manifest = checked.manifest
    samples = manifest.samples
    if samples is None:
        return None
    lanes = range(len(manifest.lanes))
    errors = [[Deviation(by_channel=True) for _ in manifest.outputs] for _ in lanes]
    right, rows = [0 for _ in lanes], 0
    for case in samples.cases:
        rows += len(case.labels or ())
        feed = _arrays(checked, case.inputs, manifest.inputs)
        wanted = _arrays(checked, case.outputs, manifest.outputs)
        for lane in lanes:
            found = model.run_lane(lane, feed)
            if case.labels is not None:
                right[lane] += right_of(found[manifest.outputs[0].name], case.labels)
            for error, tensor in zip(errors[lane], manifest.outputs):  # noqa: B905 (3.8)
                error.add(wanted[tensor.name], found[tensor.name])
    figures = worst_of([error for each in errors for error in each])
    figures["top1_agreement"] = min(each[0].top1_agreement() for each in errors)
    if rows:
        figures["top1_accuracy"] = min(right) / rows
    figures["collapsed"] = [
        {"output": tensor.name, "channels": group["channels"], "cosine": group["cosine"]}
        for each in errors
        for error, tensor in zip(each, manifest.outputs)  # noqa: B905 (3.8)
        for group in error.groups()
        if group["collapsed"]
    ]
    return {
        "metric": samples.metric,
        "value": figures[samples.metric],
        "min": samples.least,
        "samples": len(samples.cases),
        "source": samples.source,
        "synthetic": samples.synthetic,
        **figures,
    }


def need_accuracy(
    model: Model, checked: Checked, least: Optional[float], where: str
) -> Optional[Dict[str, Any]]:
    """Measures and judges; what it returns is ``measure_accuracy``'s.

    Args:
        model: The loaded bundle.
        checked: The bundle.
        least: What the value must reach; the bundle's own limit when None.
        where: For messages.

    Raises:
        DeviceError: "health.accuracy", also where something is to be reached and the bundle has
            no samples to measure it on.
    """
    found = measure_accuracy(model, checked)
    if found is None:
        if least is not None:
            raise DeviceError(
                "an accuracy of {:g} is asked for, and the bundle has no samples".format(least),
                code="health.accuracy",
                where=where,
                hint="ship some with deploy.health.samples",
            )
        return None
    if found["collapsed"]:
        worst = found["collapsed"][0]
        raise DeviceError(
            "channels {} of output {!r} collapse on this board (cosine {:.3g})".format(
                ", ".join("{} to {}".format(*span) for span in worst["channels"]),
                worst["output"],
                worst["cosine"],
            ),
            code="health.accuracy",
            where=where,
            hint="build again; edgekit's report says what the host measured",
        )
    limit = found["min"] if least is None else least
    found["min"] = limit
    value = found["value"]
    if limit is not None and value is not None and value < limit:
        raise DeviceError(
            "{} on {} samples ({}) is {} on this board, {:g} is asked for".format(
                found["metric"],
                found["samples"],
                found["source"],
                decibels(value, False, "{:.6g}")
                if found["metric"] == "snr_db"
                else "{:.6g}".format(value),
                limit,
            ),
            code="health.accuracy",
            where=where,
            hint="edgekit inspect and the build's report say what the host measured; build again, "
            "or ask for less with deploy.health.accuracy_min",
        )
    return found


def _arrays(
    checked: Checked, digests: Mapping[str, str], tensors: Sequence[TensorEntry]
) -> Dict[str, np.ndarray]:
    import numpy as np

    found: List[Any] = []
    for tensor in tensors:
        data = read_checked(checked, digests[tensor.name])
        found.append((tensor.name, np.frombuffer(data, dtype=tensor.dtype).reshape(tensor.shape)))
    return dict(found)
