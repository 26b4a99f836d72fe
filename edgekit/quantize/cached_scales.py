"""A network's scales from a calibration cache: what is listed, what follows, what is lacking;
for a rewritten network also by tensors that hold the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import DataError, EdgekitError
from edgekit.network.synthetic import synthetic_inputs
from edgekit.quantize.caches import CalibrationCache
from edgekit.quantize.calibration.parts import parts, run_parts
from edgekit.quantize.needs import FLOATS, Lack, follow, needs, without_too
from edgekit.quantize.scales import Scales, make_scales
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.network.model import Layer, Model, Network


# so many order statistics distinguish tensors; float32 sums in another order differ by
# far less than the tolerance, different tensors by far more
_STATISTICS = 1025
_TOLERANCE = 1e-4
# how TensorRT calls the result of a layer that has no name in the ONNX model
_UNNAMED = "(Unnamed Layer*"
_SHOWN = 3


def equal_tensors(
    original: Model, rewritten: Model, old: Collection[str], new: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Returns the tensors of the original whose values tensors of the rewritten network hold.

    Both networks run once in FP32 on one seeded input. Tensors with as many elements and the same
    sorted values, to float32's rounding, are the same up to their order: a Gemm that became a
    convolution, a transposed layout. A rewriting is proved for its outputs; this is evidence for
    what lies between, and what it is used for, a range, depends on the sorted values alone.

    Args:
        original: The model as it came.
        rewritten: What rewrites made of it; it has the same inputs.
        old: Tensors of the original.
        new: Tensors of the rewritten one.

    Returns:
        The original's tensors by the rewritten network's; only those that have some. Tensors that
        are always zero are equal to none.
    """
    if not old or not new:
        return {}

    feed = next(iter(synthetic_inputs(rewritten, 1, 0)))
    try:
        wanted = dict(_prints(rewritten, feed, new))
        sizes = {size for size, _ in wanted.values()}
        given: dict[int, list[tuple[str, np.ndarray]]] = {}
        for name, (size, values) in _prints(original, feed, old, sizes):
            given.setdefault(size, []).append((name, values))
    except EdgekitError:
        return {}
    found = {}
    for name, (size, values) in wanted.items():
        equal = tuple(other for other, print_ in given.get(size, ()) if _same(values, print_))
        if equal:
            found[name] = equal
    return found


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    largest = float(max(abs(one[0]), abs(one[-1])))
    return largest > 0 and float(abs(one - other).max()) <= _TOLERANCE * largest


def _prints(
    model: Model,
    feed: Mapping[str, np.ndarray],
    names: Collection[str],
    sizes: Collection[int] | None = None,
) -> Iterator[tuple[str, tuple[int, np.ndarray]]]:
    """Yields each float tensor's name, size and order statistics, a bounded number at a time."""
    counts = _counts(model, names)
    chosen = [n for n in counts if sizes is None or counts[n] in sizes]
    for found, arrays in run_parts(parts(model, chosen), feed):
        for name, array in zip(found, arrays, strict=True):
            flat = np.sort(np.asarray(array, np.float32), axis=None)
            places = np.linspace(0, flat.size - 1, min(flat.size, _STATISTICS)).astype(np.intp)
            yield name, (flat.size, flat[places])


def _counts(model: Model, names: Collection[str]) -> dict[str, int]:
    """Returns the number of elements of the float32 tensors among ``names``, in graph order."""
    graph = model.proto.graph
    written = {name for node in graph.node for name in node.output}
    found: dict[str, int] = {}
    values: list[Any] = [*graph.value_info, *graph.output]
    for value in values:
        kind = value.type.tensor_type
        if value.name in names and value.name in written and kind.elem_type == 1:
            count = 1
            for dim in kind.shape.dim:
                count *= dim.dim_value
            if count:
                found[value.name] = count
    return found


@dataclass(frozen=True, eq=False)
class CacheReading:
    """What a calibration cache gives a network.

    Attributes:
        scales: The scales, listed and inferred; ``missing`` are the tensors of ``lacks``.
        lacks: Tensors that INT8 layers need a scale of and that have none.
        without: Tensors that the cache lists as having none, and those that hold the same values:
            layers that read or write them run in FP16.
        listed: Those of them that the cache lists.
        free: Tensors that need no scale and have none.
        inferred: Where a scale that the cache does not list comes from, by tensor: "follows",
            "bound" or the original network's tensor of the same values.
        unknown: The cache's tensors that the network does not have, less ``unnamed``.
        unnamed: The cache's results of layers without a name, which TensorRT numbers as it likes
            ("(Unnamed Layer* 64) [Shuffle]_output").
    """

    scales: Scales
    lacks: tuple[Lack, ...]
    without: frozenset[str]
    listed: tuple[str, ...]
    free: frozenset[str]
    inferred: Mapping[str, str]
    unknown: tuple[str, ...]
    unnamed: tuple[str, ...]

    @property
    def judged(self) -> Mapping[str, float]:
        """What ``dla.judge`` takes as scales: tensors that need none count as having one."""
        return {**dict.fromkeys(self.free, 1.0), **self.scales.scales}


