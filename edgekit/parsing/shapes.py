"""Tests of shapes that rows of ``trt/operators.yaml`` name: what the parser refuses by the sizes of
a node's inputs. Each returns whether it refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Shape = tuple[int, ...]


def _vector_by_stack(shapes: Sequence[Shape]) -> bool:
    """A vector times a stack of matrices: the importer drops the first dimension of the result."""
    return len(shapes[0]) == 1 and len(shapes[1]) > 2 and shapes[1][0] != 1


def _unlike_values(shapes: Sequence[Shape]) -> bool:
    """Keys and values of other shapes: IAttention has one for both."""
    return shapes[1] != shapes[2]


def _mask(shapes: Sequence[Shape]) -> bool:
    """A mask that does not broadcast to queries by keys."""
    query, key, mask = shapes[0], shapes[1], shapes[3]
    # over the batch and the heads any reader broadcasts
    wanted = (query[-2], key[-2])
    found = (1, 1, *mask)[-2:]
    return any(size not in (1, full) for size, full in zip(found, wanted, strict=True))


#: By name, as ``shapes`` of a row; each reads the shapes of the node's inputs.
SHAPE_TESTS: Mapping[str, Callable[[Sequence[Shape]], bool]] = {
    "mask": _mask,
    "unlike_values": _unlike_values,
    "vector_by_stack": _vector_by_stack,
}
