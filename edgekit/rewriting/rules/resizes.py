"""Resizing.

Resizes are compared by their effect along each axis (:class:`Resizing`), as ONNX defines it; growth
by whole factors is made in steps that the DLA supports.

Not supported: ``antialias`` if an axis shrinks (runtimes differ at the borders); regions of
interest (tf_crop_and_resize); and linear or cubic resizing of long axes by factors other than
powers of 2: runtimes compute its coordinates in FP32, so there is no exact result to reproduce.

Effect of a Resize along each axis: coordinates and weights, as ONNX defines them.

Formulas: ONNX's description of Resize (opset 11 to 19).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from edgekit.dla.rules import rule_range
from edgekit.network.graph import Node
from edgekit.rewriting.graph import Replacement, RewriteGraph, Writer, rewrite
from edgekit.rewriting.rules.operands import factors

# modes that depend only on the sizes and scales; tf_crop_and_resize reads a region of interest
_COORDINATES = frozenset(
    {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}
)
# larger errors of FP32 coordinates make FP32 results differ by more than 1e-5 (three times as much
# was observed for two axes): more than a proof allows
_OFF = 3.4e-6
_NEAR = 1e-5
# rounding in float64 of the effects of two combinations that are equal in real arithmetic
_SAME_EFFECT = 1e-11
Kind: TypeAlias = Literal["same", "repeat", "half_pixel", "asymmetric", "align_corners"]
_Pair: TypeAlias = "tuple[GrowthStage | None, GrowthStage | None]"
# TensorRT's LINEAR/HALF_PIXEL/FORMULA and .../UPPER
_LINEAR = frozenset({"half_pixel", "pytorch_half_pixel"})
# the combinations that the rules allow, in ONNX's words
_NEAREST = frozenset(
    {
        ("asymmetric", "floor"),
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "round_prefer_ceil"),
    }
)
# elements of a matrix: 2048 to 2048, far more than is worthwhile
_MOST = 1 << 22
# Transposes to H as channels, from there (or from the start) to W as channels, and back to C
_TO_H, _TO_W, _H_TO_W, _W_TO_END = [0, 2, 1, 3], [0, 3, 2, 1], [0, 3, 2, 1], [0, 2, 3, 1]


class ResizeAxis(NamedTuple):
    """An axis.

    Attributes:
        size: Size of the input.
        out: Size of the output.
        scale: The factor that coordinates are divided by.
    """

    size: int
    out: int
    scale: float

    @property
    def factor(self) -> int:
        """The scale if it is a whole number and gives the output's size; else 0."""
        whole = int(self.scale)
        return whole if whole == self.scale and self.size * whole == self.out else 0


class Resizing(NamedTuple):
    """The parameters of a Resize.

    Attributes:
        axes: The axes of the tensor, in order.
        mode: "nearest", "linear" or "cubic".
        coordinates: ``coordinate_transformation_mode``.
        rounding: ``nearest_mode``.
        cubic: ``cubic_coeff_a``.
        exclude: ``exclude_outside``.
        scaled: True if the node has four scales (one for each dimension).
    """

    axes: tuple[ResizeAxis, ...]
    mode: str
    coordinates: str
    rounding: str
    cubic: float
    exclude: bool
    scaled: bool

    @property
    def image(self) -> bool:
        """True if it resizes only height and width of a 4-D tensor."""
        return len(self.axes) == 4 and all(a.scale == 1 for a in self.axes[:2])


def resizing(graph: RewriteGraph, node: Node) -> Resizing | None:
    """Returns the parameters of a Resize of floating-point numbers.

    None if scales and sizes are computed while running, if it crops (tf_crop_and_resize), and for
    ``antialias``, unless it has no effect (linear growth): runtimes differ at the borders.
    """
    given = node.attrs
    source = node.input(0)
    if not graph.floats(source):
        return None
    axes = _axes(graph, node)
    how = str(given.get("coordinate_transformation_mode", "half_pixel"))
    mode = str(given.get("mode", "nearest"))
    if axes is None or how not in _COORDINATES or mode not in {"nearest", "linear", "cubic"}:
        return None
    if given.get("antialias") and not (mode == "linear" and all(a.scale >= 1 for a in axes)):
        return None
    for axis in axes:
        # with a fractional size, these modes read another output size, different in each runtime
        fractional = axis.scale * axis.size != axis.out
        if fractional and how in {"align_corners", "half_pixel_symmetric"} and _scaled(graph, node):
            return None
        # ONNX reads element 0 there, not the middle
        if axis.out == 1 and axis.size > 1 and how == "pytorch_half_pixel":
            return None
    return Resizing(
        axes,
        mode,
        how,
        str(given.get("nearest_mode", "round_prefer_floor")),
        float(given.get("cubic_coeff_a", -0.75)),
        bool(given.get("exclude_outside", 0)),
        _scaled(graph, node) and "axes" not in given,
    )


