"""From a network to an ONNX file: exporter and opset by the release, names, digests, and the
comparison with PyTorch.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from edgekit.errors import GateError, ModelError, UsageError
from edgekit.network.left_modules import DOMAIN, LeftModule, parts
from edgekit.network.operators import newest_opset, operator_table
from edgekit.network.protos import dtype_name
from edgekit.pytorch import exporters, keeping
from edgekit.pytorch.agreement import TOLERANCES, compare
from edgekit.pytorch.calling import plain_constants
from edgekit.pytorch.chain import run_steps, steps_of_file
from edgekit.pytorch.document import Arguments, Exported, Exporter, Tensor
from edgekit.pytorch.networks import Network, clones
from edgekit.pytorch.signature import type_name
from edgekit.targets.releases import parse_version
from edgekit.text import listed

# the older one writes LayerNormalization as its parts
_LEGACY_OPSETS = (17, 16)


def export_network(
    network: Network, release: str, exporter: Exporter | None, save: Path | None
) -> Exported:
    """Exports a network that was looked at; as :func:`export`."""
    import torch

    notes: list[str] = []
    program = None
    if exporter == "dynamo" and network.kind == "torchscript":
        raise UsageError(
            "the exporter of programs takes no TorchScript", code="torch.exporter",
            hint='leave exporter out, or give "legacy"',
        )  # fmt: skip
    if exporter == "legacy" and network.left is not None:
        raise UsageError(
            "the legacy exporter leaves no module in PyTorch", code="torch.exporter",
            hint='leave exporter out, or give "dynamo"',
        )  # fmt: skip
    if exporter != "legacy" and network.kind != "torchscript":
        with torch.no_grad(), exporters.quiet():
            program = network.program or exporters.program_of(network.make(), network.call.tensors)
        key = _key(network, keeping.program_digest(program), release, exporter)
        if (found := keeping.found(key)) is not None:
            return keeping.saved(found, save)
    with torch.no_grad():
        made, proto = _translated(network, program, release, exporter, notes)
    other = exporters.in_float32(proto)
    if "bfloat16" in other:
        notes.append("bfloat16 is float32 in the file: its values are exact there")
    if "float64" in network.types():
        notes.append("float64 is float32 in the file: TensorRT has no float64")
    exporters.rename(proto, network.call.names, network.result.names)
    exporters.refuse_free_sizes(proto.graph, network.make, network.call.tensors)
    left = [one for one in parts(proto) if isinstance(one, LeftModule)]
    structure, weights = digests(proto)
    if program is None:
        # tracing takes a second, and its result is what tells networks apart
        key = _key(network, structure + weights, release, exporter)
    quantised = any(node.op_type == "QuantizeLinear" for node in proto.graph.node)
    kinds = network.types() | {"int8" if quantised else "float32"}
    tolerance = max(TOLERANCES.get(kind, 0.0) for kind in kinds)
    with keeping.making(key) as folder:
        keeping.write(proto, folder / keeping.FILE)
        file, names = folder / keeping.FILE, network.result.names
        steps = steps_of_file(file, network.left, optimise=not quantised)

        def run(tensors: Sequence[Any]) -> list[Any]:
            found = run_steps(steps, dict(zip(network.call.names, tensors, strict=True)))
            return [found[name] for name in names]

        try:
            agreement = compare(run, names, network.cases(), tolerance)
        except GateError:
            if made == "legacy" and network.kind != "torchscript":
                # the trace may hold a number of the example that Python read
                exporters.refuse_control_flow(
                    network.make(), network.call.tensors, constants=False
                )  # fmt: skip
            raise
        exported = Exported(
            schema="edgekit.export/1", file=str(keeping.home(key) / keeping.FILE),
            source=network.source, kind=network.kind, torch=str(torch.__version__), exporter=made,
            opset=exporters.opset_of(proto), tensorrt=release,
            inputs=_tensors(proto.graph.input, network.call.tensors),
            outputs=_tensors(proto.graph.output, network.outputs),
            arguments=Arguments(
                parameters=list(network.parameters), leaves=list(network.leaves),
                constants=plain_constants(network.call),
            ),
            result=network.result.structure, structure=structure, weights=weights,
            agreement=agreement, cached=False, notes=[*network.notes, *notes], left=left,
        )  # fmt: skip
        keeping.put(exported, folder)
    return keeping.saved(exported, save)


def _key(network: Network, content: str, release: str, exporter: Exporter | None) -> str:
    import torch

    return keeping.key(
        torch.__version__, content, release, exporter, network.kind, network.source,
        network.call.names, network.result.structure.model_dump_json(), network.notes,
    )  # fmt: skip


def _translated(
    network: Network, program: Any, release: str, exporter: Exporter | None, notes: list[str]
) -> tuple[Exporter, onnx.ModelProto]:
    """Chooses exporter and opset by the release, and tells why in the notes."""
    newest = newest_opset(release)
    if program is None:
        return "legacy", _legacy(network, release)
    proto = exporters.dynamo(program)
    if newest is None or newest >= exporters.opset_of(proto):
        return "dynamo", proto
    why = f"TensorRT {release} takes opset {newest} at most"
    converted = f"converted from opset {exporters.opset_of(proto)} to {newest}, as {why}"
    try:
        lowered = exporters.lowered(proto, newest)
        lacking = _lacking(lowered, release)
    except ModelError as error:
        if exporter == "dynamo" or network.left is not None:
            raise
        notes.append(f"exported by the legacy exporter, as {why} and {error.message}")
        return "legacy", _legacy(network, release)
    if lacking and exporter != "dynamo" and network.left is None:
        with contextlib.suppress(ModelError):  # then the parser's refusal is what a check tells
            other = _legacy(network, release)
            if len(_lacking(other, release)) < len(lacking):
                notes.append(
                    f"exported by the legacy exporter in opset {exporters.opset_of(other)}, as the "
                    f"parser of TensorRT {release} has no {listed(lacking)}"
                )
                return "legacy", other
    notes.append(converted)
    return "dynamo", lowered


def _legacy(network: Network, release: str) -> onnx.ModelProto:
    """Exports in the newest opset whose operators the parser of a release has."""
    made = []
    for opset in _LEGACY_OPSETS:
        module, call = network.make(), network.call
        # the exporter runs it, and it may write to its inputs
        made.append(exporters.legacy(module, clones(call.tensors), call.names, opset))
        if not _lacking(made[-1], release):
            break
    return min(made, key=lambda proto: len(_lacking(proto, release)))


def _lacking(proto: onnx.ModelProto, release: str) -> list[str]:
    """The operators that the parser of a release does not import."""
    version = parse_version(release)
    operators = {node.op_type for node in proto.graph.node if node.domain != DOMAIN}
    return sorted(one for one in operators if not operator_table().imports(one, version))


def _tensors(values: Sequence[onnx.ValueInfoProto], tensors: Sequence[Any]) -> list[Tensor]:
    return [
        Tensor(
            name=value.name,
            shape=list(one.shape),
            type=dtype_name(value.type.tensor_type.elem_type),
            torch_type=type_name(one),
        )
        for value, one in zip(values, tensors, strict=True)
    ]


def digests(proto: onnx.ModelProto) -> tuple[str, str]:
    """Returns the SHA-256 of a network's structure, and that of the weights' values.

    Weights are its floating-point initializers; what nodes are called is structure, and where the
    Python code of nodes lies is neither.
    """
    structure, weights = hashlib.sha256(), hashlib.sha256()
    for one in proto.opset_import:
        structure.update(f"{one.domain}:{one.version}\n".encode())
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
            weights.update(_content(tensor))
        else:
            structure.update(_content(tensor))
    return structure.hexdigest(), weights.hexdigest()


def _content(tensor: onnx.TensorProto) -> bytes:
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    content: bytes = onnx.numpy_helper.to_array(tensor).tobytes()
    return content
