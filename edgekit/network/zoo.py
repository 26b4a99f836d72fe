"""The nine light_* networks of the onnx package, with weights that make them behave like trained
networks.

``builtin`` returns a network as a model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.errors import ModelError, UsageError
from edgekit.network.loading.load import canonical
from edgekit.network.model import Model
from edgekit.network.source import BUILTIN_ALIASES, BUILTIN_NAMES, near_builtins
from edgekit.network.synthetic import stream, synthetic_image

# The shipped light_* graphs, and the roles of their parameters.
#
# onnx ships the graphs with every large weight as a ConstantOfShape node, and small weights (up to
# 64 values) with values of the trained network. Here all weights become parameters with a shape and
# a role; the shipped values are dropped.


# operators that carry a weight unchanged to its user (here: Unsqueeze and Reshape of weights)
_CARRIERS = frozenset({"Unsqueeze", "Reshape"})
Array = np.ndarray[Any, Any]
# variance above which directions are evened out, as a share of the images' mean variance
_RIDGE = 0.05
# mean, in standard deviations, of logits that pass a ReLU before they are averaged
_CLEAR = 1.5
# from IR 4 on an initializer need not be a graph input too; every ONNX Runtime in use reads 8
_IR_VERSION = 8
# number of inputs of each kind that determine the statistics
_BATCH = {"image": 12, "normal": 5, "uniform": 5, "centred": 5}
# mean of a pre-activation in standard deviations, and the deviation of channels from it
_SHIFT, _SHIFT_SPREAD = 1.0, 0.2
_SCALE_SPREAD = 0.1
# standard deviation of a residual branch at its sum
_BRANCH = 0.35
# share of the layer's mean variance in each channel's: limits the gain of a channel that is nearly
# constant over the batch
_SHRINK = 0.3
# before an LRN: large enough for its square term to matter at the usual alpha of 1e-4, and nearly
# centred, so that faint inputs get the contrast of strong inputs
_LRN_SCALE, _LRN_SHIFT = 30.0, 0.2
_BLOCK_WEIGHT = re.compile(r"res(\d)_(\d)_branch\d([abc]?)_w_0$")
# usual names of the layers of a ResNet
_KINDS = {
    "BatchNormalization": "bn",
    "Sum": "add",
    "AveragePool": "avgpool",
    "Reshape": "flatten",
    "Gemm": "fc",
}


@dataclass(frozen=True)
class ShippedGraph:
    """A shipped graph without its weight generators.

    Attributes:
        proto: Nodes as shipped, less ConstantOfShape; the image is the only input; no float
            initializers.
        shapes: Shape by parameter name.
        root: Parameter name by its own name and those of its reshaped copies.
        carriers: The node that writes a reshaped copy of a parameter, by the copy's name.
        users: Nodes by the name of a tensor they read.
    """

    proto: onnx.ModelProto
    shapes: Mapping[str, tuple[int, ...]]
    root: Mapping[str, str]
    carriers: Mapping[str, onnx.NodeProto]
    users: Mapping[str, tuple[onnx.NodeProto, ...]]

    @property
    def steps(self) -> list[onnx.NodeProto]:
        """The nodes that work on activations, in graph order."""
        return [n for n in self.proto.graph.node if n.output[0] not in self.carriers]

    def parameter(self, node: onnx.NodeProto, index: int) -> str:
        """Returns the parameter that ``node`` reads at ``index``; empty if there is none."""
        return self.root.get(node.input[index], "") if index < len(node.input) else ""

    def only_user(self, node: onnx.NodeProto, op_type: str) -> onnx.NodeProto | None:
        """Returns the node's only consumer if its operator is ``op_type``; else None."""
        users = self.users.get(node.output[0], ())
        return users[0] if len(users) == 1 and users[0].op_type == op_type else None


@dataclass(frozen=True)
class WeightRecipe:
    """Parameters of a network's weights, a compromise of distinct outputs and INT8 accuracy.

    Attributes:
        spread: Standard deviation of an image's logits; a larger value distinguishes inputs better
            and increases the effect of INT8's rounding.
        first_mean: Share of its mean that a filter of the first layer keeps: the mean responds to
            brightness, which is strong in images and weak in noise.
        smooth: Additional share of its mean that a later filter gets: this averages out rounding
            errors, which differ from pixel to pixel, but not the differences of images.
    """

    spread: float = 1.3
    first_mean: float = 0.05
    smooth: float = 1.4