def _scaled(graph: RewriteGraph, node: Node) -> bool:
    scales = node.input(2)
    return bool(scales) and bool(graph.shape(scales)[0])


def _axes(graph: RewriteGraph, node: Node) -> tuple[ResizeAxis, ...] | None:
    source, target = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    which = [a % len(source) for a in node.attrs.get("axes", range(len(source)))]
    scales = [1.0] * len(source)
    if _scaled(graph, node):
        value = graph.value(node.inputs[2])
        if value is None:
            return None
        for axis, scale in zip(which, value.reshape(-1), strict=True):
            scales[axis] = float(scale)
    else:
        sizes = graph.ints(node.input(3))
        if sizes is None:
            return None
        ratios = [size / source[axis] for axis, size in zip(which, sizes, strict=True)]
        policy = str(node.attrs.get("keep_aspect_ratio_policy", "stretch"))
        if policy != "stretch":
            # ONNX: one scale for all axes
            ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(ratios)
        for axis, scale in zip(which, ratios, strict=True):
            scales[axis] = scale
    return tuple(ResizeAxis(*item) for item in zip(source, target, scales, strict=True))


def resize(
    new: Writer,
    source: str,
    scales: tuple[int, int],
    mode: str,
    *,
    output: str = "",
    name: str = "",
) -> str:
    """Writes a Resize of H and W in the combination that the DLA supports; returns its output.

    Args:
        new: The writer.
        source: Tensor [N, C, H, W].
        scales: Scales of H and W, whole numbers.
        mode: "nearest" (asymmetric, floor) or "linear" (half_pixel).
        output: Tensor to write; a new tensor if empty.
        name: The node's name.
    """
    nearest = mode == "nearest"
    # ONNX: scales are FP32 in every network
    factors = new.constant(np.array([1.0, 1.0, *scales]), role="scales", dtype="float32")
    return new.node(
        "Resize",
        [source, "", factors],
        output=output,
        name=name,
        mode=mode,
        coordinate_transformation_mode="asymmetric" if nearest else "half_pixel",
        nearest_mode="floor" if nearest else None,
    )


