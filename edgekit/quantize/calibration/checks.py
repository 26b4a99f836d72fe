"""Errors and warnings of calibration: invalid weights, activations and data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from edgekit.dla.precision import int8_operators
from edgekit.errors import DataError, ModelError
from edgekit.network.model import SAME_VALUES, Model
from edgekit.network.plugins import plugin_for
from edgekit.quantize.calibration.histograms import FEWEST, ValueHistogram
from edgekit.quantize.calibration.parts import parts, run_parts
from edgekit.text import count_all, counted, listed

if TYPE_CHECKING:
    from edgekit.quantize.data.rows import CalibrationSamples

# fewer inputs than this rarely show the ranges of a network's tensors
_FEW = 16
_NAMED = 8
_COLOURS = 3
# configuration for more data, to be copied
_MORE = "calibration: {data: FOLDER, count: 500}"
_BLOCK = 1 << 22
# operators whose constants may be a mask, and operators that pass infinities on
_MASKING = SAME_VALUES | {
    "Add",
    "Cast",
    "Concat",
    "Expand",
    "Max",
    "Min",
    "Pad",
    "Slice",
    "Split",
    "Sub",
    "Tile",
    "Trilu",
    "Where",
}
_PASSING = frozenset(
    {"Abs", "Div", "Gather", "LeakyRelu", "Mul", "Neg", "ReduceMax", "ReduceMin", "Relu"}
)


def check_weights(model: Model) -> None:
    """Refuses weights with NaN or infinities; bounds of a Clip and masks may be infinite.

    Raises:
        ModelError: ``model.nonfinite``: names the weight and the node that reads it.
    """
    seen: set[str] = set()
    biased = _biased_results(model)
    for node in model.proto.graph.node:
        for place, name in enumerate(node.input):
            if name in seen or (node.op_type == "Clip" and place > 0):
                continue
            array = model.graph.value(name)
            if array is None:
                continue
            seen.add(name)
            bad = _nonfinite(array)
            if bad and not (_may_mask(node, biased) and not _has_nan(array)):
                raise ModelError(
                    f"weight {name!r}, which node {node.name!r} ({node.op_type}) reads, has "
                    f"{counted(bad, 'NaN or infinite value')}",
                    code="model.nonfinite",
                    where=name,
                    hint="export the model again with finite weights; INT8 needs them",
                )


def unbounded_tensors(model: Model) -> frozenset[str]:
    """Returns the tensors that an infinite constant, such as a mask of -inf, reaches.

    They have no INT8 scale, as with a mask of -FLT_MAX. A softmax stops the infinity.
    """
    biased = _biased_results(model)
    found: set[str] = set()
    for node in model.proto.graph.node:
        if node.op_type not in _MASKING | _PASSING:
            continue
        for name in node.input:
            if name in found:
                break
            if not _may_mask(node, biased):
                continue
            array = model.graph.value(name)
            if array is not None and _nonfinite(array):
                break
        else:
            continue
        found.update(node.output)
    return frozenset(found)


def _biased_results(model: Model) -> frozenset[str]:
    """Returns the results of layers with constant weights: a constant added to them is a bias."""
    return frozenset(
        node.output[0]
        for node in model.proto.graph.node
        if node.op_type in int8_operators().weighted and any(map(model.graph.constant, node.input))
    )


def _may_mask(node: onnx.NodeProto, biased: Collection[str]) -> bool:
    """Returns True if infinities in a node's constants belong to a mask, not a damaged weight."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in _MASKING:
        return False
    return node.op_type not in ("Add", "Sub") or not any(name in biased for name in node.input)


def _has_nan(array: np.ndarray) -> bool:
    return bool(np.isnan(array).any())


def _nonfinite(array: np.ndarray) -> int:
    if array.dtype.kind in "iub?":
        return 0
    # a view that repeats a value is checked once
    whole = array[tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides)]
    flat = np.ascontiguousarray(whole).reshape(-1)
    count = 0
    for begin in range(0, flat.size, _BLOCK):
        block = flat[begin : begin + _BLOCK]
        count += block.size - int(np.count_nonzero(np.isfinite(block)))
    return count


def check_samples(samples: CalibrationSamples, *, where: str) -> None:
    """Refuses data that show no range: all constant, or the same sample throughout.

    A single varying input is enough: others, such as masks and sizes, may be constant. Reading
    stops as soon as the samples vary.

    Args:
        samples: The samples.
        where: Their description, for people.

    Raises:
        DataError: "data.constant": in every sample each input has one value, or an image one
            colour. "data.repeated": all samples are equal; a single sample is not judged.
    """
    first: dict[str, np.ndarray] = {}
    varies = differs = False
    count = 0
    for index, feed in enumerate(samples):
        valid = samples.valid(index)
        # each row of a batch is a sample; without a common batch the run is one
        whole = all(array.ndim and array.shape[0] == samples.batch for array in feed.values())
        for row in range(valid) if whole else [0]:
            sample = {name: array[row] if whole else array for name, array in feed.items()}
            count += 1
            first = first or sample
            changed = {n for n, array in sample.items() if not np.array_equal(array, first[n])}
            differs |= bool(changed)
            # a single number, or codes such as token ids, may vary from sample to sample
            alone = {
                n for n, array in sample.items() if array.size == 1 or not _holds_pixels(array)
            }
            varies |= bool(changed & alone) or any(map(_varies, sample.values()))
            if varies and differs:
                return
    judged = [name for name, array in first.items() if _holds_pixels(array) and array.size > 1]
    if not judged:
        return
    names = _names(judged)
    do = (
        "give a few hundred different inputs, prepared as the network will see them, such as "
        "calibration: {data: IMAGES, count: 500}, or remove calibration.data: inputs are synthetic "
        "then"
    )
    if not varies:
        every = f"{count_all(count, 'sample')} {'is' if count == 1 else 'are'}"
        raise DataError(
            f"{every} constant: input {names} has one value everywhere, which shows no range",
            code="data.constant",
            where=where,
            hint=do,
        )
    if count > 1 and not differs:
        raise DataError(
            f"all {count} samples are the same in input {names}, so the ranges are those of one",
            code="data.repeated",
            where=where,
            hint=do,
        )


