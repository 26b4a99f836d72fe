"""PyTorch's two exporters to ONNX: of programs of ``torch.export`` (``dynamo=True``), which names
each node's modules, and the legacy exporter of TorchScript.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.errors import EdgekitError, ModelError, UsageError
from edgekit.pytorch import source_errors
from edgekit.pytorch.chain import array
from edgekit.pytorch.free_sizes import refused_range

#: The native opset of the exporter of programs; it only converts to newer opsets.
DYNAMO_OPSET = 18
# TensorRT has no float64, ONNX Runtime has few kernels of both types
_OTHER_FLOATS: dict[int, str] = {TensorProto.BFLOAT16: "bfloat16", TensorProto.DOUBLE: "float64"}
_SMALL = 1024  # largest tensor in bytes that a conversion may have to read
# a node's metadata with Python code; module names and the line are kept
_DROPPED = ("pkg.torch.onnx.fx_node", "namespace", "pkg.onnxscript.rewriter.rule_name")


@contextlib.contextmanager
def captured_output() -> Iterator[io.StringIO]:
    """Within the block, PyTorch's prints, logs and warnings go to the yielded text."""
    import torch

    said = io.StringIO()
    # handlers keep the stderr of their creation, which the redirection below does not change
    handlers = [
        handler
        for name, logger in logging.root.manager.loggerDict.items()
        if name.partition(".")[0] in ("torch", "onnxscript", "onnx_ir")
        and isinstance(logger, logging.Logger)
        for handler in logger.handlers
    ]
    with contextlib.ExitStack() as stack:
        for handler in handlers:
            handler.addFilter(_drop_record)
            stack.callback(handler.removeFilter, _drop_record)
        stack.enter_context(contextlib.redirect_stdout(said))
        stack.enter_context(contextlib.redirect_stderr(said))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # prints a graph, bypassing Python's stdout
        log = getattr(torch._C, "_jit_onnx_log", None)
        if log is not None:
            torch._C._jit_onnx_log = lambda *parts: said.write(f"{''.join(map(str, parts))}\n")
            stack.callback(setattr, torch._C, "_jit_onnx_log", log)
        yield said


def _drop_record(record: logging.LogRecord) -> bool:
    return False


def export_program(
    module: Any, tensors: Sequence[Any], free: Mapping[str, Mapping[int, Any]] | None = None
) -> Any:
    """Returns the ``torch.export`` program of a module that takes tensors.

    Args:
        module: The module.
        tensors: The example.
        free: PyTorch's dimensions of the varying axes, by input.

    Raises:
        ModelError: ``torch.control_flow`` or ``torch.export``, with module path and source line;
            ``torch.dynamic_shapes``: a range that the module does not support.
    """
    import torch

    named = inspect.signature(module.forward).parameters
    # torch.export takes None for an input without varying axes
    sizes = {name: dict(free.get(name, {})) or None for name in named} if free else None
    try:
        program = torch.export.export(module, tuple(tensors), dynamic_shapes=sizes, strict=False)
        if any("set_grad_enabled" in str(node.target) for node in program.graph.nodes):
            # the exporter cannot translate a block with gradients; without a change of mode there
            # is none
            with torch.enable_grad():
                return torch.export.export(
                    module, tuple(tensors), dynamic_shapes=sizes, strict=False
                )
        return program
    except Exception as error:
        if (unfit := refused_range(error)) is not None:
            raise unfit from error
        failed = source_errors.failure(error, module)
    if failed.code == "torch.control_flow":
        with contextlib.suppress(Exception), _closed_log():  # it only adds lines to the error
            drafted = torch.export.draft_export(module, tuple(tensors), strict=False)
            lines = source_errors.other_lines(drafted._report)
            failed.details = tuple(
                f"also {line}" for line in lines if f"{failed.where}:" not in line
            )
    raise failed


@contextlib.contextmanager
def _closed_log() -> Iterator[None]:
    """Closes and removes the log that ``draft_export`` opens and leaves."""
    logger, opened = logging.getLogger("torch.__trace"), []
    add = logger.addHandler

    def note_handler(handler: logging.Handler) -> None:
        opened.append(handler)
        add(handler)

    # on this logger alone; its class serves every other logger
    vars(logger)["addHandler"] = note_handler
    try:
        yield
    finally:
        del vars(logger)["addHandler"]
        for handler in opened:
            path = getattr(handler, "_stream_path", None)
            handler.close()
            if path:
                Path(path).unlink(missing_ok=True)


