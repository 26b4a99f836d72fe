"""Runs a model in ONNX Runtime, with the weights passed by reference.

ONNX Runtime has no operators in Python. A model with user plugins that have functions runs in
pieces: the functions run at the plugins' nodes, and ONNX Runtime runs the parts between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import EnvironmentLack, ModelError
from edgekit.network.plugins import Plugin, PluginCall, plugin_for
from edgekit.network.protos import elem_named, nearest, reachable, reads

if TYPE_CHECKING:
    from edgekit.network.model import Model


#: Faulty graph optimisations of ONNX Runtime (1.31), which edgekit's sessions disable.
#: Pad_Fusion moves a Pad's pads into the following pool even if they are as large as its window,
#: which the pool then refuses; ClipQuantRewrite drops a Clip before a QuantizeLinear whose bounds
#: differ from the code's range by less than about 1e-8, whatever the scale.
WRONG_FUSIONS = ("Pad_Fusion", "ClipQuantRewrite")

# ONNX Runtime's "fatal": errors are raised as exceptions, so no log is printed
_QUIET = 4


def session(
    model: Model,
    *,
    outputs: Sequence[str] | None = None,
    optimise: bool = True,
    threads: int = 0,
) -> Any:
    """Returns an ``onnxruntime.InferenceSession`` on the CPU.

    Args:
        model: The model; the session references its weights during its lifetime.
        outputs: Tensors to return, also intermediate tensors; the model's outputs if None.
        optimise: False disables ONNX Runtime's graph optimisations, so that every node runs as
            written.
        threads: Threads for an operator; 0 for ONNX Runtime's default.

    Raises:
        ModelError: ``model.unknown_output`` or ``model.runtime`` (ONNX Runtime refuses the model).
        EnvironmentLack: ``environment.onnxruntime``.
    """
    _runtime()
    proto = model.proto if outputs is None else with_outputs(model.proto, outputs)
    lent = {name: lent_value(array) for name, array in model.weights.items()}
    try:
        return open_session(
            proto.SerializeToString(),
            lent,
            optimise=optimise,
            threads=threads,
            plugins=model.plugins,
        )
    except ModelError:
        raise
    except Exception as error:
        # ONNX Runtime's exceptions share no base class except Exception
        raise runtime_error(model, error) from error


def runtime_error(model: Model, error: Exception) -> ModelError:
    """Returns the error for a model that ONNX Runtime refuses: ``model.runtime`` or ``opaque``."""
    reason = " ".join(str(error).split())
    opaque = model.graph.only_on_board
    if opaque:
        return ModelError(
            f"ONNX Runtime cannot run node {next(iter(opaque))!r}, because only the board "
            "has its plugin or shapes",
            code="model.opaque",
            where=model.source,
            hint="cut the network before it with model.outputs (--outputs)",
        )
    return ModelError(
        f"ONNX Runtime cannot run the model: {reason}",
        code="model.runtime",
        where=model.source,
        hint="check the node named in the message; the reference backend needs ONNX Runtime "
        "to run the model",
    )


def open_session(
    data: bytes | str,
    lent: Mapping[str, Any],
    *,
    optimise: bool = True,
    threads: int = 0,
    arena: bool = True,
    prepack: bool = True,
    plugins: Sequence[Plugin] = (),
) -> Any:
    """Returns an ``onnxruntime.InferenceSession`` on the CPU; raises ONNX Runtime's exceptions.

    For a model with plugins that have functions it is a :class:`PiecewiseSession`.

    Args:
        data: The model, serialised; or the path of its file.
        lent: Values of :func:`lent_value` for its initializers without data.
        optimise: False disables ONNX Runtime's graph optimisations.
        threads: Threads for an operator; 0 for ONNX Runtime's default.
        arena: True to keep memory between runs.
        prepack: True to copy weights into a layout that is faster for many runs.
        plugins: The user's own plugins; only those with a function are used. The model declares the
            types of their outputs.
    """
    if isinstance(data, bytes) and any(plugin.function for plugin in plugins):
        proto = onnx.ModelProto.FromString(data)
        if any(_function_plugin(node, plugins) for node in proto.graph.node):
            return PiecewiseSession(
                proto,
                plugins,
                partial(
                    open_session, optimise=optimise, threads=threads, arena=arena, prepack=prepack
                ),
                lent,
            )
    ort = _runtime()
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = arena
    # no times are measured here, and spinning threads took half of all CPU seconds
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not prepack:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_external_initializers(list(lent), list(lent.values()))
    made = ort.InferenceSession(
        data, options, providers=["CPUExecutionProvider"], disabled_optimizers=WRONG_FUSIONS
    )
    # the session reads them in place, so they must live as long as it
    made.edgekit_weights = list(lent.values())
    return made


class PiecewiseSession:
    """An ``InferenceSession`` for a model with plugins that run as functions.

    A piece has the nodes that depend on the same number of successive plugins, so a chain of N
    plugins has N + 1 pieces. A piece references its weights as a whole session does.

    Args:
        proto: The model; weights may be stubs.
        plugins: The user's own plugins.
        open_piece: Creates an ``InferenceSession`` from a serialised model and its lent weights.
        lent: As for :func:`open_session`.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        plugins: Sequence[Plugin],
        open_piece: Callable[[bytes, Mapping[str, Any]], Any],
        lent: Mapping[str, Any],
    ) -> None:
        graph = proto.graph
        stubs = {tensor.name: tensor for tensor in graph.initializer}
        self._inputs = [value for value in graph.input if value.name not in stubs]
        self._outputs = [value.name for value in graph.output]
        self._steps: list[PluginCall | _Piece] = []
        types = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output)}
        # by tensor: the number of successive plugins that it depends on
        waits = {value.name: 0 for value in graph.input}
        nodes: dict[int, list[onnx.NodeProto]] = {}
        calls: dict[int, list[PluginCall]] = {}
        known = {name: value.type for name, value in types.items()}
        # nodes that no output needs do not run
        for node in reachable(list(graph.node), self._outputs, stubs):
            after = max((waits.get(name, 0) for name in reads(node)), default=0)
            plugin = _function_plugin(node, plugins)
            if plugin is None:
                nodes.setdefault(after, []).append(node)
            else:
                made = {name: known[name] for name in node.output if name in known}
                calls.setdefault(after, []).append(PluginCall(plugin, node, made))
                after += 1
            waits.update(dict.fromkeys(node.output, after))
        called = {name for some in calls.values() for call in some for name in call.inputs}
        # functions read arrays, and "" is an omitted input
        self._constants = {"": None} | {
            name: _constant_values(stubs[name], lent)
            for name in {*called, *self._outputs} & stubs.keys()
        }
        for number in range(1 + max((*nodes, *calls), default=0)):
            own = nodes.pop(number, [])
            # `nodes` has only later pieces now, so these tensors cross a border
            later = {name for some in nodes.values() for node in some for name in reads(node)}
            wanted = {*later, *called, *self._outputs}
            written = [n for node in own for n in node.output if n in wanted]
            # a piece whose results nothing needs is left out
            if written:
                part = piece(proto, own, written, types)
                names = {tensor.name for tensor in part.graph.initializer}
                session = open_piece(
                    part.SerializeToString(), {n: v for n, v in lent.items() if n in names}
                )
                # later pieces need the types of tensors that the file does not declare
                types.update(
                    (value.name, output_value_info(value)) for value in session.get_outputs()
                )
                inputs = [value.name for value in part.graph.input]
                self._steps.append(_Piece(session, inputs, written))
            self._steps += calls.get(number, [])

    def run(self, outputs: Sequence[str] | None, feed: Mapping[str, np.ndarray]) -> list[Any]:
        """Runs one inference, as an ``InferenceSession`` does.

        Raises:
            ModelError: "model.plugin": a function fails.
        """
        values = {**self._constants, **feed}
        for step in self._steps:
            if isinstance(step, PluginCall):
                found = step.run([values[name] for name in step.inputs])
                values.update(zip(step.outputs, found, strict=True))
            else:
                made = step.session.run(step.outputs, {n: values[n] for n in step.inputs})
                values.update(zip(step.outputs, made, strict=True))
        return [values[name] for name in outputs or self._outputs]

    def get_inputs(self) -> list[Any]:
        """Returns the inputs as an ``InferenceSession`` does: name, type and shape."""
        return [Argument.of(value) for value in self._inputs]


