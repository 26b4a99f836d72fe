"""Growing by whole factors in steps that the DLA has."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.deconvolution.resizing import (
    ResizeAxis,
    Resizing,
    resize,
    resizing,
    rows,
    steady,
)
from edgekit.rewriting.rules.selection import factors

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


# Growing an axis by a whole factor, in steps that the DLA has.
#
# Linear interpolation is what a moving average makes of repeated elements: repeated s times each,
# averaged over s neighbours, an element reaches as far as to its neighbours' centres, with weights
# that fall linearly. Average pooling that leaves out what lies outside (``count_include_pad`` = 0)
# does at the borders what clamping does, since all that such a window sees there is one element.


Kind: TypeAlias = Literal["same", "repeat", "half_pixel", "asymmetric", "align_corners"]


class Growth(NamedTuple):
    """How an axis grows.

    Attributes:
        kind: "same", "repeat" (each element so many times), or the coordinates of a linear one.
        factor: By how much; for "align_corners", elements from one corner to the next.
        single: The axis has one element.
    """

    kind: Kind
    factor: int
    single: bool = False


class GrowthStage(NamedTuple):
    """One step along one axis.

    Attributes:
        kind: "nearest" or "linear" (resizing), "pool" (averaging) or "crop".
        size: The factor, the window, or the size that stays.
        begin: Padding before.
        end: Padding after.
    """

    kind: str
    size: int
    begin: int = 0
    end: int = 0

    def after(self, size: int) -> int:
        """Returns the axis' size after this step."""
        if self.kind == "crop":
            return self.size
        if self.kind == "pool":
            return size + self.begin + self.end - self.size + 1
        return size * self.size


def growth(made: Resizing, axis: ResizeAxis) -> Growth | None:
    """Returns how an axis grows; None if it does so in another way.

    Coordinates and rounding that have the same effect for these sizes are one: what is compared
    is which elements are read with which weights.
    """
    if axis.out < axis.size:
        return None
    seen = _effect(*rows(made, axis), axis.size)
    for item in _possible(axis):
        if _alike(seen, _effect(*rows(*_plain(item, axis)), axis.size)):
            return item
    return None


def repeated(grown: tuple[Growth, ...]) -> bool:
    """Whether every axis only repeats its elements."""
    return all(item.kind in {"same", "repeat"} for item in grown)