def dynamo(program: Any) -> onnx.ModelProto:
    """Returns the network of a program in opset 18.

    Raises:
        ModelError: ``torch.operator`` or ``torch.export``, with module path and source line.
    """
    import torch

    with captured_output():
        try:
            written = torch.onnx.export(
                program, (), dynamo=True, opset_version=DYNAMO_OPSET, verbose=False
            )
            proto: onnx.ModelProto = written.model_proto
        except Exception as error:
            raise _untranslated_error(error, program) from error
    for node in proto.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key not in _DROPPED]
        if len(kept) < len(node.metadata_props):
            rows = [(item.key, item.value) for item in kept]
            del node.metadata_props[:]
            for key, value in rows:
                node.metadata_props.add(key=key, value=value)
    return proto


def _untranslated_error(error: Exception, program: Any) -> EdgekitError:
    """Returns the error of a program's export, with the place of the untranslated node if found."""
    failed = source_errors.failure(error, None)
    node = source_errors.find_node(error, program.graph)
    if node is None:
        with contextlib.suppress(Exception):
            # the node may exist only after the exporter's decompositions
            node = source_errors.find_node(error, program.run_decompositions().graph)
    if node is not None:
        place = source_errors.program_place(node)
        return source_errors.unsupported_operator(str(node.target), place)
    return failed


def legacy(
    module: Any, tensors: Sequence[Any], names: Sequence[str], opset: int
) -> onnx.ModelProto:
    """Returns the network of a traced module, or of a TorchScript module.

    Raises:
        ModelError: ``torch.control_flow``, ``torch.operator`` or ``torch.export``.
    """
    import torch

    script = isinstance(module, torch.jit.ScriptModule)
    # a TorchScript module cannot run without values
    if not script:
        refuse_control_flow(module, tensors, constants=True)
    with (
        tempfile.TemporaryDirectory(prefix="edgekit-export-") as folder,
        captured_output() as said,
        _without_fused_attention(),
    ):
        path = Path(folder, "model.onnx")
        try:
            torch.onnx.export(
                module,
                tuple(tensors),
                str(path),
                dynamo=False,
                opset_version=opset,
                input_names=list(names),
            )
        except Exception as error:
            known = None if script else module
            raise source_errors.failure(error, known, printed=said.getvalue()) from error
        proto = onnx.load(path)
    if not script:
        _give_unused_inputs(proto.graph, names, tensors)
    return proto


def _give_unused_inputs(
    graph: onnx.GraphProto, names: Sequence[str], tensors: Sequence[Any]
) -> None:
    """Adds the unused inputs that the legacy exporter dropped."""
    kept = {value.name: value for value in graph.input}
    if not kept.keys() < set(names):
        return
    del graph.input[:]
    for name, tensor in zip(names, tensors, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(array(tensor).dtype)
        made = helper.make_tensor_value_info(name, kind, list(tensor.shape))
        graph.input.append(kept.get(name, made))


@contextlib.contextmanager
def _without_fused_attention() -> Iterator[None]:
    """Within the block, attention without gradients is computed by operators that ONNX has."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def refuse_control_flow(module: Any, tensors: Sequence[Any], *, constants: bool) -> None:
    """Finds data-dependent control flow by a run without values (tracing would silently take a
    branch).

    Args:
        module: The network, which takes the tensors.
        tensors: The example.
        constants: True if Python may read numbers from tensors (allowed for constants).

    Raises:
        ModelError: ``torch.control_flow``, with module path and source line.
    """
    try:
        _run_without_values(module, tensors, scalars=constants, sizes=True)
    except EdgekitError as error:
        # other failures are reported by the exporter if it also fails
        if error.code == "torch.control_flow":
            raise


def refuse_free_sizes(
    graph: onnx.GraphProto, make: Callable[[], Any], tensors: Sequence[Any]
) -> None:
    """Refuses outputs whose sizes depend on the inputs' values.

    Args:
        graph: The exported graph.
        make: Returns the graph's module, which takes the tensors.
        tensors: The example.

    Raises:
        ModelError: ``torch.dynamic_shapes``, with module path and source line.
    """
    shapes = [value.type.tensor_type.shape for value in graph.output]
    # the legacy exporter computes some constant sizes at run time
    if not any(size.dim_param for shape in shapes for size in shape.dim):
        return
    made: Sequence[Any] = ()
    with contextlib.suppress(EdgekitError):  # a TorchScript file cannot run without values
        made = _run_without_values(make(), tensors, scalars=True, sizes=True)
    for value, tensor in zip(graph.output, made, strict=False):
        if not all(isinstance(size, int) for size in tensor.shape):
            # this run stops at the operator, so its error has the place
            _run_without_values(make(), tensors, scalars=True, sizes=False)
            raise source_errors.free_size(None, value.name)


def _run_without_values(
    module: Any, tensors: Sequence[Any], *, scalars: bool, sizes: bool
) -> Sequence[Any]:
    """Runs a module on tensors without values and returns its result.

    Args:
        module: The network.
        tensors: The example.
        scalars: True if Python may read numbers from tensors.
        sizes: True if sizes may depend on values.

    Raises:
        EdgekitError: The module fails.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    free = ShapeEnv(allow_scalar_outputs=scalars, allow_dynamic_output_shape_ops=sizes)
    mode = FakeTensorMode(shape_env=free, allow_non_fake_inputs=True)
    with captured_output():
        try:
            fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in tensors]
            with mode:
                made: Sequence[Any] = module(*fakes)
        except Exception as error:
            raise source_errors.failure(error, module) from error
    return made


