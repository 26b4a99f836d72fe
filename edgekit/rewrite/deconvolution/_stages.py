"""Writes the steps in which H and W grow."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from edgekit.rewrite.deconvolution._growth import Stage
from edgekit.rewrite.deconvolution._resizing import resize

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._writer import Writer

__all__ = ["write"]

_Pair: TypeAlias = "tuple[Stage | None, Stage | None]"


def write(
    new: Writer,
    source: str,
    shape: tuple[int, ...],
    plan: tuple[list[Stage], list[Stage]],
    *,
    output: str,
    name: str,
    inclusive: bool = False,
) -> None:
    """Writes the steps of H and W: together where they are of the same kinds, else H first.

    Args:
        new: Where to.
        source: Tensor [N, C, H, W].
        shape: Its shape.
        plan: Steps of each; not both empty.
        output: Tensor to write.
        name: Of the first node.
        inclusive: Whether averages count their padding, with a scale by position that makes up
            for it, rather than leave it out.
    """
    down, across = plan
    pairs: list[_Pair]
    if all(a.kind == b.kind for a, b in zip(down, across, strict=False)):
        pairs = list(zip_longest(down, across))
    else:
        pairs = [*((stage, None) for stage in down), *((None, stage) for stage in across)]
    for index, pair in enumerate(pairs):
        last = output if index == len(pairs) - 1 else ""
        first = name if index == 0 else ""
        sizes = shape[2:]
        after = [s.after(n) if s else n for s, n in zip(pair, sizes, strict=True)]
        shape = (*shape[:2], *after)
        if inclusive and any(stage and stage.begin + stage.end for stage in pair):
            pooled = _write(new, source, pair, output="", name=first, count=True)
            places = _map(pair, sizes, shape)
            source = new.node("Mul", [pooled, new.constant(places, role="places")], output=last)
        else:
            source = _write(new, source, pair, output=last, name=first)


def _write(
    new: Writer, source: str, pair: _Pair, *, output: str, name: str, count: bool = False
) -> str:
    kind = next(stage.kind for stage in pair if stage)
    if kind == "crop":
        axes = [axis for axis, stage in enumerate(pair, start=2) if stage]
        ends = [stage.size for stage in pair if stage]
        read = [new.constant(part, role="slice") for part in ([0] * len(axes), ends, axes)]
        return new.node("Slice", [source, *read], output=output, name=name)
    whole = [stage or Stage(kind, 1) for stage in pair]
    sizes = [stage.size for stage in whole]
    if kind != "pool":
        return resize(new, source, (sizes[0], sizes[1]), kind, output=output, name=name)
    pads = [*(stage.begin for stage in whole), *(stage.end for stage in whole)]
    return new.node(
        "AveragePool",
        [source],
        output=output,
        name=name,
        role="interpolate",
        kernel_shape=sizes,
        strides=[1, 1],
        pads=pads if any(pads) else None,
        count_include_pad=1 if count else None,
    )


def _map(pair: _Pair, sizes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """By how much averages that count their padding are too small; as large as the tensor."""
    import numpy as np

    sides = []
    for stage, size, out in zip(pair, sizes, shape[2:], strict=True):
        one = stage or Stage("pool", 1)
        first = np.arange(out) - one.begin
        seen = np.minimum(first + one.size, size) - np.maximum(first, 0)
        sides.append(one.size / seen)
    return np.broadcast_to(np.multiply.outer(*sides), (1, *shape[1:]))