def rows(made: Resizing, axis: ResizeAxis) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices that each output along an axis reads, and their weights: [out, taps]."""
    at = _coordinates(axis, made.coordinates, np.float64)
    if made.mode == "nearest":
        index = _rounded(at, made.rounding)[:, None]
        return np.clip(index, 0, axis.size - 1), np.ones(index.shape)
    base = np.floor(at)
    part = at - base
    if made.mode == "linear":
        index = base[:, None] + np.arange(2)
        weight = np.stack([1 - part, part], 1)
    else:
        index = base[:, None] + np.arange(-1, 3)
        weight = _cubic(np.abs(index - at[:, None]), made.cubic)
        if made.exclude:
            weight = weight * ((index >= 0) & (index < axis.size))
            # ONNX: the remaining weights are scaled to the sum 1
            weight = weight / weight.sum(1, keepdims=True)
    return np.clip(index, 0, axis.size - 1).astype(np.int64), weight


def is_exact_in_float32(made: Resizing, axis: ResizeAxis) -> bool:
    """Returns True if FP32 coordinates, as in runtimes, give the same result as exact coordinates.

    They do not on long axes with a scale other than a power of 2: the result then depends on
    rounding errors, and no other form gives the same result.
    """
    exact = _coordinates(axis, made.coordinates, np.float64)
    rough = _coordinates(axis, made.coordinates, np.float32).astype(np.float64)
    if made.mode != "nearest":
        return bool(np.abs(exact - rough).max() <= _OFF)
    # the rounding of FP32 coordinates grows with their size
    near = _NEAR * (1 + np.abs(exact))
    chosen = [_rounded(at, made.rounding) for at in (exact, exact - near, exact + near)]
    alike = (chosen[0] == chosen[1]) & (chosen[0] == chosen[2])
    # a coordinate without a rounding error may be exactly between two elements
    return bool((alike | (exact == rough)).all())


def _coordinates(axis: ResizeAxis, how: str, dtype: Any) -> np.ndarray:
    y = np.arange(axis.out, dtype=dtype)
    scale, half = dtype(axis.scale), dtype(0.5)
    if how == "align_corners":
        return np.asarray(y * dtype(axis.size - 1) / dtype(max(axis.out - 1, 1)))
    if how == "asymmetric":
        return np.asarray(y / scale)
    at = (y + half) / scale - half
    if how == "half_pixel_symmetric":
        at = at + dtype(axis.size / 2 * (1 - axis.out / (axis.scale * axis.size)))
    return np.asarray(at)


def _rounded(at: np.ndarray, rounding: str) -> np.ndarray:
    ways: dict[str, Callable[[], np.ndarray]] = {
        "floor": lambda: np.floor(at),
        "ceil": lambda: np.ceil(at),
        "round_prefer_ceil": lambda: np.floor(at + 0.5),
        "round_prefer_floor": lambda: np.ceil(at - 0.5),
    }
    return np.asarray(ways[rounding](), np.int64)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


@rewrite(
    "resize-sizes",
    operators=("Resize",),
    reason="The DLA needs whole-number scales instead of an output size",
)
def resize_sizes(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes the same Resize with four scales; coordinates stay.

    At a Resize of H and W by whole factors with sizes or axes.
    """
    made = resizing(graph, node)
    if made is None or not made.image or made.scaled:
        return
    factors = [axis.factor for axis in made.axes]
    if not (min(factors) > 0 and max(factors) > 1):
        return
    new = yield (node,)
    gone = {"axes", "keep_aspect_ratio_policy"}
    attrs = {key: value for key, value in node.attrs.items() if key not in gone}
    scales = new.constant(np.array(factors, np.float64), role="scales", dtype="float32")
    new.node("Resize", [node.inputs[0], "", scales], output=node.outputs[0], **attrs)


class Growth(NamedTuple):
    """Growth of an axis.

    Growing an axis by a whole factor, in steps that the DLA supports.

    Linear interpolation equals a moving average of repeated elements: repeated s times each and
    averaged over s neighbours, an element reaches to its neighbours' centres, with linearly falling
    weights. Average pooling without the padding (``count_include_pad`` = 0) equals clamping at the
    borders, since such a window contains copies of a single element there.

    Attributes:
        kind: "same", "repeat" (of each element), or the coordinate mode of linear growth.
        factor: Growth factor; for "align_corners", output elements from one corner to the next.
        single: True if the axis has one element.
    """

    kind: Kind
    factor: int
    single: bool = False