def read_shipped(path: str) -> ShippedGraph:
    """Reads a light_*.onnx file and separates its graph from its weights."""
    proto = onnx.load(path)
    graph = proto.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    shapes: dict[str, tuple[int, ...]] = {}
    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            dims = numpy_helper.to_array(stored[node.input[0]])
            shapes[node.output[0]] = tuple(int(d) for d in dims)
        else:
            nodes.append(node)
    read = {name for node in nodes for name in node.input}
    retained = []
    for name, tensor in stored.items():
        if name in read and tensor.data_type == onnx.TensorProto.FLOAT:
            shapes[name] = tuple(tensor.dims)
        elif name in read:
            retained.append(tensor)
    inputs = [value for value in graph.input if value.name in read and value.name not in stored]
    for field, values in (
        (graph.node, nodes),
        (graph.initializer, retained),
        (graph.input, inputs),
    ):
        copies = list(values)
        del field[:]
        field.extend(copies)
    return _index_graph(proto, shapes)


def _index_graph(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ShippedGraph:
    root = {name: name for name in shapes}
    carriers = {}
    users: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        if node.op_type in _CARRIERS and node.input[0] in root:
            root[node.output[0]] = root[node.input[0]]
            carriers[node.output[0]] = node
        for name in node.input:
            users.setdefault(name, []).append(node)
    return ShippedGraph(proto, shapes, root, carriers, {k: tuple(v) for k, v in users.items()})


def readout(
    start: Array, features: Sequence[Array], kinds: Sequence[str], *, spread: float, clipped: bool
) -> tuple[Array, Array]:
    """Adapts random class weights to the features of the batch.

    Directions that only distinguish the kinds of input are removed, and the few directions in which
    images vary most are damped until the others matter too: otherwise all inputs of a kind, and all
    images with the same colour, would get the same result.

    Args:
        start: Random class weights [classes, features].
        features: The layer's input, an array [1, features, ...] for each input of the batch.
        kinds: The kind of each input; "image" is among them.
        spread: Intended standard deviation of an unseen image's logits; two softmax vectors of
            independent normal logits with standard deviation s have a cosine of exp(-s^2).
        clipped: True if a ReLU follows.

    Returns:
        Weights float32 [classes, features] and bias float32 [classes].
    """
    pooled = np.stack(
        [v[0].reshape(v.shape[1], -1).mean(axis=1, dtype=np.float64) for v in features]
    )
    label = np.array(kinds)
    means = {kind: pooled[label == kind].mean(axis=0) for kind in dict.fromkeys(kinds)}
    centre = np.mean(list(means.values()), axis=0)
    # the differences of k means from their centre span k - 1 directions
    common = np.linalg.qr(np.stack([m - centre for m in means.values()])[:-1].T)[0]

    images = _scale_rows(pooled[label == "image"] - means["image"], common, 0.0)
    weights = _even_out(_scale_rows(start, common, 0.0), images)
    weights *= spread / _unseen_length(images)
    bias = -(weights @ centre)
    if clipped:
        bias += _CLEAR * np.std([np.tensordot(weights, v[0], 1) for v in features])
    return weights.astype(np.float32), bias.astype(np.float32)


def _scale_rows(rows: Array, basis: Array, gains: Array | float) -> Array:
    """Multiplies the rows' parts along the basis (orthonormal columns) by ``gains``."""
    return np.asarray(rows + ((rows @ basis) * (gains - 1)) @ basis.T)


def _even_out(rows: Array, images: Array) -> Array:
    """Damps the rows' parts in the directions in which the images vary most."""
    values, basis = np.linalg.svd(images, full_matrices=False)[1:]
    variance = values**2 / len(images)
    ridge = _RIDGE * variance.mean()
    return _scale_rows(rows, basis.T, np.sqrt(ridge / (variance + ridge)))


def _unseen_length(images: Array) -> float:
    """Returns the mean length of an unseen image after evening, by leave-one-out."""
    total = 0.0
    for index in range(len(images)):
        others = np.delete(images, index, axis=0)
        mean = others.mean(axis=0)
        row = _even_out((images[index] - mean)[None], others - mean)
        total += float((row**2).sum()) * len(others) / len(images)
    return float(np.sqrt(total / len(images)))


class Stages:
    """The current activations of a forward pass over a batch of single images.

    Nodes are queued in graph order; ``advance`` runs the queued nodes and keeps only the tensors
    that later nodes read, so that each node runs once and little memory is used. Images run one
    after the other on a single thread, so that sums do not depend on the number of processors.

    Args:
        graph: The graph to run.
        weights: Parameter values by name; may be filled while the stages run.
        images: The batch: an array of the graph's input shape for each image.
    """

    def __init__(
        self, graph: ShippedGraph, weights: Mapping[str, Array], images: Sequence[Array]
    ) -> None:
        proto = graph.proto
        self._graph = graph
        self._weights = weights
        self._constants = {tensor.name: tensor for tensor in proto.graph.initializer}
        self._left: dict[str, int] = {}
        for node in graph.steps:
            for name in node.input:
                self._left[name] = self._left.get(name, 0) + 1
        self._live: dict[str, list[Array]] = {proto.graph.input[0].name: list(images)}
        self._queue: list[onnx.NodeProto] = []
        self._workers = min(len(images), os.cpu_count() or 1)

    def push(self, node: onnx.NodeProto) -> None:
        """Queues the next step of the graph."""
        self._queue.append(node)

    def advance(self) -> None:
        """Runs the queued nodes over the batch."""
        if not self._queue:
            return
        nodes, self._queue = self._queue, []
        # first, so that `made` lists only what nodes after these read
        for node in nodes:
            for name in node.input:
                self._left[name] -= 1
        made = [name for node in nodes for name in node.output if self._left.get(name, 0) > 0]
        read = dict.fromkeys(name for node in nodes for name in node.input)
        feeds = [name for name in read if name in self._live]
        carried = [self._graph.carriers[name] for name in read if name in self._graph.carriers]
        read |= dict.fromkeys(name for node in carried for name in node.input)
        session = self._session([*carried, *nodes], list(read), made)
        values = {name: self._weights[name] for name in read if name in self._weights}

        def run_image(index: int) -> list[Array]:
            inputs = {name: self._live[name][index] for name in feeds}
            results: list[Array] = session.run(made, {**values, **inputs})
            for name in feeds:  # activations without further readers are freed at once
                if not self._left[name]:
                    self._live[name][index] = np.empty(0, np.float32)
            return results

        count = len(next(iter(self._live.values())))
        with ThreadPoolExecutor(self._workers) as pool:
            rows = list(pool.map(run_image, range(count)))
        for name in feeds:
            if not self._left[name]:
                del self._live[name]
        for position, name in enumerate(made):
            self._live[name] = [row[position] for row in rows]

    def values(self, name: str) -> list[Array]:
        """Returns the tensor ``name`` of each image, as [1, C, ...]; it must be live."""
        return self._live[name]

    def moments(self, name: str) -> tuple[Array, Array]:
        """Returns mean and variance of each channel over images and positions, float64 [C]."""

        def sums(value: Array) -> tuple[Any, Any, int]:
            flat = value.reshape(value.shape[1], -1).astype(np.float64)
            return flat.sum(axis=1), np.einsum("cp,cp->c", flat, flat), flat.shape[1]

        with ThreadPoolExecutor(self._workers) as pool:
            parts = list(pool.map(sums, self._live[name]))
        count = sum(part[2] for part in parts)
        mean = sum(part[0] for part in parts) / count
        square = sum(part[1] for part in parts) / count
        # rounding may make the variance of a constant channel negative
        return mean, np.maximum(square - mean**2, 1e-12)

    def affine(self, name: str, scale: Array, shift: Array) -> None:
        """Replaces the live tensor by ``scale * value + shift`` (both [C])."""
        for value in self._live[name]:
            wide = (1, -1) + (1,) * (value.ndim - 2)
            np.multiply(value, scale.astype(np.float32).reshape(wide), out=value)
            np.add(value, shift.astype(np.float32).reshape(wide), out=value)

    def _session(
        self, nodes: Sequence[onnx.NodeProto], read: Sequence[str], made: Sequence[str]
    ) -> Any:
        from edgekit.network.session import open_session

        def values(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]

        graph = helper.make_graph(
            nodes,
            "stage",
            values([name for name in read if name in self._weights or name in self._live]),
            values(made),
            [self._constants[name] for name in read if name in self._constants],
        )
        opsets = self._graph.proto.opset_import
        stage = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        data = stage.SerializeToString()
        return open_session(data, {}, optimise=False, threads=1, arena=False)


def fill(graph: ShippedGraph, seed: int, recipe: WeightRecipe) -> dict[str, Array]:
    """Returns every parameter of ``graph``, float32 by name.

    A single pass over a seeded batch draws each layer's weights and sets its statistics:

    - Weights are normal, scaled by 1/sqrt(fan-in), and rounded to 255 steps per output channel, as
      in a network trained for INT8. Without this rounding INT8 fails: a ReLU network's activations
      have means as large as their spread, and the rounding errors of weights times means exceed the
      result.
    - Each channel is centred and scaled over the batch (BatchNorm statistics; weights and bias
      without a BatchNorm), then shifted by about one standard deviation. A ReLU at the mean would
      multiply the noise-to-signal ratio by E[f'^2] / Var[f] = 1.47 a layer, so that rounding errors
      would dominate; at one standard deviation above the mean the factor is 1.12.
    - Residual branches are damped for the same reason.
    - The batch holds images, normal noise and uniform noise (0 to 1, -1 to 1): all are
      distinguished.

    Args:
        graph: The shipped graph.
        seed: Another seed gives another network.
        recipe: The network's own parameters.
    """
    return _Filler(graph, seed, recipe).run()


class _Filler:
    def __init__(self, graph: ShippedGraph, seed: int, recipe: WeightRecipe) -> None:
        self._graph = graph
        self._seed = seed
        self._recipe = recipe
        self._weights: dict[str, Array] = {}
        kinds, images = _draw_batch(graph, seed)
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
            # before the node is queued, because it runs with the statistics set here
            if node.op_type == "BatchNormalization":
                self._normalise(node)
            if node.op_type in ("Conv", "Gemm"):
                self._draw(node, first=node is layers[0])
            self._stages.push(node)
            # a normalisation after the node sets scale and shift
            normalised = self._graph.only_user(node, "BatchNormalization") is not None
            if node.op_type in ("Conv", "Gemm") and not normalised:
                self._scale(node)
        return self._weights

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
        """Applies the statistics of a layer without BatchNorm to its weights and bias."""
        name, bias = self._graph.parameter(node, 1), self._graph.parameter(node, 2)
        self._stages.advance()
        mean, variance = self._moments(node.output[0])
        scale = 1 / np.sqrt(variance)
        normalised = self._is_before_lrn(node)
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

    def _is_before_lrn(self, node: onnx.NodeProto) -> bool:
        """Returns True if an LRN follows, after ReLU and pooling."""
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
        if mul is not None and add is not None:  # Caffe's Scale layer has the scale and shift
            self._weights[scale_name] = np.ones(len(mean), np.float32)
            self._weights[shift_name] = np.zeros(len(mean), np.float32)
            scale_name = self._graph.parameter(mul, 1)
            shift_name = self._graph.parameter(add, 1)
        scale = 1 + _SCALE_SPREAD * _uniform("scale", self._seed, scale_name, len(mean))
        shift = self._shift(shift_name, len(mean))
        if node.output[0] in self._branches:
            scale *= _BRANCH
            shift *= 0
        elif self._graph.only_user(node, "Conv") is not None:  # no ReLU follows
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
        size = int(np.prod(shape)) // classes
        start = stream("weight", self._seed, name).standard_normal((classes, size))
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


def _uniform(purpose: str, seed: int, name: str, size: int) -> Array:
    return stream(purpose, seed, name).uniform(-1, 1, size)


def _draw_batch(graph: ShippedGraph, seed: int) -> tuple[list[str], list[Array]]:
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


def _branches(graph: ShippedGraph) -> frozenset[str]:
    """Returns for each Sum the operand that follows the most convolutions."""
    depth: dict[str, int] = {}
    found = set()
    for node in graph.steps:
        below = max(depth.get(name, 0) for name in node.input)
        for name in node.output:
            depth[name] = below + (node.op_type == "Conv")
        if node.op_type == "Sum":
            found.add(max(node.input, key=lambda name: depth[name]))
    return frozenset(found)


# chosen by measurement: two images, or two inputs of noise, are distinguished (cosine mostly below
# 0.5), and INT8 with scales from 16 synthetic images has a cosine of about 0.985 or more to FP32
_RECIPES = {
    "light_bvlc_alexnet": WeightRecipe(spread=2.4, first_mean=0.0, smooth=0.7),
    "light_densenet121": WeightRecipe(first_mean=0.4),
    "light_inception_v1": WeightRecipe(spread=1.95),
    "light_inception_v2": WeightRecipe(spread=1.9),
    "light_resnet50": WeightRecipe(spread=1.82, first_mean=0.1),
    "light_shufflenet": WeightRecipe(spread=1.89),
    "light_squeezenet": WeightRecipe(spread=1.89),
    "light_vgg19": WeightRecipe(spread=2.05, first_mean=0.0, smooth=0.7),
    "light_zfnet512": WeightRecipe(spread=2.0, first_mean=0.0, smooth=0.7),
}


def builtin(name: str, seed: int = 0) -> Model:
    """Returns a network of the onnx package with seeded weights.

    In the shipped networks every large weight has a single repeated value, activations overflow
    FP16 and all inputs give the same output. Here weights come from ``seed``, and statistics from a
    seeded batch: outputs differ between inputs, and FP16 and INT8 keep them. The same seed and
    package versions give the same bytes on the same machine.

    Args:
        name: A name in BUILTIN_NAMES.
        seed: Another seed gives another network.

    Raises:
        UsageError: There is no such network.
        ModelError: The installed onnx package lacks its test data.
    """
    known = BUILTIN_ALIASES.get(name, name)
    if known not in BUILTIN_NAMES:
        near = near_builtins(name)
        raise UsageError(
            f"unknown builtin network {name!r}",
            code="model.unknown_builtin",
            where=name,
            hint=f"did you mean {' or '.join(near)}?"
            if near
            else "known are " + ", ".join(BUILTIN_NAMES),
        )
    graph = read_shipped(_shipped_file(known))
    weights = fill(graph, seed, _RECIPES[known])
    _name_blocks(graph)
    return canonical(graph.proto, None, source=f"builtin:{known}?seed={seed}", weights=weights)


def _name_blocks(graph: ShippedGraph) -> None:
    """Names the layers of a ResNet by stage, block and convolution ("stage2.block1.conv2").

    Its weights still have Caffe2's names ("gpu_0/res2_0_branch2b_w_0"), its nodes have numbers.
    """
    weights = [_BLOCK_WEIGHT.search(graph.parameter(node, 1)) for node in graph.steps]
    if not any(weights):
        return
    block, number = "", "1"
    for node, found in zip(graph.steps, weights, strict=True):
        if found and node.op_type == "Conv":
            block = f"stage{found[1]}.block{int(found[2]) + 1}."
            number = {"a": "1", "b": "2", "c": "3"}.get(found[3], "")
        kind = _KINDS.get(node.op_type, node.op_type.lower())
        if node.op_type in ("Conv", "BatchNormalization"):
            node.name = f"{block}{kind}{number}" if number else f"{block}shortcut.{kind}"
        elif node.op_type == "Relu":
            node.name = f"{block}{kind}{number or 3}"
        else:
            node.name = f"{block}{kind}" if node.op_type == "Sum" else kind


def _shipped_file(name: str) -> str:
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{name}.onnx"
    if not path.is_file():
        raise ModelError(
            f"{name} is not available, because the installed onnx {onnx.__version__} has no test "
            "data",
            code="model.missing",
            where=str(path),
            hint="reinstall onnx from its wheel, or give a model file",
        )
    return str(path)