def lower_opset(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Returns a network in an older opset, by ONNX's version converter.

    The converter gets weights as inputs, so that it does not copy them. It drops module names,
    which are restored by the nodes' outputs.

    Raises:
        ModelError: ``torch.opset``: ONNX cannot convert an operator to the older opset.
    """
    from onnx import version_converter

    bare, weights = _without_weights(proto)
    try:
        converted: onnx.ModelProto = version_converter.convert_version(bare, opset)
        for node in converted.graph.node:
            if node.domain in ("", "ai.onnx"):
                _drop_newer_attributes(node, opset, read_opset(proto))
    except Exception as error:
        text = " ".join(str(error).split())
        raise ModelError(
            f"the network cannot be converted from opset {read_opset(proto)} to {opset}: {text}",
            code="torch.opset",
            hint='export it with exporter="legacy"',
        ) from error
    graph = converted.graph
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)
    graph.initializer.extend(weights.values())
    # the converter keeps the names of tensors, not those of nodes
    metadata = {node.output[0]: node for node in proto.graph.node if node.output}
    for node in graph.node:
        if node.output and (before := metadata.get(node.output[0])) is not None:
            del node.metadata_props[:]
            node.metadata_props.extend(before.metadata_props)
            node.name = before.name
    converted.producer_name, converted.producer_version = (
        proto.producer_name,
        proto.producer_version,
    )
    return converted


def _drop_newer_attributes(node: onnx.NodeProto, opset: int, before: int) -> None:
    """Drops attributes with their default value that an older operator does not have.

    Raises:
        ValueError: An attribute has another value.
        SchemaError: The older opset does not have the operator.
    """
    known = onnx.defs.get_schema(node.op_type, opset, node.domain)
    newer = onnx.defs.get_schema(node.op_type, before, node.domain)
    for attribute in list(node.attribute):
        if attribute.name in known.attributes:
            continue
        default = newer.attributes[attribute.name].default_value
        if helper.get_attribute_value(attribute) != helper.get_attribute_value(default):
            raise ValueError(f"{node.op_type} with {attribute.name}")
        node.attribute.remove(attribute)
    if len(node.input) > known.max_input:
        raise ValueError(f"{node.op_type} with {len(node.input)} inputs")


def read_opset(proto: onnx.ModelProto) -> int:
    """Returns a file's version of ai.onnx."""
    return int(
        next(opset.version for opset in proto.opset_import if opset.domain in ("", "ai.onnx"))
    )


def _without_weights(
    proto: onnx.ModelProto,
) -> tuple[onnx.ModelProto, Mapping[str, onnx.TensorProto]]:
    weights = {
        tensor.name: tensor
        for tensor in proto.graph.initializer
        if is_float(tensor.data_type) and len(tensor.raw_data) > _SMALL
    }
    graph = proto.graph
    bare = helper.make_model(
        helper.make_graph(
            list(graph.node),
            graph.name,
            [
                *graph.input,
                *(
                    helper.make_tensor_value_info(name, weight.data_type, list(weight.dims))
                    for name, weight in weights.items()
                ),
            ],
            list(graph.output),
            [tensor for tensor in graph.initializer if tensor.name not in weights],
            value_info=list(graph.value_info),
        ),
        opset_imports=list(proto.opset_import),
        ir_version=min(proto.ir_version, 8),
    )
    return bare, weights


def is_float(kind: int) -> bool:
    """Returns True if an ONNX element type is floating-point, like a weight's."""
    return kind in (
        TensorProto.FLOAT,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
        TensorProto.BFLOAT16,
    )


def in_float32(proto: onnx.ModelProto) -> list[str]:
    """Converts bfloat16 and float64 to float32; returns the found types by PyTorch's names."""
    found: set[int] = set()
    for tensor in proto.graph.initializer:
        _tensor_in_float32(tensor, found)
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _tensor_in_float32(attribute.t, found)
            # attributes of these operators that hold an element type
            is_type = (node.op_type, attribute.name) in (
                ("Cast", "to"),
                ("RandomNormalLike", "dtype"),
                ("EyeLike", "dtype"),
            )
            if is_type and attribute.i in _OTHER_FLOATS:
                found.add(attribute.i)
                attribute.i = TensorProto.FLOAT
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type in _OTHER_FLOATS:
            found.add(kind.elem_type)
            kind.elem_type = TensorProto.FLOAT
    return sorted(_OTHER_FLOATS[item] for item in found)


def _tensor_in_float32(tensor: onnx.TensorProto, found: set[int]) -> None:
    if tensor.data_type in _OTHER_FLOATS:
        found.add(tensor.data_type)
        value = numpy_helper.to_array(tensor).astype("float32")
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def rename(proto: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Renames inputs and outputs in order; other tensors of these names get new names.

    Raises:
        ModelError: ``torch.export``: the file has other inputs or outputs.
    """
    graph = proto.graph
    found = (len(graph.input), len(graph.output))
    if found != (len(inputs), len(outputs)):
        raise ModelError(
            f"the exported network has {found[0]} inputs and {found[1]} outputs, the module "
            f"{len(inputs)} and {len(outputs)}",
            code="torch.export",
            hint='try the other exporter (exporter="legacy" or "dynamo")',
        )
    _give_outputs_nodes(graph)
    wanted = dict(zip([value.name for value in graph.input], inputs, strict=True))
    wanted |= dict(zip([value.name for value in graph.output], outputs, strict=True))
    taken = set(wanted.values())
    every = [name for node in graph.node for name in node.output]
    every += [tensor.name for tensor in graph.initializer]
    for name in every:
        if name in taken and name not in wanted:
            wanted[name] = f"{name}_inner"
    names = {old: new for old, new in wanted.items() if old != new}
    for node in graph.node:
        _rename_node(node, names)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)


def _give_outputs_nodes(graph: onnx.GraphProto) -> None:
    """Adds a separate node for an output that is also an input, a constant or another output."""
    given = {value.name for value in (*graph.input, *graph.initializer)}
    for number, value in enumerate(graph.output):
        if value.name in given:
            name = f"{value.name}_output_{number}"
            graph.node.append(helper.make_node("Identity", [value.name], [name], name=name))
            value.name = name
        given.add(value.name)


def _rename_node(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for field in (node.input, node.output):
        for index, name in enumerate(field):
            if name in names:
                field[index] = names[name]
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                _rename_node(inner, names)
            for value in body.output:
                value.name = names.get(value.name, value.name)


def tidy(proto: onnx.ModelProto) -> None:
    """Drops machine-specific metadata, and lowers the IR version so that any ONNX Runtime can
    run it.
    """
    for node in proto.graph.node:
        del node.metadata_props[:]  # paths of Python code on this machine
        node.doc_string = ""
    # older ONNX Runtimes refuse a newer version even if the file uses no new feature
    proto.ir_version = helper.find_min_ir_version_for(proto.opset_import)


def too_large(module: str) -> UsageError:
    """Returns the error of a left-out module whose weights exceed the limit of an ONNX file."""
    return UsageError(
        "the module is left out and has more weights than an ONNX file holds (1.8 GB)",
        code="compile.left",
        where=module,
        hint="leave out less of the network",
    )
