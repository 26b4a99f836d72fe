"""Converts a network to opset 13, the oldest opset that rewrites support; proved like a rewrite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.graph import Attributes, Node
from edgekit.network.loading.load import canonical
from edgekit.network.model import Model
from edgekit.network.protos import free_name, subgraphs
from edgekit.network.windows import attributes
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.graph import Applied, RewriteGraph
from edgekit.rewriting.proof.prove import RUNS, SEED, Proof, compare, random_feeds
from edgekit.rewriting.proof.sides import ProofSide

# equivalents of floor(x + 0.5) and ceil(x - 0.5 + 0.5); the other two modes have none
_WITHOUT_HALF = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
_OPSET = 13
#: Name of the entry; not in the list of rewrites, because it has no anchor.
RAISED = "raise-opset"
RAISED_REASON = (
    "before opset 13 Softmax flattens its input to two dimensions, which no DLA runs, and other "
    "rewrites need operators of opset 13; it runs with any other rewrite unless it is disabled"
)


def _take_attributes(node: onnx.NodeProto, *names: str) -> Attributes:
    """Removes attributes from a node and returns their values; None for missing attributes."""
    found = attributes(node)
    retained = [item for item in node.attribute if item.name not in names]
    del node.attribute[:]
    node.attribute.extend(retained)
    return {name: found.get(name) for name in names}


def _set_inputs(node: onnx.NodeProto, inputs: Sequence[str]) -> list[onnx.NodeProto]:
    inputs = list(inputs)
    # ONNX omits trailing optional inputs; as empty names, ``fits`` would count them
    while inputs and not inputs[-1]:
        inputs.pop()
    del node.input[:]
    node.input.extend(inputs)
    return [node]


def _softmax(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    # all axes from here on were merged; often all but one have size 1

    shape = at.types[node.input[0]][1]
    given = _take_attributes(node, "axis")["axis"]
    first = (1 if given is None else given) % max(len(shape), 1)
    wide = [axis for axis in range(first, len(shape)) if shape[axis] > 1]
    if len(wide) <= 1 or first >= len(shape):
        axis = wide[0] if wide else min(first, len(shape) - 1)
        node.attribute.append(helper.make_attribute("axis", axis))
        return [node]
    before, after = (at.name(node, role) for role in ("flatten", "reshape"))
    source, target = node.input[0], node.output[0]
    at.tensors |= {before, after}
    node.input[0], node.output[0] = before, after
    node.attribute.append(helper.make_attribute("axis", 1))
    # the old shape, not 0 and -1: Flatten merged the axes
    size = at.whole(node, "shape", shape)
    return [
        helper.make_node("Flatten", [source], [before], before, axis=first),
        node,
        helper.make_node("Reshape", [after, size], [target], after),
    ]


def _clip(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 11:
        return [node]
    kind = helper.tensor_dtype_to_np_dtype(at.types[node.input[0]][0])
    bounds = _take_attributes(node, "min", "max")
    named = ["" if v is None else at.constant(node, n, v, kind) for n, v in bounds.items()]
    return _set_inputs(node, [node.input[0], *named])


def _batch_norm(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    return (
        [node]
        if at.opset >= 9 or _take_attributes(node, "spatial")["spatial"] in {None, 1}
        else None
    )


def _pad(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 11:
        return [node]
    kind = helper.tensor_dtype_to_np_dtype(at.types[node.input[0]][0])
    given = _take_attributes(node, "pads", "value")
    fill = "" if given["value"] is None else at.constant(node, "value", given["value"], kind)
    return _set_inputs(node, [node.input[0], at.whole(node, "pads", given["pads"]), fill])


def _slice(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 10:
        return [node]
    given = _take_attributes(node, "starts", "ends", "axes")
    return _set_inputs(node, [node.input[0], *(at.whole(node, n, v) for n, v in given.items())])


def _top_k(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    if at.opset >= 10:
        return [node]
    return _set_inputs(
        node, [node.input[0], at.whole(node, "k", [_take_attributes(node, "k")["k"]])]
    )


def _attribute_to_input(attribute: str) -> Callable[[Raiser, onnx.NodeProto], list[onnx.NodeProto]]:
    def change(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        given = _take_attributes(node, attribute)[attribute]
        return _set_inputs(node, [node.input[0], at.whole(node, attribute, given)])

    return change


def _resize(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    if node.op_type == "Resize" and at.opset >= 11:
        return [node] if _half_pixels(node) else None
    given = _take_attributes(node, "scales")["scales"]
    scales = at.constant(node, "scales", given, "float32") if given else node.input[1]
    word = "floor"
    if attributes(node).get("mode", "nearest") == "nearest":
        sizes = (at.types[name][1] for name in (node.input[0], node.output[0]))
        steps = {(b > a) - (b < a) for a, b in zip(*sizes, strict=True)}
        # opset 10 rounds by the direction of each axis; opset 13 has one nearest_mode for all axes
        if {1, -1} <= steps:
            return None
        # onnx's example for opset 10 and ONNX Runtime take the next element when shrinking
        word = "ceil" if -1 in steps else "floor"
    node.op_type = "Resize"
    fixed = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": word}
    node.attribute.extend(helper.make_attribute(name, word) for name, word in fixed.items())
    return _set_inputs(node, [node.input[0], "", scales])


def _half_pixels(node: onnx.NodeProto) -> bool:
    """Replaces tf_half_pixel_for_nn by its equivalent in opset 13; False if there is none.

    That mode, of opset 11 only, reads at (x + 0.5) / scale; half_pixel reads 0.5 before that
    (ONNX's operator changelog, Resize).
    """
    given = attributes(node)
    if given.get("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return True
    word = _WITHOUT_HALF.get(given.get("nearest_mode", "round_prefer_floor"))
    if word is None or given.get("mode", "nearest") != "nearest":
        return False
    _take_attributes(node, "coordinate_transformation_mode", "nearest_mode")
    modes = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": word}
    node.attribute.extend(helper.make_attribute(key, value) for key, value in modes.items())
    return True


def _scatter(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    node.op_type = "ScatterElements"
    return [node]


def _scan(at: Raiser, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    return [node] if at.opset >= 9 else None


class Raiser:
    """Converts a model to opset 13.

    Attributes:
        opset: The model's opset.
        types: Element type and shape by tensor.
        given: Element type and shape by tensor of the original model.
        stuck: The node that could not be raised; empty if none.
    """

    def __init__(self, model: Model) -> None:
        self.opset = model.graph.opset
        self.stuck = ""
        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(model.proto)
        graph = self.proto.graph
        self.types: dict[str, tuple[int, tuple[int, ...]]] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            self.types[value.name] = tensor.elem_type, tuple(d.dim_value for d in tensor.shape.dim)
        for item in graph.initializer:
            self.types[item.name] = item.data_type, tuple(item.dims)
        self.given = dict(self.types)
        self.tensors = set(self.types)
        self.names = {node.name for node in graph.node}

    def run(self) -> onnx.ModelProto | None:
        """Returns the raised model; None if a node cannot be raised."""
        graph = self.proto.graph
        made: list[onnx.NodeProto] = []
        for node in graph.node:
            self.stuck = f"{node.op_type} {node.name!r}"
            # a body's nodes are not converted: only bodies that are equal in both opsets pass
            for body in subgraphs(node):
                if any(CHANGED.get(inner.op_type) or not self.fits(inner) for inner in body.node):
                    return None
            change = None if node.domain else CHANGED.get(node.op_type)
            nodes = change(self, node) if change is not None else [node]
            if nodes is None or not all(self.fits(item) for item in nodes):
                return None
            made += nodes
        self.stuck = ""
        del graph.node[:]
        graph.node.extend(made)
        for item in self.proto.opset_import:
            if not item.domain:
                item.version = _OPSET
        # each opset needs a minimum IR version (onnx.helper.OP_SET_ID_VERSION_MAP)
        needed = helper.find_min_ir_version_for(self.proto.opset_import, ignore_unknown=True)
        self.proto.ir_version = max(self.proto.ir_version, needed)
        return self.proto

    def fits(self, node: onnx.NodeProto) -> bool:
        """Returns True if opset 13 has an operator of this name with these attributes."""
        if node.domain:
            return True
        if not onnx.defs.has(node.op_type, max_inclusive_version=_OPSET):
            return False
        schema = onnx.defs.get_schema(node.op_type, _OPSET)
        named = all(item.name in schema.attributes for item in node.attribute)
        # finds changed operators that the table lacks: an attribute became an input, or inputs were
        # added
        fit = schema.min_input <= len(node.input) <= schema.max_input
        return named and fit and not schema.deprecated

    def constant(self, node: onnx.NodeProto, role: str, value: Any, kind: Any) -> str:
        """Adds a constant and returns its name."""
        name = free_name(f"{node.name}:{role}", self.tensors)
        self.tensors.add(name)
        array: np.ndarray = np.asarray(value, kind)
        self.proto.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def whole(self, node: onnx.NodeProto, role: str, value: Sequence[int] | None) -> str:
        """Adds a list of integers and returns its name; "" for None."""
        return "" if value is None else self.constant(node, role, list(value), "int64")

    def name(self, node: onnx.NodeProto, role: str) -> str:
        """Returns a free name for a node next to ``node``."""
        name = free_name(f"{node.name}:{role}", self.names)
        self.names.add(name)
        return name


#: Converters by operator: each returns the nodes that replace a node, None if there are none.
CHANGED: Mapping[str, Callable[[Raiser, Any], list[onnx.NodeProto] | None]] = {
    "BatchNormalization": _batch_norm,
    "Clip": _clip,
    "Hardmax": _softmax,
    "LogSoftmax": _softmax,
    "Pad": _pad,
    "ReduceSum": _attribute_to_input("axes"),
    "Resize": _resize,
    "Scan": _scan,
    "Scatter": _scatter,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _attribute_to_input("split"),
    "Squeeze": _attribute_to_input("axes"),
    "TopK": _top_k,
    "Unsqueeze": _attribute_to_input("axes"),
    "Upsample": _resize,
}


def raise_opset(model: Model, least: int = _OPSET) -> Model | None:
    """Returns the network in ai.onnx opset 13, or in its own newer opset.

    Node by node, without onnx's version converter: that makes an Upsample, and a Resize of opset
    10, read half pixels, keeps modes that opset 13 lacks, adds a Shape, a Flatten and a Reshape to
    each Softmax, leaves added nodes without names, and stops at unknown operators (onnx 1.23.2).
    Mending its results would take as much code as this table. Source of the changes between opsets:
    ONNX's operator changelog.

    Weights, their names and the names of all nodes and tensors stay; parameters that were
    attributes become constants called "NODE:PARAMETER".

    Args:
        model: The network.
        least: Models of at least this opset are returned unchanged; at most 13.

    Returns:
        None if an operator cannot be raised (a Scan of opset 8, batch normalization per
        element).
    """
    if model.graph.opset >= min(least, _OPSET):
        return model
    raiser = Raiser(model)
    proto = raiser.run()
    if proto is None:
        return None
    try:
        # types of existing tensors stay: only those of added tensors are inferred
        raised = canonical(
            proto,
            None,
            source=model.source,
            weights=model.weights,
            known=raiser.given,
            plugins=model.plugins,
        )
    except ModelError:
        return None
    return replace(raised, folded={**raised.folded, **model.folded})


def find_obstacle(model: Model) -> str:
    """Returns operator and name of the node that cannot be raised, for people."""
    raiser = Raiser(model)
    raiser.run()
    return raiser.stuck or "the network as a whole"


def prove_raising(model: Model, raised: Model, *, runs: int = RUNS, seed: int = SEED) -> Applied:
    """Returns the record of raising ``model`` to ``raised``, with the largest errors of its proofs.

    Nodes whose operator, attributes and inputs stayed are excluded.
    """
    old, new = RewriteGraph(model), RewriteGraph(raised)
    gone: list[Node] = []
    come: list[Node] = []
    worst = Proof(0.0, 0.0)
    for node in old.nodes():
        made = _find_replacements(node, old, new)
        if len(made) == 1 and _form(made[0]) == _form(node):
            continue
        gone.append(node)
        come += made
        outputs = [name for name in node.outputs if name]
        read = [name for name in dict.fromkeys(node.inputs) if name and not old.constant(name)]
        feeds = random_feeds(old, read, runs, seed)
        try:
            proof = compare(ProofSide(old, [node], ()), ProofSide(new, made, ()), feeds, outputs)
        except MalformedError:  # nodes that cannot be computed are not proved
            proof = Proof(math.inf, math.inf)
        worst = Proof(
            max(worst.float32 or 0.0, proof.float32 or 0.0), max(worst.float64, proof.float64)
        )
    return Applied(
        RAISED,
        RAISED_REASON,
        "",
        tuple(node.name for node in gone),
        tuple(node.name for node in come),
        worst.float32,
        worst.float64,
        runs,
        seed,
    )


def raising_holds(entry: Applied) -> bool:
    """Returns True if raising changed no result."""
    return Proof(entry.max_error, entry.max_error_float64 or 0.0).holds()


def _find_replacements(node: Node, old: RewriteGraph, new: RewriteGraph) -> list[Node]:
    """Returns the nodes of ``new`` that replace ``node``, in topological order."""
    found: dict[str, Node] = {}

    def add(tensor: str) -> None:
        maker = new.producer(tensor)
        if maker is None or maker.name in found or tensor in node.inputs:
            return
        # a node that both models have replaces nothing: the search stops there
        if maker.name != node.name and old.has(maker.name):
            return
        for name in maker.inputs:
            add(name)
        found[maker.name] = maker

    for tensor in node.outputs:
        add(tensor)
    return list(found.values())


def _form(node: Node) -> tuple[object, ...]:
    return node.op, node.inputs, node.outputs, sorted(map(str, node.attrs.items()))
