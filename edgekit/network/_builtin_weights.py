"""Weights that make a shipped graph behave like a trained one.

One pass over a seeded batch draws each layer's weights and sets its statistics at once:

- Weights are normal, scaled by 1/sqrt(fan-in), and lie on 255 steps per output channel, as those
  of a network trained for INT8 do. Untrained ones would not: a ReLU network's activations have
  means as large as their spread, and the rounding of weights times means drowns the answer.
- Each channel is centred and scaled over the batch (BatchNorm statistics; weights and bias where
  there is no BatchNorm), then shifted by about one standard deviation. A ReLU at the mean would
  multiply the noise-to-signal ratio by E[f'^2] / Var[f] = 1.47 a layer, so that rounding errors
  grow until nothing else is left; at one standard deviation above it the factor is 1.12.
- Residual branches are damped for the same reason.
- The batch holds images, normal noise and uniform noise (0 to 1, -1 to 1): each is told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.network._builtin_fill import Graph, Recipe
from edgekit.network._builtin_readout import readout
from edgekit.network._builtin_stages import Stages
from edgekit.network._synthetic_data import stream, synthetic_image

if TYPE_CHECKING:
    import onnx

__all__ = ["fill"]

Array = np.ndarray[Any, Any]

# how many of each kind of input set the statistics
_BATCH = {"image": 12, "normal": 5, "uniform": 5, "centred": 5}
# mean of a pre-activation in standard deviations, and how far channels differ from it
_SHIFT, _SHIFT_SPREAD = 1.0, 0.2
_SCALE_SPREAD = 0.1
# standard deviation of a residual branch where it joins
_BRANCH = 0.35
# share of the layer's mean variance in each channel's: a channel that is silent over the batch
# must not be blown up
_SHRINK = 0.3
# before an LRN: large enough for its square term to count, at the usual alpha of 1e-4, and nearly
# centred, so that faint inputs are raised to the contrast of strong ones
_LRN_SCALE, _LRN_SHIFT = 30.0, 0.2


def fill(graph: Graph, seed: int, recipe: Recipe) -> dict[str, Array]:
    """Makes every parameter of ``graph``, float32 by name.

    Args:
        graph: The shipped graph.
        seed: Another seed gives another network.
        recipe: What is particular to this network.
    """
    return _Filler(graph, seed, recipe).run()


class _Filler:
    def __init__(self, graph: Graph, seed: int, recipe: Recipe) -> None:
        self._graph = graph
        self._seed = seed
        self._recipe = recipe
        self._weights: dict[str, Array] = {}
        kinds, images = _batch(graph, seed)
        self._kinds = kinds
        self._stages = Stages(graph, self._weights, images)
        self._branches = _branches(graph)

    def run(self) -> dict[str, Array]:
        steps = self._graph.steps
        layers = [node for node in steps if node.op_type in ("Conv", "Gemm")]
        for node in steps:
            if node is layers[-1]:
                self._readout(node)
                return self._weights
            if node.op_type == "BatchNormalization":
                self._normalise(node)
            if node.op_type in ("Conv", "Gemm"):
                self._draw(node, first=node is layers[0])
            self._stages.push(node)
            if node.op_type in ("Conv", "Gemm") and not self._normalised_next(node):
                self._scale(node)
        return self._weights

    def _normalised_next(self, node: onnx.NodeProto) -> bool:
        return self._graph.only_user(node, "BatchNormalization") is not None

    def _draw(self, node: onnx.NodeProto, *, first: bool) -> None:
        name, bias = self._graph.parameter(node, 1), self._graph.parameter(node, 2)
        shape = self._graph.shapes[name]
        values = stream("weight", self._seed, name).standard_normal(shape, dtype=np.float32)
        values *= np.float32(1 / np.sqrt(np.prod(shape[1:])))
        if first:
            values -= np.float32(1 - self._recipe.first_mean) * values.mean(
                axis=(2, 3), keepdims=True
            )
        elif values.ndim == 4:
            values += np.float32(self._recipe.smooth) * values.mean(axis=(2, 3), keepdims=True)
        to_grid(values.reshape(shape[0], -1))
        self._weights[name] = values
        if bias:
            self._weights[bias] = np.zeros(self._graph.shapes[bias], np.float32)

    def _scale(self, node: onnx.NodeProto) -> None:
        """Statistics of a layer without BatchNorm go into its weights and bias."""
        name, bias = self._graph.parameter(node, 1), self._graph.parameter(node, 2)
        self._stages.advance()
        mean, variance = self._moments(node.output[0])
        scale = 1 / np.sqrt(variance)
        normalised = self._contrast_normalised(node)
        if normalised:
            scale *= _LRN_SCALE
        weights = self._weights[name]
        weights *= scale.astype(np.float32).reshape((-1,) + (1,) * (weights.ndim - 1))
        shift = np.zeros(len(mean))
        if bias:
            place = _LRN_SCALE * _LRN_SHIFT if normalised else self._shift(bias, len(mean))
            shift = place - mean * scale
        if bias:
            self._weights[bias] = shift.astype(np.float32)
        self._stages.affine(node.output[0], scale, shift)

    def _contrast_normalised(self, node: onnx.NodeProto) -> bool:
        """Whether an LRN follows, behind ReLU and pooling."""
        for op_type in ("Relu", "MaxPool"):
            node = self._graph.only_user(node, op_type) or node
        return self._graph.only_user(node, "LRN") is not None

    def _normalise(self, node: onnx.NodeProto) -> None:
        self._stages.advance()
        mean, variance = self._moments(node.input[0])
        scale_name, shift_name, mean_name, variance_name = (
            self._graph.parameter(node, index) for index in range(1, 5)
        )
        self._weights[mean_name] = mean.astype(np.float32)
        self._weights[variance_name] = variance.astype(np.float32)
        mul = self._graph.only_user(node, "Mul")
        add = self._graph.only_user(mul, "Add") if mul is not None else None
        if mul is not None and add is not None:  # Caffe's Scale layer does what BatchNorm might
            self._weights[scale_name] = np.ones(len(mean), np.float32)
            self._weights[shift_name] = np.zeros(len(mean), np.float32)
            scale_name = self._graph.parameter(mul, 1)
            shift_name = self._graph.parameter(add, 1)
        scale = 1 + _SCALE_SPREAD * _uniform("scale", self._seed, scale_name, len(mean))
        shift = self._shift(shift_name, len(mean))
        if node.output[0] in self._branches:
            scale *= _BRANCH
            shift *= 0
        elif self._graph.only_user(node, "Conv") is not None:  # no ReLU to keep clear of
            shift *= 0
        self._weights[scale_name] = scale.astype(np.float32)
        self._weights[shift_name] = shift.astype(np.float32)

    def _moments(self, name: str) -> tuple[Array, Array]:
        mean, variance = self._stages.moments(name)
        return mean, (1 - _SHRINK) * variance + _SHRINK * variance.mean()

    def _shift(self, name: str, size: int) -> Array:
        return _SHIFT + _SHIFT_SPREAD * _uniform("shift", self._seed, name, size)

    def _readout(self, node: onnx.NodeProto) -> None:
        self._stages.advance()
        name, bias = self._graph.parameter(node, 1), self._graph.parameter(node, 2)
        shape = self._graph.shapes[name]
        classes = shape[-2] if node.op_type == "Gemm" else shape[0]
        start = stream("weight", self._seed, name).standard_normal((classes, _size(shape, classes)))
        features = self._stages.values(node.input[0])
        clipped = self._graph.only_user(node, "Relu") is not None
        weights, shift = readout(
            start, features, self._kinds, spread=self._recipe.spread, clipped=clipped
        )
        self._weights[name] = to_grid(weights).reshape(shape)
        if bias:
            self._weights[bias] = shift


def to_grid(rows: Array) -> Array:
    """Rounds each row, in place, to multiples of its largest magnitude / 127."""
    top = np.abs(rows).max(axis=1, keepdims=True)
    rows *= np.float32(127) / top
    np.rint(rows, out=rows)
    rows *= top / np.float32(127)
    return rows


def _size(shape: Sequence[int], classes: int) -> int:
    return int(np.prod(shape)) // classes


def _uniform(purpose: str, seed: int, name: str, size: int) -> Array:
    return stream(purpose, seed, name).uniform(-1, 1, size)


def _batch(graph: Graph, seed: int) -> tuple[list[str], list[Array]]:
    value = graph.proto.graph.input[0]
    shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
    kinds, images = [], []
    for kind, count in _BATCH.items():
        for index in range(count):
            rng = stream("batch", seed, kind, index)
            if kind == "image":
                image = synthetic_image(rng, (shape[1], shape[2], shape[3]))[None]
            elif kind == "normal":
                image = rng.standard_normal(shape, dtype=np.float32)
            else:
                image = rng.random(shape, dtype=np.float32)
                image = 2 * image - 1 if kind == "centred" else image
            kinds.append(kind)
            images.append(image)
    return kinds, images


def _branches(graph: Graph) -> frozenset[str]:
    """Of the tensors that a Sum adds, the one behind the most convolutions."""
    depth: dict[str, int] = {}
    found = set()
    for node in graph.steps:
        below = max(depth.get(name, 0) for name in node.input)
        for name in node.output:
            depth[name] = below + (node.op_type == "Conv")
        if node.op_type == "Sum":
            found.add(max(node.input, key=lambda name: depth[name]))
    return frozenset(found)