def _holds_pixels(array: np.ndarray) -> bool:
    """Returns True if an input holds measured values, not codes, sizes or masks."""
    return array.dtype.kind == "f" or array.dtype == np.uint8


def _varies(array: np.ndarray) -> bool:
    """Returns True if a sample has several values, or an image several colours."""
    if array.size < 2:
        return False
    image = array[0] if array.ndim == 4 and array.shape[0] == 1 else array
    if image.ndim == 3 and _COLOURS in (image.shape[0], image.shape[2]):
        channels = image if image.shape[0] == _COLOURS else np.moveaxis(image, 2, 0)
        if channels[0].size > 1:
            return any(bool(channel.min() != channel.max()) for channel in channels)
    return bool(array.min() != array.max())


def bad_input(name: str, sample: int) -> DataError:
    """Returns the error of a calibration input with NaNs or infinities."""
    return DataError(
        f"input {name!r} has NaN or infinite values in calibration sample {sample}",
        code="calibration.nonfinite",
        where=name,
        hint="check the data and its preprocessing (mean, std, range)",
    )


def bad_activation(
    model: Model,
    name: str,
    sample: int,
    feed: Mapping[str, np.ndarray],
    free: Collection[str] = (),
) -> DataError:
    """Returns the error of a tensor with NaNs or infinities, naming the first node with bad values.

    Tensors of ``free`` may have infinities.
    """
    first = _first_bad(model, feed, free)
    by, where = "", name
    hint = (
        "check the input's preprocessing (mean, std, range); if the data are correct, keep this "
        "part in FP16 or correct its weights"
    )
    if first is not None:
        node, tensor = first
        by = f"; the first come from node {node.name!r} ({node.op_type}), in {tensor!r}"
        plugin = plugin_for(model.plugins, node.op_type, node.domain)
        if plugin is not None and plugin.function is not None:
            by += f", from {plugin.function.spec}"
            where = str(plugin.function.file)
            hint = "correct the function, for example where it divides or takes a root"
    return DataError(
        f"tensor {name!r} has NaN or infinite values in calibration sample {sample}{by}",
        code="calibration.nonfinite",
        where=where,
        hint=hint,
    )


def _first_bad(
    model: Model, feed: Mapping[str, np.ndarray], free: Collection[str]
) -> tuple[onnx.NodeProto, str] | None:
    """Returns the first node that produces a bad value, and the tensor."""
    graph = model.proto.graph
    floats = {
        value.name
        for value in [*graph.value_info, *graph.output]
        if value.type.tensor_type.elem_type in (1, 10)
    }
    maker = {name: node for node in graph.node for name in node.output if name in floats}
    for wanted, arrays in run_parts(parts(model, list(maker)), feed):
        for name, array in zip(wanted, arrays, strict=True):
            if _has_nan(array) or (name not in free and not np.isfinite(array).all()):
                return maker[name], name
    return None


def data_warnings(histograms: Mapping[str, ValueHistogram], samples: int) -> list[str]:
    """Returns warnings about the data and about tensors that never change."""
    found = []
    if samples < _FEW:
        found.append(
            f"the ranges were measured on only {counted(samples, 'input')}; "
            f"give a few hundred representative ones: {_MORE}"
        )
    zero = [name for name, h in histograms.items() if h.total and h.amax == 0.0]
    same = [
        name for name, h in histograms.items() if h.total > 1 and h.amax > 0.0 and h.low == h.high
    ]
    if zero:
        found.append(
            f"always zero in this data, so the range is unknown: {_names(zero)}; "
            f"give inputs that reach them: {_MORE}"
        )
    if same:
        found.append(
            f"only one value in this data: {_names(same)}; give inputs that vary them: {_MORE}"
        )
    return found


def tensors_with_few_values(histograms: Mapping[str, ValueHistogram]) -> tuple[str, ...]:
    """Returns the tensors with too few values for the histogram of the entropy method."""
    return tuple(name for name, h in histograms.items() if h.amax > 0.0 and h.total < FEWEST)


def describe_few(few: Sequence[str]) -> list[str]:
    """Returns notes on how the entropy method handles tensors of too few values, and a remedy."""
    return (
        [
            f"the entropy method takes the whole range of {_names(few)}, which have fewer than "
            f"{FEWEST:,} values in this data; more inputs give it a histogram: {_MORE}"
        ]
        if few
        else []
    )


def _names(names: Iterable[str]) -> str:
    return listed(map(repr, names), _NAMED)
