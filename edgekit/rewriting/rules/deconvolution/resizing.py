"""What a Resize does along each axis, as ONNX defines it; resizes of other axes or by sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.rewriting.nodes import Match

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


# What a Resize does along each axis: coordinates and weights, as ONNX defines them.
#
# Formulas: ONNX's description of Resize (opset 11 to 19).


# modes that depend on the sizes and scales alone; tf_crop_and_resize reads a region of interest
_COORDINATES = frozenset(
    {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}
)
# FP32 coordinates that are off by more make FP32 results differ by more than 1e-5 (three times
# as much was seen, of two axes): more than a proof allows
_OFF = 3.4e-6
_NEAR = 1e-5


class ResizeAxis(NamedTuple):
    """One axis.

    Attributes:
        size: Of the input.
        out: Of the output.
        scale: The factor that coordinates are divided by.
    """

    size: int
    out: int
    scale: float

    @property
    def factor(self) -> int:
        """The scale where it is a whole number that gives the output's size; 0 if it is not."""
        whole = int(self.scale)
        return whole if whole == self.scale and self.size * whole == self.out else 0


class Resizing(NamedTuple):
    """What a Resize does.

    Attributes:
        axes: By axis of the tensor.
        mode: "nearest", "linear" or "cubic".
        coordinates: ``coordinate_transformation_mode``.
        rounding: ``nearest_mode``.
        cubic: ``cubic_coeff_a``.
        exclude: ``exclude_outside``.
        scaled: Whether it is given as four (rank many) scales.
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
        """Whether it resizes height and width of a 4-D tensor, and nothing else."""
        return len(self.axes) == 4 and all(a.scale == 1 for a in self.axes[:2])


def resizing(graph: RewriteGraph, node: Node) -> Resizing | None:
    """Returns what a Resize of floating-point numbers does.

    None if scales and sizes are computed while running, where it crops (tf_crop_and_resize),
    and where ``antialias`` changes anything but linear growth, for which it says nothing:
    runtimes differ at the borders.
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
        # where it is not whole, these read another size of the output, each runtime its own
        fractional = axis.scale * axis.size != axis.out
        if fractional and how in {"align_corners", "half_pixel_symmetric"} and _scaled(graph, node):
            return None
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
    """Writes a Resize of H and W in the combination that the DLA takes, and returns its output.

    Args:
        new: Where to.
        source: Tensor [N, C, H, W].
        scales: Of H and W, whole numbers.
        mode: "nearest" (asymmetric, floor) or "linear" (half_pixel).
        output: Tensor to write; a new one when empty.
        name: The node's name.
    """
    import numpy as np

    nearest = mode == "nearest"
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
    """Returns which elements each output along an axis reads, and their weights: [out, taps]."""
    import numpy as np

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
            weight = weight / weight.sum(1, keepdims=True)
    return np.clip(index, 0, axis.size - 1).astype(np.int64), weight


def steady(made: Resizing, axis: ResizeAxis) -> bool:
    """Whether coordinates in FP32, as runtimes compute them, say the same as exact ones.

    On long axes with a scale that is no power of 2 they do not: what a Resize gives then is its
    rounding errors, and no other form gives the same.
    """
    import numpy as np

    exact = _coordinates(axis, made.coordinates, np.float64)
    rough = _coordinates(axis, made.coordinates, np.float32).astype(np.float64)
    if made.mode != "nearest":
        return bool(np.abs(exact - rough).max() <= _OFF)
    near = _NEAR * (1 + np.abs(exact))
    chosen = [_rounded(at, made.rounding) for at in (exact, exact - near, exact + near)]
    alike = (chosen[0] == chosen[1]) & (chosen[0] == chosen[2])
    return bool((alike | (exact == rough)).all())


def _coordinates(axis: ResizeAxis, how: str, dtype: Any) -> np.ndarray:
    import numpy as np

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
    import numpy as np

    ways: dict[str, Any] = {
        "floor": lambda: np.floor(at),
        "ceil": lambda: np.ceil(at),
        "round_prefer_ceil": lambda: np.floor(at + 0.5),
        "round_prefer_floor": lambda: np.ceil(at - 0.5),
    }
    return np.asarray(ways[rounding](), np.int64)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    import numpy as np

    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