class GrowthStage(NamedTuple):
    """One step along one axis.

    Attributes:
        kind: "nearest" or "linear" (resizing), "pool" (averaging) or "crop".
        size: The factor, the window, or the remaining size.
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
    """Returns the growth of an axis; None if it is of another kind.

    Compares the read elements and their weights, so coordinate and rounding modes with the same
    effect for these sizes are equal.
    """
    if axis.out < axis.size:
        return None
    # by results, O(out): matrices of both would have out times size elements
    seen = _effect(*rows(made, axis), axis.size)
    for item in _possible_growths(axis):
        difference = seen - _effect(*rows(*_ideal_resize(item, axis)), axis.size)
        if np.abs(difference).max() <= _SAME_EFFECT:
            return item
    return None


def only_repeats(grown: tuple[Growth, ...]) -> bool:
    """Returns True if every axis only repeats its elements."""
    return all(item.kind in {"same", "repeat"} for item in grown)


def _possible_growths(axis: ResizeAxis) -> list[Growth]:
    if axis.out == axis.size:
        return [Growth("same", 1)]
    found = []
    # repetition first: it has fewer layers than interpolation with the same effect
    if axis.out % axis.size == 0:
        factor = axis.out // axis.size
        found.append(Growth("repeat", factor, axis.size == 1))
        found += [Growth("half_pixel", factor), Growth("asymmetric", factor)]
    if axis.size > 1 and (axis.out - 1) % (axis.size - 1) == 0:
        found.append(Growth("align_corners", (axis.out - 1) // (axis.size - 1)))
    return found


def _ideal_resize(item: Growth, axis: ResizeAxis) -> tuple[Resizing, ResizeAxis]:
    nearest = item.kind in {"same", "repeat"}
    how = "asymmetric" if nearest else item.kind
    mode = "nearest" if nearest else "linear"
    ideal = Resizing((), mode, how, "floor", -0.75, exclude=False, scaled=True)
    return ideal, ResizeAxis(axis.size, axis.out, axis.out / axis.size)


def _effect(index: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """Returns the result for numbers for which different combinations have different results."""
    probe = np.random.default_rng(0).standard_normal((size, 2))
    return np.asarray((probe[index] * weight[..., None]).sum(1))


def stages(item: Growth, *, linear: bool) -> list[GrowthStage] | None:
    """Returns the steps for an axis; None if there are none within the DLA's limits.

    Args:
        item: The axis' growth.
        linear: True if a linear Resize by a factor within the DLA's limit may be a step.
    """
    if item.kind == "same":
        return []
    if item.kind == "repeat":
        return _repeat(item)
    if item.kind == "half_pixel":
        return _half_pixel(item.factor, linear=linear)
    # the knots of linear growth by b are among the elements of a following growth by a
    _, window = rule_range("pooling.window")
    most = window
    if item.kind == "asymmetric":
        # each average is padded by its window less 1, at the end
        most = min(window, rule_range("pooling.padding")[1] + 1)
    parts = factors(item.factor, most)
    if parts is None:
        return None
    found = []
    for part in parts:
        end = part - 1 if item.kind == "asymmetric" else 0
        found += [GrowthStage("nearest", part), GrowthStage("pool", part, 0, end)]
    return found


def _repeat(item: Growth) -> list[GrowthStage] | None:
    _, most = rule_range("resize.nearest_scale")
    parts = factors(item.factor, most)
    if parts is not None:
        return [GrowthStage("nearest", part) for part in parts]
    if not item.single:
        return None
    # one element: additional copies do no harm
    enough = item.factor
    while (parts := factors(enough, most)) is None:
        enough += 1
    return [*(GrowthStage("nearest", part) for part in parts), GrowthStage("crop", item.factor)]


def _half_pixel(factor: int, *, linear: bool) -> list[GrowthStage] | None:
    """Returns the steps of half_pixel growth, odd factors first.

    With an odd factor, the result's elements include the knots (the centres of the input's
    elements); with a power of 2 the knots are between elements, so it comes last. If it takes
    several steps, they work on the elements' edges (one more than elements), and the mean of two
    neighbouring edges comes last.
    """
    _, window = rule_range("pooling.window")
    _, native = rule_range("resize.linear_scale")
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
    """Writes the steps of H and W: together if their kinds are equal, else H first.

    Args:
        new: The writer.
        source: Tensor [N, C, H, W].
        shape: Its shape.
        plan: Steps of H and of W; not both empty.
        output: Tensor to write.
        name: Name of the first node.
        inclusive: True if averages count their padding, corrected by a scale by position; False
            if they exclude it.
    """
    down, across = plan
    pairs: list[_Pair]
    # a layer resizes, pools or crops both axes
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
        # without padding both averages are equal
        if inclusive and any(stage and stage.begin + stage.end for stage in pair):
            pooled = _write(new, source, pair, output="", name=first, count=True)
            places = _padding_factors(pair, sizes, shape)
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


def _padding_factors(pair: _Pair, sizes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Returns the correction factors of averages that count their padding, in the full shape."""
    sides = []
    for stage, size, out in zip(pair, sizes, shape[2:], strict=True):
        window = stage or GrowthStage("pool", 1)
        first = np.arange(out) - window.begin
        seen = np.minimum(first + window.size, size) - np.maximum(first, 0)
        sides.append(window.size / seen)
    return np.broadcast_to(np.multiply.outer(*sides), (1, *shape[1:]))