def scales_of(
    cache: CalibrationCache,
    network: Network,
    *,
    model: Model | None = None,
    original: Model | None = None,
    on_dla: Collection[str] | None = None,
    name: str = "",
) -> CacheReading:
    """Returns the scales that a cache gives a network.

    Tensors that the cache does not list get a scale where it follows exactly from others (moves,
    maxima, ReLU, concatenation). Where the network was rewritten and the cache is of the
    original, a tensor that is new gets the scale of the original's tensor that holds the same
    values, or else a bound that can be proved.

    Args:
        cache: The cache.
        network: The layers that the scales are for.
        model: Their model, all of whose tensors are known then; needed in addition to ``original``.
        original: The model before it was rewritten.
        on_dla: Layers that can run on the target's DLA; None if all may.
        name: The cache's file, for people.

    Raises:
        DataError: "cache.foreign": the cache names no tensor of either network.
    """
    floats = [n for n, tensor in network.tensors.items() if tensor.dtype in FLOATS]
    old = original.tensor_names if original is not None else frozenset()
    # some of the model's tensors are none of the layers': TensorRT merges what only moves values
    either = old | model.tensor_names if model is not None else old
    used = {n: s for n, s in cache.scales.items() if n in network.tensors or n in either}
    known = {n: used[n] for n in floats if used.get(n, 0.0) > 0}
    without = frozenset(n for n, scale in used.items() if not scale)
    if not known and not any(used.values()):
        raise _foreign(cache, floats, name)
    fused = _marked(network, known)
    for tensor in fused:
        del known[tensor]
    own = len(known)
    inferred: dict[str, str] = {}

    def add(found: Mapping[str, float], why: str) -> None:
        known.update(found)
        inferred.update(dict.fromkeys(found, why))

    add(follow(network, known, without=without), "follows")
    fresh = [n for n in floats if n not in old] if original is not None else []
    lacks = needs(network, known, on_dla=on_dla)
    lacking = {lack.tensor for lack in lacks.lacks}.intersection(fresh)
    if lacking and model is not None and original is not None:
        gone = {n: s for n, s in used.items() if s > 0 and n not in network.tensors}
        for tensor, twins in equal_tensors(original, model, gone, lacking).items():
            known[tensor] = max(gone[twin] for twin in twins)
            inferred[tensor] = twins[0]
        add(follow(network, known, without=without), "follows")
    add(follow(network, known, bounds=frozenset(fresh), without=without), "bound")
    bare = without_too(network, without, known)
    found = needs(network, known, on_dla=on_dla, without=bare)
    unknown = [n for n in cache.scales if n not in used]
    unnamed = [n for n in unknown if n.startswith(_UNNAMED)]
    listed = f"calibration cache {Path(name).name}".rstrip()
    data = f"{listed}, {own} of {len(floats)} tensors"
    scales = make_scales(
        {n: known[n] for n in floats if n in known},
        method="cache",
        data=data + (f", {len(inferred)} inferred" if inferred else ""),
        missing=tuple(lack.tensor for lack in found.lacks),
    )
    warnings = [*cache.notes]
    if len(unknown) > len(unnamed):
        shown = [n for n in unknown if n not in set(unnamed)]
        warnings.append(
            f"the calibration cache has {counted(len(shown), 'tensor')} that the network has not, "
            "such as " + ", ".join(map(repr, shown[:_SHOWN]))
        )
    if fused:
        warnings.append(
            f"the cache's scale 1.0 of {len(fused)} convolutions before an addition, such as "
            f"{fused[0]!r}, is the qdq-translator's mark for a fused kernel, not a range"
        )
    return CacheReading(
        scales=replace(scales, warnings=tuple(warnings)),
        lacks=found.lacks,
        without=bare,
        listed=tuple(n for n in cache.scales if n in without and n in bare),
        free=found.free - known.keys(),
        inferred=inferred,
        unknown=tuple(n for n in unknown if not n.startswith(_UNNAMED)),
        unnamed=tuple(unnamed),
    )


def _marked(network: Network, known: Mapping[str, float]) -> list[str]:
    """Returns the tensors that qdq-translator's --add_unary_ew_scales_for_dla marks as fused.

    It gives a convolution whose one reader is an addition of two the scale 1.0, which DLA's
    compiler takes for none.
    """
    consumers = network.consumers()
    marked = []
    for layer in network.layers:
        if layer.kind != "CONVOLUTION" or known.get(layer.outputs[0]) != 1.0:
            continue
        readers = consumers.get(layer.outputs[0], ())
        if len(readers) == 1 and _adds_two(readers[0]):
            marked.append(layer.outputs[0])
    return marked


def _adds_two(layer: Layer) -> bool:
    adds = layer.kind == "ELEMENTWISE" and layer.params.get("function") == "SUM"
    return adds and len(layer.inputs) == 2


def _foreign(cache: CalibrationCache, floats: list[str], name: str) -> DataError:
    first = next(iter(cache.scales), "none")
    return DataError(
        "the calibration cache names no tensor of this network",
        code="cache.foreign",
        where=name,
        hint=f"it lists {counted(len(cache.scales), 'tensor')}, such as {first!r}; "
        f"the network has {floats[0]!r}"
        if floats
        else "the network has no float tensors",
    )