class ResizeOneDimension:
    """[N, C, L] is [N, C, L, 1] between Reshapes, which meet others on their way and vanish."""

    name = "resize-1d"
    reason = "The DLA resizes height and width only; a one-dimensional image has a width of 1"
    operators: tuple[str, ...] = ("Resize",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Resize of L in a tensor [N, C, L]."""
        made = resizing(graph, node)
        if made is None or len(made.axes) != 3 or any(a.scale != 1 for a in made.axes[:2]):
            return None
        return Match((node,), (0, 1, 2)) if made.axes[2].out != made.axes[2].size else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a Reshape, the Resize, and a Reshape."""
        node = match.nodes[0]
        before = new.constant([*graph.shape(node.inputs[0]), 1], role="shape")
        source = new.node("Reshape", [node.inputs[0], before], name=f"{node.name}:before")
        made = _again(graph, node, new, source, match.facts, single=True)
        after = new.constant(list(graph.shape(node.outputs[0])), role="shape")
        new.node("Reshape", [made, after], output=node.outputs[0], name=f"{node.name}:after")


class ResizeChannelsLast:
    """Transposed, the axes that are resized are H and W; a Transpose after it turns it back.

    That is what models have that keep channels last; Transposes of neighbours cancel. Nothing makes
    a Resize of other axes out of one of H and W, so each is turned once.
    """

    name = "resize-channels-last"
    reason = "The DLA resizes height and width only; a transposition makes other axes these"
    operators: tuple[str, ...] = ("Resize",)
    enabling = True

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Resize of one or two axes of a 4-D tensor, C among them, N not."""
        made = resizing(graph, node)
        if made is None or len(made.axes) != 4:
            return None
        resized = [i for i, a in enumerate(made.axes) if a.scale != 1 or a.out != a.size]
        if not resized or 0 in resized or 1 not in resized or len(resized) == 3:
            return None
        rest = [i for i in (1, 2, 3) if i not in resized]
        # of two axes that stay, the last one becomes the channels: [N, L, 1, C]
        order = (0, rest[-1], *sorted({1, 2, 3} - {rest[-1]}))
        return Match((node,), order)

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes a Transpose, the Resize, and a Transpose."""
        node, order = match.nodes[0], match.facts
        name = f"{node.name}:before"
        source = new.node("Transpose", [node.inputs[0]], name=name, perm=list(order))
        made = _again(graph, node, new, source, order, single=False)
        back = [order.index(axis) for axis in range(4)]
        name = f"{node.name}:after"
        new.node("Transpose", [made], output=node.outputs[0], name=name, perm=back)


def _again(
    graph: RewriteGraph,
    node: Node,
    new: Writer,
    source: str,
    order: tuple[int, ...],
    *,
    single: bool,
) -> str:
    """Writes the Resize with its axes in another order; a last one of size 1 is added."""
    made = resizing(graph, node)
    assert made is not None
    gone = {"axes", "keep_aspect_ratio_policy"}
    attrs = {key: value for key, value in node.attrs.items() if key not in gone}
    axes = [made.axes[axis] for axis in order]
    if node.input(3):
        sizes = new.constant([a.out for a in axes] + [1] * single, role="sizes")
        read = [source, "", "", sizes]
    else:
        factors = [a.scale for a in axes] + [1.0] * single
        scales = new.constant(factors, role="scales", dtype="float32")
        read = [source, "", scales]
    return new.node("Resize", read, name=node.name, **attrs)


class ResizeSizes:
    """The same Resize, its size given by four scales; coordinates stay what they are."""

    name = "resize-sizes"
    reason = "The DLA takes whole-number scales, not the size of the output"
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """Returns a Resize of H and W by whole factors that is given sizes or axes."""
        made = resizing(graph, node)
        if made is None or not made.image or made.scaled:
            return None
        factors = [axis.factor for axis in made.axes]
        return Match((node,), factors) if min(factors) > 0 and max(factors) > 1 else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes it with scales and without the attributes about sizes."""
        import numpy as np

        node = match.nodes[0]
        gone = {"axes", "keep_aspect_ratio_policy"}
        attrs = {key: value for key, value in node.attrs.items() if key not in gone}
        scales = new.constant(np.array(match.facts, np.float64), role="scales", dtype="float32")
        new.node("Resize", [node.inputs[0], "", scales], output=node.outputs[0], **attrs)
