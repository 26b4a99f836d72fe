"""A single pass over the graph that infers each tensor's static shape and type and folds
constants.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.graph import LayerSource, Node
from edgekit.network.loading.bodies import evaluate_bodies, result_types
from edgekit.network.loading.folding import (
    LazyFolding,
    constant,
    fold,
    fold_constant_of_shape,
    foldable,
)
from edgekit.network.loading.opaque import inferred_plugin
from edgekit.network.loading.validation import MOST_ELEMENTS, no_size
from edgekit.network.model import Constant, Folded, materialise
from edgekit.network.plugins import CODE, Plugin, plugin_for
from edgekit.network.protos import (
    FLOAT,
    STRING,
    UNLISTED,
    free_name,
    has_bodies,
    is_plugin,
    name_nodes,
    onnx_elem_type,
    reads,
    rename_reads,
    sort,
    tensor_type,
)
from edgekit.network.windows import POOLS, attributes, pool_output_sizes, without_ceil_mode
from edgekit.text import first_line

# longest constant for inference, which only reads shapes, axes and scales
_LONGEST_HINT = 1024
# operators whose result's shape can depend on real numbers
_SIZED_BY_FLOATS = frozenset({"OneHot", "Range", "Resize", "Upsample"})
_CUTS = frozenset({"Gather", "Slice", "Split"})
# comparisons whose shapes are inferred as those of these operators
_LIKE = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}
_INFERRED_SINCE = 16


# All input shapes are static, so a walk over the nodes in order, with onnx's inference of each
# operator and the constants found so far, finds shapes that symbolic inference of the whole graph
# cannot find. Its time is linear in the number of nodes.


class Evaluation:
    """The state of the pass: types and constants by tensor name, kept nodes, renamed tensors.

    Attributes:
        nodes: The nodes that remain.
        constants: Values known before running: initializers and folded constants.
        shapes: Static shape by tensor.
        types: ONNX element type by tensor.
        alias: Name of the tensor that replaces a removed Identity's output.
        folded: The removed nodes.
        unknown: Tensors with plugin- or data-dependent shapes: their type with the known sizes, or
            None if unknown.
        plugins: True if there are nodes of operators other than ai.onnx's.
        own: The user's own plugins.
    """

    def __init__(
        self,
        version: int,
        constants: dict[str, Constant],
        inputs: Mapping[str, tuple[int, tuple[int, ...]]],
        declared: Mapping[str, onnx.TypeProto],
        known: Mapping[str, tuple[int, tuple[int, ...]]],
        given: Mapping[str, tuple[int, ...]],
        own: Sequence[Plugin] = (),
    ) -> None:
        self.version = version
        self.constants = constants
        self.nodes: list[onnx.NodeProto] = []
        self.alias: dict[str, str] = {}
        self.folded: dict[str, Folded] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, int] = {}
        self.unknown: dict[str, onnx.TypeProto | None] = {}
        self.plugins = False
        self._given = given
        self.own = tuple(own)
        self._names: set[str] = set()
        self._patience = LazyFolding()
        self._declared = declared
        self._known = known
        self._protos: dict[str, onnx.TypeProto] = {}
        self._hints: dict[str, onnx.TensorProto] = {}
        self._opsets = [helper.make_opsetid("", version)]
        self._schemas: dict[str, onnx.defs.OpSchema] = {}
        for name, (elem, shape) in inputs.items():
            self._record_type(name, tensor_type(elem, shape))

    def run(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Visits nodes in topological order.

        Raises:
            ModelError: ``model.shape_inference``, ``model.shape_unknown`` or ``model.type``, for
                the first node with an error.
        """
        self._names.update(node.name for node in nodes)
        # a stack, not a loop: a taken branch's nodes come next, and may have branches themselves
        stack = list(reversed(nodes))
        while stack:
            node = stack.pop()
            if self.alias and any(name in self.alias for name in reads(node)):
                rename_reads(node, self.alias)
            branch = None if node.domain else self._taken_branch(node)
            if branch is not None:
                self._fold_away(node, "branch")
                stack.extend(reversed(branch))
            elif node.domain or not self._remove_identity(node):
                self._visit(node)

    def _remove_identity(self, node: onnx.NodeProto) -> bool:
        """Removes an Identity, or a Dropout in inference, by making its output an alias of its
        input; returns True if removed.

        The same applies to a Concat with a single operand that is not empty along its axis.
        """
        if node.op_type == "Concat" and self._without_empty(node):
            self._fold_away(node, "identity")
            self.alias[node.output[0]] = node.input[0]
            return True
        if node.op_type == "Identity" or (
            node.op_type == "Dropout" and not self._dropout_trains(node)
        ):
            self._fold_away(node, "identity")
            self.alias[node.output[0]] = node.input[0]
            if len(node.output) > 1 and node.output[1]:
                # the mask is boolean since opset 10; before, it had the type of the data
                mask = np.array(1, np.bool_ if self.version >= 10 else np.float32)
                shape = self._shape(node.input[0])
                self.constants[node.output[1]] = np.broadcast_to(mask, shape)
            return True
        return False

    def _without_empty(self, node: onnx.NodeProto) -> bool:
        """Drops a Concat's empty operands; returns True if a single operand of several remains."""
        shapes = {
            name: known[1]
            for name in node.input
            if (known := self.type_and_shape(name)) is not None
        }
        filled = [name for name in node.input if 0 not in shapes.get(name, ())]
        axis = attributes(node).get("axis", 1)
        # rank and sizes on all other axes
        beside = {(len(s), *s[:axis], *s[axis:][1:]) for s in shapes.values()}
        # if they do not agree, inference raises the error
        if not filled or len(filled) == len(node.input) or len(beside) > 1:
            return False
        node.input[:] = filled
        return len(filled) == 1

    def _fold_away(self, node: onnx.NodeProto, reason: str) -> None:
        if not node.name:
            # an Identity from a branch's result to the If's output
            return
        last = self.nodes[-1].name if self.nodes else ""
        written = tuple(name for name in node.output if name)
        self.folded[node.name] = Folded(reason, tuple(reads(node)), written, last)

    def _dropout_trains(self, node: onnx.NodeProto) -> bool:
        if len(node.input) < 3 or not node.input[2]:
            return False
        flag = self.constants.get(node.input[2])
        return flag is None or bool(materialise(flag).any())

    def _taken_branch(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Returns the taken branch's nodes for an If with a constant condition, writing to the If's
        outputs; None for any other node."""
        if node.op_type != "If" or not node.input or node.input[0] not in self.constants:
            return None
        wanted = (
            "then_branch"
            if bool(materialise(self.constants[node.input[0]]).any())
            else "else_branch"
        )
        body = next((item.g for item in node.attribute if item.name == wanted), None)
        if body is None or len(body.output) != len(node.output):
            return None  # inference raises the error
        # both branches and other Ifs may use the same inner names
        names = {value.name: f"{node.name}/{value.name}" for value in body.initializer}
        for value in body.initializer:
            self.constants[names[value.name]] = numpy_helper.to_array(value)
        branch = []
        for index, inner in enumerate(body.node):
            rename_reads(inner, names)
            stem = inner.name or f"{inner.op_type}_{index}"
            within = stem if stem.startswith(f"{node.name}/") else f"{node.name}/{stem}"
            inner.name = free_name(within, self._names)
            self._names.add(inner.name)
            # from this node on, since the outer graph may also have a tensor of that name
            names |= {name: f"{node.name}/{name}" for name in inner.output if name}
            for position, name in enumerate(inner.output):
                inner.output[position] = names.get(name, name)
            branch.append(inner)
        for result, outer in zip(body.output, node.output, strict=True):
            source = names.get(result.name, result.name)
            branch.append(helper.make_node("Identity", [source], [outer]))
        return branch

    def _visit(self, node: onnx.NodeProto) -> None:
        # light models and exports have thousands of constants: they need no inference
        plain = None if node.domain else _node_constant(node, self.constants)
        if plain is not None:
            self._fold_away(node, "constant")
            self.constants[node.output[0]] = plain
            return
        if not self._use_known_types(node):
            outputs = self._infer(node)
            for name in node.output:
                if name:
                    self._record_type(name, outputs.get(name), node)
        first = node.output[0]
        # first: all other cases read shapes, which such tensors do not have
        if any(name in self.unknown for name in (*reads(node), *node.output)):
            self.nodes.append(node)
        elif self._moves_nothing(node):
            self._fold_away(node, "constant")
            for name in filter(None, node.output):
                kind = helper.tensor_dtype_to_np_dtype(self.types[name])
                self.constants[name] = np.zeros(self.shapes[name], kind)
        elif node.op_type in {"Shape", "Size"} and not node.domain:
            self._fold_away(node, "constant")
            self.constants[first] = self._fold_shape(node)
        elif not node.domain and foldable(node, self.constants, self.shapes):
            values = self._fold_constants(node)
            if values is None:
                self.nodes.append(node)
            else:
                self._fold_away(node, "constant")
                self.constants.update(values)
        else:
            self.nodes.append(node)

    def _moves_nothing(self, node: onnx.NodeProto) -> bool:
        """Returns True if a node only forwards, or cuts out, tensors without elements."""
        if node.domain or has_bodies(node) or not node.input or not node.input[0]:
            return False
        if node.op_type not in _CUTS and 0 not in self._shape(node.input[0]):
            return False
        return all(0 in self.shapes[name] for name in node.output if name)

    def _fold_shape(self, node: onnx.NodeProto) -> np.ndarray:
        """Returns the result of a Shape or a Size."""
        shape = self._shape(node.input[0])
        if node.op_type == "Size":
            return np.asarray(np.prod(shape, dtype=np.int64))
        bounds = {item.name: item.i for item in node.attribute}
        return np.asarray(shape[slice(bounds.get("start"), bounds.get("end"))], np.int64)

    def _use_known_types(self, node: onnx.NodeProto) -> bool:
        """Uses the known types and shapes of a node's outputs; returns False unless all are
        known."""
        if not self._known:
            return False
        written = [name for name in node.output if name]
        if any(name not in self._known for name in written):
            return False
        if node.op_type in POOLS and attributes(node).get("ceil_mode"):
            # its attributes may have to be changed
            return False
        for name in written:
            self.types[name], self.shapes[name] = self._known[name]
        return True

    def _fold_constants(self, node: onnx.NodeProto) -> Mapping[str, Constant] | None:
        """Returns the outputs of a node with constant inputs; large outputs are computed lazily."""
        named = [name for name in (*node.input, *node.output) if name]
        types = {name: proto for name in named if (proto := self._proto(name)) is not None}
        later = self._patience.step(node, self.constants, types, self.version)
        if later is not None:
            return later
        known = {name: materialise(self.constants[name]) for name in node.input if name}
        return fold(node, known, types, self.version)

    def _infer(self, node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        schema = None if node.domain else self._schemas.get(node.op_type)
        if node.op_type in UNLISTED and not node.domain:
            # the result has the type and shape of the input
            like = self._proto(node.input[0])
            return {} if like is None else {node.output[0]: like}
        if node.domain or (schema is None and is_plugin(node, self.version)):
            self.plugins = True
            return self._infer_plugin(node)
        if schema is None:
            # before opset 16 these are functions without shape inference
            name = _LIKE.get(node.op_type, "") if self.version < _INFERRED_SINCE else ""
            schema = onnx.defs.get_schema(name or node.op_type, self.version)
            self._schemas[node.op_type] = schema
        types = {name: self._proto(name) or onnx.TypeProto() for name in reads(node)}
        unsure = any(name in self.unknown for name in reads(node))
        if schema.deprecated:
            # GroupNormalization of opset 18: onnx no longer infers it, ONNX Runtime runs it
            return self._infer_group_normalization(node, types)
        try:
            if has_bodies(node):
                return self._infer_control_flow(node, types)
            hints = {
                name: hint for name in node.input if (hint := self._hint(name, node)) is not None
            }
            found: dict[str, onnx.TypeProto] = onnx.shape_inference.infer_node_outputs(
                schema, node, types, hints, opset_imports=self._opsets
            )
        except (
            onnx.shape_inference.InferenceError,
            onnx.checker.ValidationError,
            ValueError,
        ) as error:
            # an input of unknown type or shape, not the node, may be the reason
            if unsure:
                return {}
            given = ", ".join(f"{name} {list(self._shape(name))}" for name in types)
            raise ModelError(
                f"node {node.name!r} ({node.op_type}) does not fit its inputs ({given}): "
                f"{first_line(error)}",
                code="model.shape_inference",
                where=node.name,
                hint="check the sizes given for the inputs, or export the model again",
            ) from error
        if unsure:
            return found
        for name, proto in found.items():
            # inference subtracts a window or a crop even if it is larger than the input
            sizes = [dim.dim_value for dim in proto.tensor_type.shape.dim]
            if any(size < 0 for size in sizes):
                raise no_size(node, name, sizes)
        self._check_channels(node)
        # onnx has no shape inference for these
        if node.op_type in {"GroupNormalization", "MeanVarianceNormalization"}:
            return {node.output[0]: types[node.input[0]]}
        return self._infer_pool(node, found) if node.op_type in POOLS else found

    def _infer_plugin(self, node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        """Returns the known types of a plugin's outputs, from the user's own plugin if there is
        one."""
        types = {name: self._proto(name) for name in reads(node)}
        own = plugin_for(self.own, node.op_type, node.domain)
        if own is None:
            return inferred_plugin(node, types)
        constants = {
            n: materialise(v) for n in reads(node) if (v := self.constants.get(n)) is not None
        }
        found = own.infer(node, types, constants)
        for name, proto in found.items():
            said, made = _static_shape(self._declared.get(name)), _static_shape(proto)
            if said is not None and said != made:
                raise ModelError(
                    f"the plugin of node {node.name!r} ({node.op_type}) makes {name!r} "
                    f"{list(made or ())}, but the file says {list(said)}",
                    code=CODE,
                    where=own.where,
                    hint="mend 'outputs' or the function, or export the model again",
                )
        return found

    def _infer_group_normalization(
        self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
    ) -> dict[str, onnx.TypeProto]:
        """Returns the result of a GroupNormalization with scale and bias per group."""
        name = node.input[0]
        groups = attributes(node).get("num_groups", 1)
        shape = () if name in self.unknown else self._shape(name)
        if len(shape) > 1 and (groups < 1 or shape[1] % groups):
            raise ModelError(
                f"node {node.name!r} ({node.op_type}) divides {shape[1]} channels into {groups} "
                "groups",
                code="model.shape_inference",
                where=node.name,
                hint="num_groups must divide the channels; export the model again",
            )
        for other in node.input[1:]:
            if shape and other not in self.unknown and self._shape(other) != (groups,):
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) gets {other!r} "
                    f"{list(self._shape(other))}, but opset {self.version} has scale and bias by "
                    f"group: [{groups}]",
                    code="model.shape_inference",
                    where=node.name,
                    hint="export with opset 21, whose scale and bias are by channel",
                )
        return {node.output[0]: types[name]}

    def _infer_control_flow(
        self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
    ) -> dict[str, onnx.TypeProto]:
        """Returns the types of the results of an If, a Loop or a Scan, from onnx's inference and
        from the evaluated bodies."""
        found = self._infer_model(node, types)
        try:
            return found | result_types(self, node, evaluate_bodies(self, node))
        except ModelError:
            if node.op_type == "Loop":
                raise
            # the branch that is not taken may be invalid for these shapes
            return found

    def body(
        self,
        graph: onnx.GraphProto,
        inputs: Mapping[str, tuple[int, tuple[int, ...]] | None],
        constants: Mapping[str, np.ndarray],
    ) -> Evaluation:
        """Evaluates a body of a node.

        Args:
            graph: The body.
            inputs: Type and shape of the body's own inputs; None if unknown.
            constants: Values of constant inputs.

        Raises:
            ModelError: As :meth:`run`.
        """
        # a copy, since the evaluation renames tensors in place and a body is evaluated more than
        # once
        own = onnx.GraphProto()
        own.CopyFrom(graph)
        name_nodes(own.node)
        # a body may redefine a name of the outer graph
        hidden = {name for node in own.node for name in node.output} | set(inputs)
        known = {n: value for n, value in self.constants.items() if n not in hidden}
        for value in own.initializer:
            known[value.name] = numpy_helper.to_array(value)
        fed = {
            name: (self.types[name], shape)
            for name, shape in self.shapes.items()
            if name not in known and name not in hidden
        }
        fed |= {name: known_type for name, known_type in inputs.items() if known_type is not None}
        known |= constants
        inner = Evaluation(self.version, known, fed, {}, {}, {}, self.own)
        for name in (*(name for name in self.unknown if name not in hidden), *inputs):
            if name not in fed and name not in known:
                inner.unknown[name] = self.unknown.get(name)
        inner.run(sort(list(own.node), {*known, *fed, *inner.unknown}))
        return inner

    def value(self, name: str) -> np.ndarray | None:
        """Returns a constant's values; None for any other tensor."""
        found = self.constants.get(self.alias.get(name, name))
        return None if found is None else materialise(found)

    def type_and_shape(self, name: str) -> tuple[int, tuple[int, ...]] | None:
        """Returns a tensor's type and shape; None if its shape is unknown."""
        name = self.alias.get(name, name)
        if name in self.constants:
            value = self.constants[name]
            return onnx_elem_type(value.dtype), tuple(value.shape)
        return (self.types[name], self.shapes[name]) if name in self.shapes else None

    def _infer_pool(
        self, node: onnx.NodeProto, found: dict[str, onnx.TypeProto]
    ) -> dict[str, onnx.TypeProto]:
        """Returns a pool's results without windows that start after the input."""
        given = attributes(node)
        name = node.output[0]
        shape = _static_shape(found.get(name))
        if not given.get("ceil_mode") or shape is None:
            return found
        source = self._shape(node.input[0])[2:]
        right = pool_output_sizes(given, source, shape[2:])
        if right == shape[2:]:
            return found
        # without ceil_mode every reader computes the same size
        for key, value in (without_ceil_mode(given, source, right) or {}).items():
            for item in [item for item in node.attribute if item.name == key]:
                node.attribute.remove(item)
            node.attribute.append(helper.make_attribute(key, value))
        return {
            name: helper.make_tensor_type_proto(proto.tensor_type.elem_type, (*shape[:2], *right))
            for name, proto in found.items()
        }

    def _check_channels(self, node: onnx.NodeProto) -> None:
        """Checks a convolution's weights against its input, which onnx's inference does not."""
        if node.op_type not in {"Conv", "ConvTranspose"}:
            return
        channels, weight = self._shape(node.input[0])[1], self._shape(node.input[1])
        groups = next((item.i for item in node.attribute if item.name == "group"), 1)
        wanted = weight[1] * groups if node.op_type == "Conv" else weight[0]
        if channels != wanted or weight[0] % max(groups, 1):
            raise ModelError(
                f"node {node.name!r} ({node.op_type}) gets {channels} channels, but its weights "
                f"{list(weight)} in {groups} groups need {wanted}",
                code="model.shape_inference",
                where=node.name,
                hint="check the sizes given for the inputs, or export the model again",
            )

    def _infer_model(
        self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
    ) -> dict[str, onnx.TypeProto]:
        """Infers a node with bodies as a whole model, with captured tensors as inputs."""
        graph = helper.make_graph(
            [node],
            "body",
            [helper.make_value_info(name, proto) for name, proto in types.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=self._opsets)
        done = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        return {value.name: value.type for value in done.graph.output}

    def _record_type(
        self, name: str, proto: onnx.TypeProto | None, node: onnx.NodeProto | None = None
    ) -> None:
        shape = _static_shape(proto)
        # an operator that onnx cannot infer: the exporter knew its shape
        if shape is None and _static_shape(self._declared.get(name)) is not None:
            proto = self._declared[name]
            shape = _static_shape(proto)
        # last: a given shape must agree with what inference and file already know
        if name in self._given:
            proto = self._given_type(name, proto, shape)
            shape = self._given[name]
        if proto is not None and proto.WhichOneof("value") not in {None, "tensor_type"}:
            raise self._not_a_tensor(name, str(proto.WhichOneof("value")), node)
        if proto is not None and proto.tensor_type.elem_type == STRING:
            raise self._not_a_tensor(name, "tensor of strings", node)
        if proto is None or shape is None:
            proto = proto if proto is not None else self._declared.get(name)
            sure = proto is not None and proto.tensor_type.elem_type
            self.unknown[name] = proto if sure else None
            if proto is not None and sure:
                self._protos[name] = proto
            return
        if math.prod(shape) > MOST_ELEMENTS:
            where = node.name if node is not None else name
            raise ModelError(
                f"node {where!r} outputs {name!r} {list(shape)}: {math.prod(shape):,} elements",
                code="model.too_large",
                where=where,
                hint=f"TensorRT allows up to {MOST_ELEMENTS:,} per tensor; check the node's "
                "attributes and the sizes given for the inputs",
            )
        elem = proto.tensor_type.elem_type
        self._protos[name] = proto
        self.shapes[name] = shape
        self.types[name] = elem

    def _given_type(
        self, name: str, proto: onnx.TypeProto | None, shape: tuple[int, ...] | None
    ) -> onnx.TypeProto:
        """Returns the type of a tensor with the user's shape; FP32 if its type is unknown."""
        given = self._given[name]
        if shape is not None and shape != given:
            raise ModelError(
                f"the shape given for tensor {name!r}, {list(given)}, conflicts with the model's "
                f"{list(shape)}",
                code="model.shape_conflict",
                where=name,
                hint="remove it: only shapes that depend on a plugin or on data can be given",
            )
        declared = proto or self._declared.get(name)
        elem = declared.tensor_type.elem_type if declared is not None else 0
        return tensor_type(elem or FLOAT, given)

    def _not_a_tensor(self, name: str, kind: str, node: onnx.NodeProto | None) -> ModelError:
        where = node.name if node is not None else name
        return ModelError(
            f"{name!r} is a {kind.removesuffix('_type')}, not a tensor of numbers",
            code="model.type",
            where=where,
            hint="TensorRT runs only tensors; cut the network before it with model.outputs "
            "(--outputs)",
        )

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self.constants:
            return tuple(self.constants[name].shape)
        return self.shapes[name]

    def _proto(self, name: str) -> onnx.TypeProto | None:
        if name in self.unknown:
            return self.unknown[name]
        if name not in self._protos and name in self.constants:
            value = self.constants[name]
            self._record_type(name, tensor_type(onnx_elem_type(value.dtype), tuple(value.shape)))
        elif name not in self._protos:
            self._protos[name] = tensor_type(self.types[name], self.shapes[name])
        return self._protos[name]

    def _hint(self, name: str, node: onnx.NodeProto) -> onnx.TensorProto | None:
        value = self.constants.get(name)
        # inference never reads larger values, and a lazy one would be computed for nothing
        if value is None or value.ndim > 1 or value.size > _LONGEST_HINT:
            return None
        if value.dtype.kind not in "iu" and node.op_type not in _SIZED_BY_FLOATS:
            return None
        if name not in self._hints:
            self._hints[name] = numpy_helper.from_array(materialise(value), name)
        return self._hints[name]


def outer_scope(graph: LayerSource, node: Node) -> Evaluation:
    """Returns the part of a node's graph that the node and its bodies read."""
    constants: dict[str, Constant] = {}
    inputs = {}
    for name in node.reads():
        value = graph.value(name) if graph.constant(name) else None
        if value is None:
            inputs[name] = onnx_elem_type(np.dtype(graph.dtype(name))), graph.shape(name)
        else:
            constants[name] = value
    return Evaluation(graph.opset, constants, inputs, {}, {}, {}, graph.plugins)


def _node_constant(node: onnx.NodeProto, constants: Mapping[str, Constant]) -> np.ndarray | None:
    """Returns the value of a Constant or of a ConstantOfShape; None for any other node."""
    if node.op_type == "Constant":
        return constant(node)
    return fold_constant_of_shape(node, constants)


def _static_shape(proto: onnx.TypeProto | None) -> tuple[int, ...] | None:
    if proto is None or not proto.HasField("tensor_type"):
        return None
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)
