"""From a PyTorch network to an ONNX file with names: start with ``export``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import onnx
from onnx import helper

from edgekit.errors import EnvironmentLack, ModelError, UsageError
from edgekit.network.protos import dtype_name
from edgekit.parsing.operators import newest_opset
from edgekit.pytorch import exporters, keeping
from edgekit.pytorch.agreement import TOLERANCES, compare
from edgekit.pytorch.document import SCHEMA, Exported, Exporter, Tensor
from edgekit.pytorch.networks import Network, network_of, size_words, type_name

# what both exporters have everything in
_LEGACY_OPSET = 17


def export(
    source: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    release: str,
    inputs: Mapping[str, str] | None = None,
    exporter: str | None = None,
    save: Path | None = None,
    trust: str = "",
    dynamic_shapes: object = None,
) -> Exported:
    """Exports a PyTorch network for a TensorRT release, and compares the file with PyTorch.

    The caller's module is not changed: a copy is exported, in evaluation mode and without
    gradients.

    Args:
        source: A module, a program of ``torch.export``, the path of a program (.pt2) or of a
            TorchScript file, or a factory "package.module:factory", which returns a module. Paths
            and factories are loaded in a process of their own.
        args: The example's positional arguments; or one tensor.
        kwargs: The example's keyword arguments.
        release: The board's TensorRT, which decides exporter and opset.
        inputs: In the place of an example, sizes: ``{"x": "1x3x224x224:float32"}``.
        exporter: "dynamo" or "legacy"; None: the first that fits.
        save: The ONNX file to write, with a file of weights beside it from 1.9 GB on; None: it
            stays in the cache.
        trust: SHA-256 of a file whose pickle may be run.
        dynamic_shapes: Refused: a network has one size.

    Raises:
        EnvironmentLack: ``torch.missing``: PyTorch is not installed.
        UsageError: Arguments that make no sense; ``torch.dynamic_shapes``.
        ModelError: ``torch.control_flow``, ``torch.operator`` or ``torch.export``: what cannot be
            exported, by module path, class and source line; ``torch.untrusted``.
        GateError: ``torch.differs``: the file computes something else.
    """
    if exporter not in (None, "dynamo", "legacy"):
        raise UsageError(
            f"there is no exporter {exporter!r}", code="torch.exporter",
            hint="the exporters are dynamo and legacy",
        )  # fmt: skip
    need_torch()
    given = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    chosen = cast("Exporter | None", exporter)
    if isinstance(source, str | Path):
        from edgekit.pytorch.outside import export_outside

        if dynamic_shapes:
            raise _dynamic("")
        return export_outside(
            source, given, kwargs or {}, inputs or {}, release=release, exporter=chosen,
            save=save, trust=trust,
        )  # fmt: skip
    if dynamic_shapes:
        import torch

        tensors = {f"input {number}": one for number, one in enumerate(given, 1)
                   if isinstance(one, torch.Tensor)}  # fmt: skip
        raise _dynamic(size_words(tensors))
    network = network_of(source, given, kwargs or {}, inputs or {})
    return export_network(network, release, chosen, save)


def need_torch() -> None:
    """Raises the error of a machine without PyTorch.

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


def _dynamic(example: str) -> UsageError:
    return UsageError(
        "a network for TensorRT has one size: dynamic_shapes is refused",
        code="torch.dynamic_shapes",
        hint="leave dynamic_shapes out and give inputs of the size that you need"
        + (f" (the example's: {example})" if example else "")
        + "; export once for each size",
    )


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
    if exporter != "legacy" and network.kind != "torchscript":
        with torch.no_grad(), exporters.quiet():
            program = network.program or exporters.program_of(network.make(), network.call.tensors)
        key = _key(network, keeping.program_digest(program), release, exporter)
        if (found := keeping.found(key)) is not None:
            return keeping.saved(found, save)
    with torch.no_grad():
        made, proto = _translated(network, program, release, exporter, notes)
    if exporters.widen(proto):
        notes.append("bfloat16 is float32 in the file: its values are exact there")
    exporters.rename(proto, network.call.names, network.result.names)
    structure, weights = digests(proto)
    if program is None:
        # tracing takes a second, and its result is what tells networks apart
        key = _key(network, structure + weights, release, exporter)
    tolerance = max(TOLERANCES.get(kind, 0.0) for kind in network.types() | {"float32"})
    with keeping.making(key) as folder:
        keeping.write(proto, folder / keeping.FILE)
        agreement = compare(folder / keeping.FILE, network.cases(), tolerance)
        exported = Exported(
            schema=SCHEMA, file=str(keeping.home(key) / keeping.FILE), source=network.source,
            kind=network.kind, torch=str(torch.__version__), exporter=made,
            opset=exporters.opset_of(proto), tensorrt=release,
            inputs=_tensors(proto.graph.input, network.call.tensors),
            outputs=_tensors(proto.graph.output, network.outputs),
            result=network.result.structure, structure=structure, weights=weights,
            agreement=agreement, cached=False, notes=[*network.notes, *notes],
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
    """Chooses exporter and opset by the release, and says so in the notes."""
    newest = newest_opset(release)
    limited = newest is not None and newest < exporters.DYNAMO_OPSET
    why = f"TensorRT {release} takes opset {newest} at most"
    if program is not None:
        proto = exporters.dynamo(program)
        if newest is None or not limited:
            return "dynamo", proto
        try:
            lowered = exporters.lowered(proto, newest)
        except ModelError as error:
            if exporter == "dynamo":
                raise
            notes.append(f"exported by the legacy exporter, as {why} and {error.message}")
        else:
            notes.append(f"converted from opset {exporters.opset_of(proto)} to {newest}, as {why}")
            return "dynamo", lowered
    opset = _LEGACY_OPSET if newest is None else min(newest, _LEGACY_OPSET)
    module, call = network.make(), network.call
    return "legacy", exporters.legacy(module, call.tensors, call.names, opset)


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
