"""From inputs to INT8 scales: measured ranges, tied as the hardware requires."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.dla.scales import LEVELS
from edgekit.network.model import Model, Network
from edgekit.quantize.calibration.checks import describe_few
from edgekit.quantize.calibration.histograms import check_method
from edgekit.quantize.calibration.measure import measure
from edgekit.quantize.missing_scales import (
    MissingScale,
    find_missing_scales,
    propagate_scales,
    with_same_values,
)
from edgekit.quantize.scales import (
    Ranges,
    Scales,
    constraint_warnings,
    is_scale,
    make_scales,
    tie,
    to_float32,
)
from edgekit.text import counted, listed

_SHOWN = 8


def calibrate(
    model: Model,
    network: Network,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    method: str = "entropy",
    describe: str = "",
    progress: Callable[[int, int], None] | None = None,
    resume: Path | None = None,
) -> Scales:
    """Measures a symmetric INT8 scale (amax / 127) for every float tensor of the network.

    Args:
        model: The FP32 model.
        network: Its layers; tensors that pooling, concatenation and shuffles tie together get
            the union of their ranges.
        data: Inputs by name, one dict a run; read once (see ``measure``).
        method: "entropy" (IInt8EntropyCalibrator2), "minmax", "percentile" (99.99) or "mse".
        describe: Description of the data, for people.
        progress: Called with (runs done, runs in all or 0 when unknown).
        resume: A file to resume from after an interruption (see ``measure``).

    Returns:
        Scales by tensor name. ``missing`` are tensors that no scale suits: always zero, with
            values too large for INT8, or with masked values far below all others.

    Raises:
        DataError: No data, inputs that do not fit, or a NaN or infinity in a tensor (named).
        UsageError: Unknown method.
        ModelError: A weight is not finite, or ONNX Runtime cannot run the model.
    """
    check_method(method)
    ranges = measure(
        model, data, network=network, progress=progress, resume=resume, describe=describe
    )
    return scales_from(network, ranges, method)


def scales_from(
    network: Network,
    ranges: Ranges,
    method: str = "entropy",
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> Scales:
    """Returns the scales of measured ranges; scales that must be equal are tied (``tie``).

    Args:
        network: The layer graph.
        ranges: The measured ranges.
        method: The method whose clipping magnitudes are used.
        dla_layers: Layers that can run on the target's DLA; None if all may.
        fp16_layers: Layers in FP16, which need no scale.

    Raises:
        UsageError: Unknown method.
    """
    check_method(method)
    # a tensor that no layer has takes the scale of the tensor whose values it holds, tied or not
    amax = {name: value for name, value in ranges.amax[method].items() if name in network.tensors}
    own, inferred, lacks = _usable_magnitudes(network, amax, ranges.masked, dla_layers)
    # layers without a scale run in FP16 and bind no scales
    floats = {layer for lack in lacks for layer in lack.layers}.union(fp16_layers)
    amax, changes = tie(network, own, dla_layers=dla_layers, fp16_layers=floats, inferred=inferred)
    scales = {name: value / LEVELS for name, value in amax.items()}
    missing = [n for n in ranges.amax[method] if n in network.tensors and n not in scales]
    made = make_scales(scales, method=method, data=ranges.data, missing=missing)
    in_scales = [
        replace(
            change,
            old=to_float32(change.old / LEVELS) if change.old else None,
            new=made.scales[change.tensor],
        )
        for change in changes
    ]
    # different magnitudes may be the same float32 scale
    changed = tuple(change for change in in_scales if change.old != change.new)
    costs = constraint_warnings(
        network, made.scales, changed, dla_layers=dla_layers, fp16_layers=floats
    )
    none = describe_missing(missing, lacks)
    few = describe_few(ranges.few) if method == "entropy" else []
    return replace(made, changes=changed, warnings=(*ranges.warnings, *few, *none, *costs))


def _usable_magnitudes(
    network: Network,
    amax: Mapping[str, float],
    masked: Collection[str],
    dla_layers: Collection[str] | None,
) -> tuple[dict[str, float], dict[str, float], tuple[MissingScale, ...]]:
    """Returns the usable magnitudes, inferred magnitudes, and the tensors that still lack a scale.

    A range is not used if it is always zero (other data may differ), if INT8 cannot represent it,
    or if masked values leave no codes for the others. A tensor that was always zero takes a scale
    that follows from others: a Relu takes its input's.
    """
    own = {n: v for n, v in amax.items() if is_scale(v / LEVELS) and n not in masked}
    none = amax.keys() - own.keys()
    if not none:
        return own, {}, ()
    scales = {name: value / LEVELS for name, value in own.items()}
    # only a tensor that was always zero may take a scale: the values of the others are known not
    # to fit
    without = {name for name in none if amax[name]}
    scales |= propagate_scales(network, scales, bounds=(), without=without)
    inferred = {name: scales[name] * LEVELS for name in amax if name in none and name in scales}
    bare = with_same_values(network, none, scales)
    return (
        own,
        inferred,
        find_missing_scales(network, scales, on_dla=dla_layers, without=bare).lacks,
    )


def describe_missing(missing: Collection[str], lacks: Collection[MissingScale]) -> list[str]:
    """Returns at most one note: tensors that no scale suits, and layers in FP16 for that reason.

    Args:
        missing: Measured tensors that no scale suits.
        lacks: Tensors without a scale that INT8 layers need, with these layers.
    """
    if not missing:
        return []
    layers = dict.fromkeys(layer for lack in lacks for layer in lack.layers)
    instead = (
        f"in FP16 instead: {listed(layers, _SHOWN)}; to set a range yourself: edgekit calibrate "
        "merge CACHE --set TENSOR=AMAX -o NEW, and calibration: {cache: NEW}"
        if layers
        else "no INT8 layer needs one, so there is nothing to do"
    )
    return [
        f"no INT8 scale fits the measured ranges of {counted(len(missing), 'tensor')}: "
        f"{listed(map(repr, missing), _SHOWN)}; {instead}"
    ]