@rewrite(
    "resize-coordinates",
    operators=("Resize",),
    reason="The DLA supports few combinations of coordinates and rounding; for whole factors many "
    "others are equivalent to a supported combination",
)
def resize_coordinates(graph: RewriteGraph, node: Node) -> Replacement:
    """Compares the read elements and their weights, not the names of the modes.

    Nearest resizing by whole factors repeats elements with several coordinate and rounding modes;
    it equals asymmetric and floor, which the DLA of every release supports. The same applies to a
    linear or cubic Resize of a single element.

    At a Resize by whole factors that equals a supported Resize.
    """
    found = read_growth(graph, node)
    if found is None:
        return
    made, (down, across) = found
    nearest = only_repeats((down, across))
    if not nearest and any(item.kind not in {"half_pixel", "same"} for item in (down, across)):
        return
    _, most = rule_range("resize.nearest_scale" if nearest else "resize.linear_scale")
    factors = (down.factor, across.factor)
    # a supported Resize would be replaced by itself, endlessly
    if max(factors) > most or _is_supported(made, nearest=nearest):
        return
    new = yield (node,)
    mode = "nearest" if nearest else "linear"
    resize(new, node.inputs[0], factors, mode, output=node.outputs[0])


def read_growth(graph: RewriteGraph, node: Node) -> tuple[Resizing, tuple[Growth, Growth]] | None:
    """Returns the growth of H and W by a Resize; None for other Resizes, and without growth.

    Also None if rounding errors of its coordinates are larger than a proof allows.
    """
    made = resizing(graph, node)
    if made is None or not made.image:
        return None
    sides = [growth(made, axis) for axis in made.axes[2:]]
    if sides[0] is None or sides[1] is None or all(a.out == a.size for a in made.axes):
        return None
    if not all(axis.out == axis.size or is_exact_in_float32(made, axis) for axis in made.axes[2:]):
        return None
    return made, (sides[0], sides[1])


def _is_supported(made: Resizing, *, nearest: bool) -> bool:
    if not made.scaled:
        return False
    if nearest:
        words = (made.mode, made.coordinates, made.rounding)
        return words == ("nearest", "asymmetric", "floor")
    return made.mode == "linear" and made.coordinates in _LINEAR


@rewrite(
    "resize-nearest-large",
    operators=("Resize",),
    reason="The DLA repeats elements up to 32 times in one layer; two layers repeat more",
)
def resize_nearest_large(graph: RewriteGraph, node: Node) -> Replacement:
    """Repeats elements a times, then b times, instead of a * b times.

    A single element may be repeated too often, with a Slice after it: this restores global features
    to any size. Other factors with a prime factor over the limit are not supported.

    At a Resize that repeats elements more often than one layer can.
    """
    found = read_growth(graph, node)
    if found is None or not only_repeats(found[1]):
        return
    plan = _plan_stages(found[1], linear=False)
    # one layer is a supported Resize already
    if plan is None or max(map(len, plan)) < 2:
        return
    new = yield (node,)
    _write_at(graph, node, new, plan)


@rewrite(
    "resize-linear-in-steps",
    operators=("Resize",),
    reason="The DLA interpolates by factors up to 4 with half_pixel coordinates only; several such "
    "steps, or repeated elements averaged over their neighbours, do the rest",
    enabling=True,
)
def resize_linear_in_steps(graph: RewriteGraph, node: Node) -> Replacement:
    """Writes linear growth that one DLA layer does not support, as several layers.

    For half_pixel, an odd factor may precede any other factor, because the result's elements then
    include the input's, with linear growth between them: 6 is 3, then 2. Growth without a linear
    layer (5, 7, 8 and more, and asymmetric and aligned corners) repeats elements and averages
    neighbours. All steps are means of the elements, so magnitudes do not grow.

    Factors with a prime factor over the pooling window (11, 13), and aligned corners at a
    fractional distance, are left to resize-to-convolution.

    At a linear Resize that takes more than one layer.
    """
    found = read_growth(graph, node)
    if found is None or only_repeats(found[1]):
        return
    plan = _plan_stages(found[1], linear=True)
    if plan is None or all([stage.kind for stage in part] in ([], ["linear"]) for part in plan):
        return
    new = yield (node,)
    _write_at(graph, node, new, plan)


