"""What a Resize does along each axis: coordinates and weights, as ONNX defines them.

Formulas: ONNX's description of Resize (opset 11 to 19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Axis", "Resizing", "resize", "resizing", "rows", "steady"]

# modes that depend on the sizes and scales alone; tf_crop_and_resize reads a region of interest
_COORDINATES = frozenset(
    {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}
)
# FP32 coordinates that are off by more make FP32 results differ by more than 1e-5 (three times
# as much was seen, of two axes): more than a proof allows
_OFF = 3.4e-6
_NEAR = 1e-5


@dataclass(frozen=True, slots=True)
class Axis:
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
        """The scale where it is a whole number that gives the output's size; 0 where it is not."""
        whole = int(self.scale)
        return whole if whole == self.scale and self.size * whole == self.out else 0


@dataclass(frozen=True, slots=True)
class Resizing:
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

    axes: tuple[Axis, ...]
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


def resizing(graph: Graph, node: Node) -> Resizing | None:
    """Returns what a Resize of floating-point numbers does.

    None where scales and sizes are computed while running, where it crops (tf_crop_and_resize),
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


def _scaled(graph: Graph, node: Node) -> bool:
    scales = node.input(2)
    return bool(scales) and bool(graph.shape(scales)[0])


def _axes(graph: Graph, node: Node) -> tuple[Axis, ...] | None:
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
    return tuple(Axis(*item) for item in zip(source, target, scales, strict=True))


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


def rows(made: Resizing, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
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


def steady(made: Resizing, axis: Axis) -> bool:
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


def _coordinates(axis: Axis, how: str, dtype: Any) -> np.ndarray:
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
