"""Exports PyTorch networks to ONNX files with module names: chooses exporter and opset by the
release, computes digests, and compares with PyTorch.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from onnx import helper

from edgekit.errors import EnvironmentLack, GateError, ModelError, UsageError
from edgekit.network.left_modules import LeftModule, parts, with_left_modules
from edgekit.network.loading.load import load
from edgekit.network.operators import newest_opset, operator_table
from edgekit.network.protos import LEFT_DOMAIN, dtype_name
from edgekit.network.writing import LARGEST_INLINE
from edgekit.network.writing import save as save_model
from edgekit.pytorch import export_cache, exporters, source_errors
from edgekit.pytorch.chain import TOLERANCES, array, compare, open_steps, run_steps, torch_step
from edgekit.pytorch.document import Arguments, Exported, Exporter, Tensor
from edgekit.pytorch.free_sizes import FreeAxis, dimension_texts, free_axes, name_axes
from edgekit.pytorch.isolated_export import export_outside, refuse_untrusted
from edgekit.pytorch.networks import Network, clones, fixed_seed, is_module, prepare_network
from edgekit.pytorch.signature import plain_constants, type_name
from edgekit.targets import releases
from edgekit.text import listed

# the older exporter decomposes LayerNormalization
_LEGACY_OPSETS = (17, 16)


def export(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    release: str,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    save: Path | None = None,
    trust: str | None = None,
    dynamic_shapes: object = None,
    leave: Sequence[str] = (),
) -> Exported:
    """Exports a PyTorch network for a TensorRT release, and compares the file with PyTorch.

    The caller's module is not changed: a copy is exported, in evaluation mode and without
    gradients.

    Args:
        source: A module, a program of ``torch.export``, the path of a program (.pt2) or of a
            TorchScript file, or a factory "package.module:factory", which returns a module. Paths
            and factories are loaded in a separate process.
        args: The example's positional arguments, or a single tensor.
        kwargs: The example's keyword arguments.
        release: The board's TensorRT, which decides exporter and opset.
        inputs: Sizes instead of an example: ``{"x": "1x3x224x224:float32"}``.
        exporter: "dynamo" or "legacy"; None: the first that fits.
        save: The ONNX file to write, with a separate weights file from 1.9 GB on; None: only in the
            cache.
        trust: SHA-256 of a file whose pickle may be executed.
        dynamic_shapes: Varying axes of a module's inputs, in the form of ``torch.export.export``:
            ``{"x": {0: torch.export.Dim("batch", min=1, max=8)}}``. A program has its own.
        leave: Paths (globs) of the modules that are left out: their calls are nodes
            ``edgekit.pytorch::Module`` of the file. Those of a module stay in PyTorch; of a
            program, file or factory they become ONNX files.

    Raises:
        EnvironmentLack: ``torch.missing``: PyTorch is not installed.
        UsageError: Contradictory arguments; ``torch.dynamic_shapes``; ``torch.leave``.
        ModelError: ``torch.control_flow``, ``torch.operator`` or ``torch.export``: a part cannot be
            exported (with module path, class and source line); ``torch.untrusted``.
        GateError: ``torch.differs``: the file's results differ from PyTorch's.
    """
    return export_with_network(
        source,
        args,
        kwargs,
        release=release,
        inputs=inputs,
        exporter=exporter,
        save=save,
        trust=trust,
        dynamic_shapes=dynamic_shapes,
        leave=leave,
    )[0]


def export_with_network(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    release: str,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    save: Path | None = None,
    trust: str | None = None,
    dynamic_shapes: object = None,
    leave: Sequence[str] = (),
) -> tuple[Exported, Network | None]:
    """Exports like :func:`export`, and also returns the exported network.

    The network is None if a separate process loaded it.
    """
    if exporter not in (None, "dynamo", "legacy"):
        raise UsageError(
            f"there is no exporter {exporter!r}",
            code="torch.exporter",
            hint="the exporters are dynamo and legacy",
        )
    # first: a refusal needs no PyTorch
    if isinstance(source, str | Path):
        refuse_untrusted(source, trust)
    need_torch()
    leave = (leave,) if isinstance(leave, str) else leave
    given = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    chosen = cast("Exporter | None", exporter)
    if isinstance(source, str | Path):
        if dynamic_shapes:
            raise UsageError(
                "dynamic_shapes are those of a torch.nn.Module",
                code="torch.dynamic_shapes",
                hint="a .pt2 program keeps the ranges that it was exported with; of a factory's "
                'module give ranges as sizes: inputs={"x": "1x3x320..640x224"}',
            )
        with source_errors.exported_whole():
            outside = export_outside(
                source,
                given,
                kwargs or {},
                inputs or {},
                release=release,
                exporter=chosen,
                # the file is saved after its modules are left out of it
                save=None if leave else save,
                trust=trust,
            )
        return _leave_out(outside, leave, save), None
    # only a module's own tree can leave modules out before the export
    if is_module(source):
        network = prepare_network(
            source, given, kwargs or {}, inputs or {}, leave=leave, dynamic_shapes=dynamic_shapes
        )
        return export_network(network, release, chosen, save), network
    with source_errors.exported_whole():
        network = prepare_network(
            source, given, kwargs or {}, inputs or {}, dynamic_shapes=dynamic_shapes
        )
        whole = export_network(network, release, chosen, None if leave else save)
    return _leave_out(whole, leave, save), network


def _leave_out(exported: Exported, leave: Sequence[str], save: Path | None) -> Exported:
    if not leave:
        return exported
    if exported.dimensions:
        raise UsageError(
            "a network with left-out modules has one size",
            code="torch.dynamic_shapes",
            hint="leave leave out, or give one size",
        )
    return export_cache.copy_out(leave_in_file(exported, leave), save)


def leave_in_file(exported: Exported, globs: Sequence[str]) -> Exported:
    """Leaves modules out of an exported file; each of their calls becomes an ONNX file.

    Args:
        exported: The export, in the cache.
        globs: Paths of the modules to leave out.

    Returns:
        The export of a file without them, also in the cache.

    Raises:
        UsageError: "torch.leave": the file has no module names, or a glob matches no module.
    """
    whole = Path(exported.file)
    # the folder's name is the key of the whole export
    key = export_cache.key("left", whole.parent.name, *globs)
    if (found := export_cache.find(key)) is not None:
        return found
    cut, calls = with_left_modules(load(whole), globs)
    places = [part for part in parts(cut.proto) if isinstance(part, LeftModule)]
    with export_cache.new_entry(key) as folder:
        save_model(cut, folder / export_cache.FILE)
        left = []
        for part, model in zip(places, calls, strict=True):
            if sum(weight.nbytes for weight in model.weights.values()) > LARGEST_INLINE:
                raise exporters.too_large(part.module)
            exporters.tidy(model.proto)
            name = f"left-{part.call}.onnx"
            save_model(model, folder / name)
            left.append(replace(part, file=str(export_cache.entry_folder(key) / name)))
        made = exported.model_copy(
            update={
                "file": str(export_cache.entry_folder(key) / export_cache.FILE),
                "left": left,
                "cached": False,
            }
        )
        export_cache.write_record(made, folder)
    return made


def release_for(target: str, tensorrt: str | None, jetpack: str | None) -> str:
    """Returns the TensorRT release for an export: the given release, or the board's.

    Raises:
        UsageError: An unknown board or release.
    """
    from edgekit.targets.jetpack import tensorrt_of_jetpack
    from edgekit.targets.loader import get

    board = get(target)
    if jetpack is not None:
        tensorrt = tensorrt_of_jetpack(board, jetpack)
    return releases.release_for(board, tensorrt)


def need_torch() -> None:
    """Checks that PyTorch is installed.

    Raises:
        EnvironmentLack: ``torch.missing``.
    """
    from importlib.util import find_spec

    lacking = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if lacking:
        raise EnvironmentLack(
            f"{' and '.join(lacking)} must be installed to export a PyTorch network",
            code="torch.missing",
            hint="pip install 'edgekit[torch]'",
        )


def export_network(
    network: Network, release: str, exporter: Exporter | None, save: Path | None
) -> Exported:
    """Exports an examined network; see :func:`export`."""
    import torch

    notes: list[str] = []
    program, axes = _capture_program(network, exporter)
    if program is not None:
        # known before the translation, which takes most of the time
        key = _cache_key(network, export_cache.program_digest(program), release, exporter, axes)
        if (found := export_cache.find(key)) is not None:
            return export_cache.copy_out(found, save)
    with torch.no_grad():
        made, proto = _translate(network, program, release, exporter, notes, varies=bool(axes))
    other = exporters.in_float32(proto)
    if "bfloat16" in other:
        notes.append("bfloat16 is float32 in the file: its values are exact there")
    if "float64" in network.types():
        notes.append("float64 is float32 in the file: TensorRT has no float64")
    exporters.rename(proto, network.call.names, network.result.names)
    if axes:
        name_axes(proto, program, axes)
    exporters.refuse_free_sizes(proto.graph, network.make, network.call.tensors)
    stay = network.left
    left = [part for part in parts(proto) if isinstance(part, LeftModule)]
    structure, weights = digests(proto)
    if program is None:
        # tracing takes a second, and its result identifies the network
        key = _cache_key(network, structure + weights, release, exporter, axes)
    quantised = any(node.op_type == "QuantizeLinear" for node in proto.graph.node)
    kinds = network.types() | {"int8" if quantised else "float32"}
    # the least precise type of the network decides
    tolerance = max(TOLERANCES.get(kind, 0.0) for kind in kinds)
    for name, text in network.metadata.items():
        proto.metadata_props.add(key=name, value=text)
    # the comparison runs the written file; if it fails, no entry is left
    with export_cache.new_entry(key) as folder:
        export_cache.write(proto, folder / export_cache.FILE)
        file, names = folder / export_cache.FILE, network.result.names
        left_out = None if stay is None else partial(torch_step, left=stay)
        steps = open_steps(file, left_out, optimise=not quantised)

        def run(tensors: Sequence[Any]) -> list[Any]:
            if stay is not None:
                stay.reset()  # each call is compared with the first call of a copy
            with fixed_seed():  # with the seed of PyTorch's results
                found = run_steps(steps, dict(zip(network.call.names, tensors, strict=True)))
            return [found[name] for name in names]

        try:
            agreement = compare(run, names, network.cases(axes), tolerance)
        except GateError:
            if made == "legacy" and network.kind != "torchscript":
                # the trace may contain a number that Python read from the example
                exporters.refuse_control_flow(network.make(), network.call.tensors, constants=False)
            raise
        exported = Exported(
            schema="edgekit.export/1",
            file=str(export_cache.entry_folder(key) / export_cache.FILE),
            source=network.source,
            kind=network.kind,
            torch=str(torch.__version__),
            exporter=made,
            opset=exporters.read_opset(proto),
            tensorrt=release,
            inputs=_describe_tensors(proto.graph.input, network.call.tensors, ranged=True),
            outputs=_describe_tensors(proto.graph.output, network.outputs),
            arguments=Arguments(
                parameters=list(network.parameters),
                leaves=list(network.leaves),
                constants=plain_constants(network.call, network.defaults),
                defaults=dict(network.defaults),
            ),
            result=network.result.structure,
            structure=structure,
            weights=weights,
            agreement=agreement,
            cached=False,
            notes=[*network.notes, *notes],
            left=left,
            dimensions=dimension_texts(axes),
        )
        export_cache.write_record(exported, folder)
    return export_cache.copy_out(exported, save)


def _capture_program(
    network: Network, exporter: Exporter | None
) -> tuple[Any, tuple[FreeAxis, ...]]:
    """Returns the program to translate (None for the legacy exporter) and the varying axes."""
    import torch

    if exporter == "dynamo" and network.kind == "torchscript":
        raise UsageError(
            "the exporter of programs takes no TorchScript",
            code="torch.exporter",
            hint='leave exporter out, or give "legacy"',
        )
    if exporter == "legacy" and network.left is not None:
        raise UsageError(
            "the legacy exporter leaves no module in PyTorch",
            code="torch.exporter",
            hint='leave exporter out, or give "dynamo"',
        )
    program = network.program
    if program is None and exporter != "legacy" and network.kind != "torchscript":
        with torch.no_grad(), exporters.captured_output():
            program = exporters.export_program(network.make(), network.call.tensors, network.free)
    axes = () if program is None else free_axes(program, network.call.tensors, network.free)
    if exporter == "legacy" and (axes or network.free):
        raise UsageError(
            "the legacy exporter exports one size",
            code="torch.exporter",
            hint='leave exporter out, or give "dynamo"',
        )
    return None if exporter == "legacy" else program, axes


def _cache_key(
    network: Network,
    content: str,
    release: str,
    exporter: Exporter | None,
    axes: Sequence[FreeAxis],
) -> str:
    import torch

    return export_cache.key(
        torch.__version__,
        content,
        release,
        exporter,
        network.kind,
        network.source,
        network.call.names,
        network.result.structure.model_dump_json(),
        network.notes,
        network.defaults,
        *([dimension_texts(axes)] if axes else []),
        *([network.metadata] if network.metadata else []),
    )


def _translate(
    network: Network,
    program: Any,
    release: str,
    exporter: Exporter | None,
    notes: list[str],
    *,
    varies: bool,
) -> tuple[Exporter, onnx.ModelProto]:
    """Chooses exporter and opset by the release, and adds the reasons to the notes."""
    newest = newest_opset(release)
    # the legacy exporter supports neither left-out modules nor varying sizes
    bound = exporter == "dynamo" or network.left is not None or varies
    if program is None:
        return "legacy", _export_legacy(network, release)
    proto = exporters.dynamo(program)
    if newest is None or newest >= exporters.read_opset(proto):
        return "dynamo", proto
    why = f"TensorRT {release} takes opset {newest} at most"
    converted = f"converted from opset {exporters.read_opset(proto)} to {newest}, as {why}"
    try:
        lowered = exporters.lower_opset(proto, newest)
        lacking = _missing_operators(lowered, release)
    except ModelError as error:
        if bound:
            raise
        notes.append(f"exported by the legacy exporter, as {why} and {error.message}")
        return "legacy", _export_legacy(network, release)
    if lacking and not bound:
        with contextlib.suppress(ModelError):  # a check then reports the parser's refusal
            other = _export_legacy(network, release)
            if len(_missing_operators(other, release)) < len(lacking):
                notes.append(
                    f"exported by the legacy exporter in opset {exporters.read_opset(other)}, as "
                    f"the parser of TensorRT {release} has no {listed(lacking)}"
                )
                return "legacy", other
    notes.append(converted)
    return "dynamo", lowered


def _export_legacy(network: Network, release: str) -> onnx.ModelProto:
    """Exports in the newest opset whose operators the parser of a release has."""
    made = []
    for opset in _LEGACY_OPSETS:
        module, call = network.make(), network.call
        # the exporter runs the module, which may write to its inputs
        made.append(exporters.legacy(module, clones(call.tensors), call.names, opset))
        if not _missing_operators(made[-1], release):
            break
    # if every opset lacks some, the check of the board's parser reports them
    return min(made, key=lambda proto: len(_missing_operators(proto, release)))


def _missing_operators(proto: onnx.ModelProto, release: str) -> list[str]:
    """Returns the operators that the parser of a release does not import."""
    version = releases.parse_version(release)
    operators = {node.op_type for node in proto.graph.node if node.domain != LEFT_DOMAIN}
    return sorted(
        operator for operator in operators if not operator_table().imports(operator, version)
    )


def _describe_tensors(
    values: Sequence[onnx.ValueInfoProto], tensors: Sequence[Any], *, ranged: bool = False
) -> list[Tensor]:
    return [
        Tensor(
            name=value.name,
            shape=list(tensor.shape),
            type=dtype_name(value.type.tensor_type.elem_type),
            torch_type=type_name(tensor),
            range=value_range(array(tensor)) if ranged else None,
        )
        for value, tensor in zip(values, tensors, strict=True)
    ]


def value_range(values: np.ndarray) -> tuple[float, float] | None:
    """Returns the smallest and the largest number; None if empty or not all finite."""
    if not values.size or not np.isfinite(values).all():
        return None
    return float(values.min()), float(values.max())


def digests(proto: onnx.ModelProto) -> tuple[str, str]:
    """Returns the SHA-256 of a network's structure and of its weights' values.

    Weights are its floating-point initializers; node names are structure; the nodes' locations in
    Python code are ignored.
    """
    structure, weights = hashlib.sha256(), hashlib.sha256()
    for opset in proto.opset_import:
        structure.update(f"{opset.domain}:{opset.version}\n".encode())
    for node in proto.graph.node:
        bare = onnx.NodeProto()
        bare.CopyFrom(node)
        del bare.metadata_props[:]
        bare.doc_string = ""
        structure.update(bare.SerializeToString(deterministic=True))
    for value in (*proto.graph.input, *proto.graph.output):
        known = helper.make_value_info(value.name, value.type)
        structure.update(known.SerializeToString(deterministic=True))
    for tensor in proto.graph.initializer:
        named = f"{tensor.name}:{tensor.data_type}:{list(tensor.dims)}\n".encode()
        structure.update(named)
        if exporters.is_float(tensor.data_type):
            weights.update(named)
            weights.update(_tensor_bytes(tensor))
        else:
            structure.update(_tensor_bytes(tensor))
    return structure.hexdigest(), weights.hexdigest()


def _tensor_bytes(tensor: onnx.TensorProto) -> bytes:
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    content: bytes = onnx.numpy_helper.to_array(tensor).tobytes()
    return content