def _plan_stages(
    sides: tuple[Growth, Growth], *, linear: bool
) -> tuple[list[GrowthStage], list[GrowthStage]] | None:
    down, across = (stages(side, linear=linear) for side in sides)
    return None if down is None or across is None else (down, across)


def _write_at(
    graph: RewriteGraph,
    node: Node,
    new: Writer,
    plan: tuple[list[GrowthStage], list[GrowthStage]],
    *,
    inclusive: bool = False,
) -> None:
    shape = graph.shape(node.inputs[0])
    write(
        new,
        node.inputs[0],
        shape,
        plan,
        output=node.outputs[0],
        name=node.name,
        inclusive=inclusive,
    )


@rewrite(
    "resize-to-convolution",
    operators=("Resize",),
    reason="The DLA resizes by whole factors only, nearest or linear; with height or width as "
    "channels, a 1x1 convolution with fixed weights does any resize",
)
def resize_to_convolution(graph: RewriteGraph, node: Node) -> Replacement:
    """Computes each row of the result as a sum of input rows with fixed weights.

    With H as channels this is a 1x1 convolution, with W as channels another. It is exact for every
    mode, including borders: cubic (clamped or with ``exclude_outside``), aligned corners,
    fractional scales. A fixed deconvolution with a position map would support only whole factors,
    and cubic modes only with ``exclude_outside``: clamping moves the weights of outside elements to
    the border's elements, which no factor of the result can do. It would also need dense weights
    between all channels, because the DLA has no grouped deconvolution.

    At a Resize of H and W that no DLA layer supports.
    """
    made = resizing(graph, node)
    if made is None or not made.image or _fits_dla(made):
        return
    sides = [axis for axis in made.axes[2:] if not _keeps_axis(axis)]
    if not sides or max(axis.size * axis.out for axis in sides) > _MOST:
        return
    if not all(is_exact_in_float32(made, axis) for axis in sides):
        return
    new = yield (node,)
    source, output = node.inputs[0], node.outputs[0]
    down, across = (not _keeps_axis(axis) for axis in made.axes[2:])
    if down:
        turned = new.node("Transpose", [source], perm=_TO_H)
        source = _product(new, node, turned, _matrix(made, made.axes[2]), node.name)
        if not across:
            new.node("Transpose", [source], output=output, name=_end(node), perm=_TO_H)
            return
    turned = new.node("Transpose", [source], perm=_H_TO_W if down else _TO_W)
    name = f"{node.name}:width" if down else node.name
    source = _product(new, node, turned, _matrix(made, made.axes[3]), name)
    perm = _W_TO_END if down else _TO_W
    new.node("Transpose", [source], output=output, name=_end(node), perm=perm)


def _fits_dla(made: Resizing) -> bool:
    """Returns True if the DLA supports it: whole factors within the limits, allowed modes."""
    factors = [axis.factor for axis in made.axes[2:]]
    words = (made.coordinates, made.rounding)
    nearest = made.mode == "nearest" and words in _NEAREST
    linear = made.mode == "linear" and made.coordinates in _LINEAR
    _, most = rule_range("resize.nearest_scale" if nearest else "resize.linear_scale")
    return (nearest or linear) and min(factors) >= 1 and max(factors) <= most


def _keeps_axis(axis: ResizeAxis) -> bool:
    return axis.scale == 1 and axis.out == axis.size


def _matrix(made: Resizing, axis: ResizeAxis) -> np.ndarray:
    index, weight = rows(made, axis)
    matrix = np.zeros((axis.out, axis.size))
    # clamped taps at a border have the same index, and plain assignment would keep the last only
    np.add.at(matrix, (np.arange(axis.out)[:, None], index), weight)
    return matrix


def _product(new: Writer, node: Node, source: str, matrix: np.ndarray, name: str) -> str:
    weight = new.constant(matrix[:, :, None, None], like=node.inputs[0], role="interpolation")
    return new.node("Conv", [source, weight], name=name)


def _end(node: Node) -> str:
    return f"{node.name}:back"