class _Piece(NamedTuple):
    """A session for the nodes between plugins."""

    session: Any
    inputs: Sequence[str]
    outputs: Sequence[str]


class Argument(NamedTuple):
    """An input as ONNX Runtime describes it."""

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, value: onnx.ValueInfoProto) -> Argument:
        tensor = value.type.tensor_type
        name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        return cls(value.name, f"tensor({name})", [*sizes])


def _constant_values(tensor: onnx.TensorProto, lent: Mapping[str, Any]) -> np.ndarray:
    """Returns the values of a constant; lent values are copied, as the lender may free them."""
    value = lent.get(tensor.name)
    return numpy_helper.to_array(tensor) if value is None else np.array(value.numpy())


def _function_plugin(node: onnx.NodeProto, plugins: Sequence[Plugin]) -> Plugin | None:
    """Returns the plugin of a node that runs as a function; None for any other node."""
    found = plugin_for(plugins, node.op_type, node.domain)
    return None if found is None or found.function is None else found


def piece(
    proto: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    types: Mapping[str, onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """Returns a part of a model; ONNX Runtime infers the types of its outputs.

    Args:
        proto: The model.
        nodes: The part's nodes.
        outputs: The part's outputs.
        types: Known types of the tensors that it reads, by name.
    """
    made = {name for node in nodes for name in node.output}
    read = dict.fromkeys(name for node in nodes for name in reads(node))
    constants = [tensor for tensor in proto.graph.initializer if tensor.name in read]
    held = {constant.name for constant in constants}
    part = onnx.ModelProto(ir_version=proto.ir_version, functions=proto.functions)
    part.opset_import.extend(proto.opset_import)
    part.graph.name = proto.graph.name
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(constants)
    part.graph.input.extend(types[n] for n in read if n not in made and n not in held)
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return part


def output_value_info(value: Any) -> onnx.ValueInfoProto:
    """Returns an output of a session as ONNX's protobuf message."""
    return helper.make_tensor_value_info(value.name, elem_named(value.type), value.shape)


def _runtime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        raise EnvironmentLack(
            "ONNX Runtime is not installed",
            code="environment.onnxruntime",
            hint="pip install onnxruntime",
        ) from error
    return onnxruntime


def lent_value(array: np.ndarray) -> Any:
    """Returns an array as a value that ONNX Runtime reads in place."""
    ort = _runtime()
    # broadcast views (weights of a single repeated value) and unaligned arrays (inside an .onnx
    # file) are copied, all others are lent
    whole = np.require(array, requirements=["C", "A"])
    if whole.dtype.kind in "fiub":
        return ort.OrtValue.ortvalue_from_numpy(whole)
    # bfloat16 and 8-bit floats: ONNX Runtime takes their bits with ONNX's type
    elem = int(helper.np_dtype_to_tensor_dtype(whole.dtype))
    bits = whole.view(np.dtype(f"uint{whole.itemsize * 8}"))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, elem)


def with_outputs(proto: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    """Returns a model with these tensors as outputs, also intermediate tensors.

    Raises:
        ModelError: ``model.unknown_output``.
    """
    infos = {value.name: value for value in [*proto.graph.value_info, *proto.graph.output]}
    for name in outputs:
        if name not in infos:
            raise ModelError(
                f"unknown tensor {name!r}",
                code="model.unknown_output",
                where=name,
                hint=nearest(name, infos),
            )
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    del changed.graph.output[:]
    changed.graph.output.extend(infos[name] for name in outputs)
    return changed
