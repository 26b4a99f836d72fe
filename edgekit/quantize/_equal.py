"""Tensors of a rewritten network that hold what a tensor of the original held."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgekitError
from edgekit.quantize._measure_parts import parts, run_parts

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["equal_tensors"]

# so many order statistics tell one tensor from another; float32 sums in another order differ by
# far less than the tolerance, different tensors by far more
_STATISTICS = 1025
_TOLERANCE = 1e-4


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
    from edgekit.network import synthetic_inputs

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
    import numpy as np

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