def _possible(axis: ResizeAxis) -> list[Growth]:
    if axis.out == axis.size:
        return [Growth("same", 1)]
    found = []
    if axis.out % axis.size == 0:
        factor = axis.out // axis.size
        found.append(Growth("repeat", factor, axis.size == 1))
        found += [Growth("half_pixel", factor), Growth("asymmetric", factor)]
    if axis.size > 1 and (axis.out - 1) % (axis.size - 1) == 0:
        found.append(Growth("align_corners", (axis.out - 1) // (axis.size - 1)))
    return found


def _plain(item: Growth, axis: ResizeAxis) -> tuple[Resizing, ResizeAxis]:
    nearest = item.kind in {"same", "repeat"}
    how = "asymmetric" if nearest else item.kind
    mode = "nearest" if nearest else "linear"
    ideal = Resizing((), mode, how, "floor", -0.75, exclude=False, scaled=True)
    return ideal, ResizeAxis(axis.size, axis.out, axis.out / axis.size)


def _effect(index: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """What it makes of numbers that no two different combinations of elements make alike."""
    import numpy as np

    probe = np.random.default_rng(0).standard_normal((size, 2))
    return np.asarray((probe[index] * weight[..., None]).sum(1))


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    import numpy as np

    return bool(np.abs(a - b).max() <= 1e-11)


def stages(item: Growth, *, linear: bool) -> list[GrowthStage] | None:
    """Returns the steps for one axis; None if there are none within the DLA's limits.

    Args:
        item: How it grows.
        linear: Whether a linear Resize by a factor within the DLA's limit may be a step.
    """
    if item.kind == "same":
        return []
    if item.kind == "repeat":
        return _repeat(item)
    if item.kind == "half_pixel":
        return _half_pixel(item.factor, linear=linear)
    # the knots of a linear growth by b are among the elements of one by a after it
    _, window = _limit("pooling.window")
    most = window
    if item.kind == "asymmetric":
        most = min(window, _limit("pooling.padding")[1] + 1)
    parts = factors(item.factor, most)
    if parts is None:
        return None
    found = []
    for part in parts:
        end = part - 1 if item.kind == "asymmetric" else 0
        found += [GrowthStage("nearest", part), GrowthStage("pool", part, 0, end)]
    return found


def _repeat(item: Growth) -> list[GrowthStage] | None:
    _, most = _limit("resize.nearest_scale")
    parts = factors(item.factor, most)
    if parts is not None:
        return [GrowthStage("nearest", part) for part in parts]
    if not item.single:
        return None
    # one element: too many of it do no harm
    enough = item.factor
    while (parts := factors(enough, most)) is None:
        enough += 1
    return [*(GrowthStage("nearest", part) for part in parts), GrowthStage("crop", item.factor)]


def _half_pixel(factor: int, *, linear: bool) -> list[GrowthStage] | None:
    """Odd factors first: their elements hold the knots (the centres of the input's elements).

    A power of 2 has them between its elements. So it comes last; where it takes several steps,
    they go by the elements' edges, one more than there are elements, and the mean of two
    neighbouring edges ends it.
    """
    _, window = _limit("pooling.window")
    _, native = _limit("resize.linear_scale")
    odd = factor
    while odd % 2 == 0:
        odd //= 2
    power = factor // odd
    parts = factors(odd, window)
    if parts is None:
        return None
    found = []
    for part in parts:
        if linear and part <= native:
            found.append(GrowthStage("linear", part))
        else:
            found += [GrowthStage("nearest", part), GrowthStage("pool", part, part // 2, part // 2)]
    if power == 1:
        return found
    if linear and power <= native:
        return [*found, GrowthStage("linear", power)]
    first = min(power, window)
    found += [GrowthStage("nearest", first), GrowthStage("pool", first, first // 2, first // 2)]
    for part in factors(power // first, window) or []:
        found += [GrowthStage("nearest", part), GrowthStage("pool", part)]
    return [*found, GrowthStage("pool", 2)]


def _limit(rule: str) -> tuple[int, int]:
    from edgekit.dla.rules import limit

    return limit(rule)


_Pair: TypeAlias = "tuple[GrowthStage | None, GrowthStage | None]"


def write(
    new: Writer,
    source: str,
    shape: tuple[int, ...],
    plan: tuple[list[GrowthStage], list[GrowthStage]],
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
    whole = [stage or GrowthStage(kind, 1) for stage in pair]
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
        one = stage or GrowthStage("pool", 1)
        first = np.arange(out) - one.begin
        seen = np.minimum(first + one.size, size) - np.maximum(first, 0)
        sides.append(one.size / seen)
    return np.broadcast_to(np.multiply.outer(*sides), (1, *shape[1:]))


# what TensorRT calls LINEAR/HALF_PIXEL/FORMULA and .../UPPER
_LINEAR = frozenset({"half_pixel", "pytorch_half_pixel"})


class ResizeCoordinates:
    """Which elements are read, and with which weights, is compared, not how it is called.

    Nearest resizing by whole factors repeats elements, whichever the coordinates and roundings
    that say so; that is asymmetric and floor, which every release's DLA takes. The same goes for
    a linear or cubic Resize of a single element.
    """

    name = "resize-coordinates"
    reason = (
        "The DLA takes few combinations of coordinates and rounding; for whole factors many "
        "others have the same effect as one of these"
    )
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Resize by whole factors in the effect, not the words, of one that is taken."""
        from edgekit.dla.rules import limit

        found = grown(graph, node)
        if found is None:
            return None
        made, (down, across) = found
        nearest = repeated((down, across))
        if not nearest and any(item.kind not in {"half_pixel", "same"} for item in (down, across)):
            return None
        _, most = limit("resize.nearest_scale" if nearest else "resize.linear_scale")
        factors = (down.factor, across.factor)
        if max(factors) > most or _taken(made, nearest=nearest):
            return None
        return Match((node,), (factors, "nearest" if nearest else "linear"))

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a Resize in that combination."""
        node = match.nodes[0]
        factors, mode = match.facts
        resize(new, node.inputs[0], factors, mode, output=node.outputs[0])


def grown(graph: RewriteGraph, node: Node) -> tuple[Resizing, tuple[Growth, Growth]] | None:
    """Returns how a Resize of H and W grows them; None for any other, and where nothing grows.

    None too where rounding errors of its coordinates are larger than a proof allows.
    """
    made = resizing(graph, node)
    if made is None or not made.image:
        return None
    sides = [growth(made, axis) for axis in made.axes[2:]]
    if sides[0] is None or sides[1] is None or all(a.out == a.size for a in made.axes):
        return None
    if not all(axis.out == axis.size or steady(made, axis) for axis in made.axes[2:]):
        return None
    return made, (sides[0], sides[1])


def _taken(made: Resizing, *, nearest: bool) -> bool:
    if not made.scaled:
        return False
    if nearest:
        words = (made.mode, made.coordinates, made.rounding)
        return words == ("nearest", "asymmetric", "floor")
    return made.mode == "linear" and made.coordinates in _LINEAR


class ResizeNearestLarge:
    """Repeating elements a times and the result b times repeats them a * b times.

    A single element may be repeated too often, with a Slice after it: so global features are
    brought back to any size. Other factors with a prime over the limit stay as they are.
    """

    name = "resize-nearest-large"
    reason = "The DLA repeats elements up to 32 times in one layer; two layers repeat more"
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Resize that repeats elements more often than one layer can."""
        found = grown(graph, node)
        if found is None or not repeated(found[1]):
            return None
        plan = _plan(found[1], linear=False)
        if plan is None or max(map(len, plan)) < 2:
            return None
        return Match((node,), plan)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the Resizes."""
        _replace(graph, match, new)


class ResizeLinearInSteps:
    """Linear growth that one layer of the DLA cannot do, by several.

    Of half_pixel, an odd factor may stand before any other, for then the result's elements hold
    the input's, and between these it is linear again: 6 is 3, then 2. What no linear layer does
    (5, 7, 8 and more, and asymmetric and aligned corners) repeats elements and averages
    neighbours. All steps are means of the elements: no value grows.

    Left are factors with a prime over the pooling window (11, 13), and aligned corners that are
    no whole number of elements apart: resize-to-convolution has these.
    """

    name = "resize-linear-in-steps"
    reason = (
        "The DLA interpolates by factors up to 4 with half_pixel coordinates only; other growth "
        "is several such steps, or repeated elements averaged over their neighbours"
    )
    operators: tuple[str, ...] = ("Resize",)
    # an average that leaves out the borders is for Xavier to be rewritten once more
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a linear Resize that takes more than one layer."""
        found = grown(graph, node)
        if found is None or repeated(found[1]):
            return None
        plan = _plan(found[1], linear=True)
        if plan is None or all([stage.kind for stage in part] in ([], ["linear"]) for part in plan):
            return None
        return Match((node,), plan)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the Resizes and AveragePools."""
        _replace(graph, match, new)


class ResizeLinearToPool:
    """Linear growth without any linear layer, for releases whose DLA has none.

    These are mostly Xavier's, whose averages count their padding: a scale by position makes up
    for it.
    """

    name = "resize-linear-to-pool"
    reason = (
        "The DLA of TensorRT before 8.5.2 repeats elements only; averaged over neighbours, "
        "repeated elements are interpolated ones"
    )
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a linear Resize by whole factors."""
        found = grown(graph, node)
        if found is None or repeated(found[1]):
            return None
        plan = _plan(found[1], linear=False)
        return None if plan is None else Match((node,), plan)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the Resizes and AveragePools."""
        _replace(graph, match, new, inclusive=True)


def _plan(
    sides: tuple[Growth, Growth], *, linear: bool
) -> tuple[list[GrowthStage], list[GrowthStage]] | None:
    down, across = (stages(side, linear=linear) for side in sides)
    return None if down is None or across is None else (down, across)


def _replace(graph: RewriteGraph, match: Match, new: Writer, *, inclusive: bool = False) -> None:
    node = match.nodes[0]
    shape = graph.shape(node.inputs[0])
    write(
        new,
        node.inputs[0],
        shape,
        match.facts,
        output=node.outputs[0],
        name=node.name,
        inclusive=inclusive,
    )
