"""What ``edgekit calibrate to-qdq`` writes and tells."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.network import QDQ

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.pipeline._work import Work

__all__ = ["to_qdq_document"]


def to_qdq_document(
    work: Work, out: Path, *, weights: str = "per_channel", float16: bool = True
) -> dict[str, Any]:
    """Lowers a configuration's network, writes it, and returns an ``edgekit.to-qdq/1``.

    Args:
        work: The configuration, with a strongly typed TensorRT release.
        out: Where the Q/DQ model goes.
        weights: "per_channel" or "per_tensor".
        float16: Whether layers outside of INT8 get FP16 types.

    Raises:
        UsageError: "qdq.release": no DLA of the board reads Q/DQ nodes with the release, or
            ``out`` is the model itself.
        ModelError: "qdq.present", "qdq.opset", or it cannot be written.
    """
    from edgekit import network as networks
    from edgekit.dla import judge, release_warnings
    from edgekit.pipeline._outputs import may_write_for
    from edgekit.pipeline._typed import is_typed
    from edgekit.quantize import to_qdq

    if not is_typed(work.target, work.tensorrt, "int8"):
        raise UsageError(
            f"with TensorRT {work.tensorrt} no DLA of {work.target.name} reads Q/DQ nodes",
            code="qdq.release",
            where=work.file.target,
            hint="up to 10.7 INT8 on the DLA is a calibration cache (edgekit calibrate --save); "
            "Q/DQ nodes are for --tensorrt 11.4.1 and later on AGX Orin",
        )
    may_write_for(work.config, {"the Q/DQ model": out})
    scales = work.scales
    assert scales is not None, "the precision is INT8"
    fp16 = work.fp16_layers(work.network)
    model = to_qdq(
        work.named if work.translated is not None else work.model, work.network, scales.scales,
        fp16_layers=fp16, weights=weights, float16=float16,
    )  # fmt: skip
    networks.save(model, out)
    network = networks.layers(model)
    judgement = judge(network, work.target, precision="int8", tensorrt=work.tensorrt)
    return {
        "schema": "edgekit.to-qdq/1",
        "model": work.source.source,
        "target": work.file.target,
        "tensorrt": work.tensorrt,
        "method": scales.method,
        "data": scales.data,
        **_counts(model, scales.quantised or frozenset()),
        "fp16_layers": [
            layer.name
            for layer in work.network.layers
            if work.judgement.precision_of(layer.name) == "fp16"
        ],
        "check": _check(network, judgement),
        "notes": [
            *dict.fromkeys(
                (*work.notes, *scales.warnings, *release_warnings(network, judgement, work.target))
            )
        ],
        "file": str(out),
        "trtexec": f"trtexec --onnx={quote(str(out))} --useDLACore=0 --allowGPUFallback",
    }


def _counts(model: Model, activations: frozenset[str]) -> dict[str, int]:
    nodes = [node.op_type for node in model.proto.graph.node]
    pairs = nodes.count("QuantizeLinear")
    return {
        "opset": next(e.version for e in model.proto.opset_import if not e.domain),
        "activations": len(activations),
        "weights": pairs - len(activations),
        "casts": nodes.count("Cast"),
    }


def _check(network: Network, judgement: Judgement) -> dict[str, Any]:
    """The verdicts on the Q/DQ model: those of its layers beside the Q/DQ nodes."""
    own = [layer for layer in network.layers if layer.op not in QDQ]
    verdicts = judgement.verdicts
    refused = [layer.name for layer in own if not verdicts[layer.name].ok]
    return {
        "layers": len(own),
        "dla_layers": len(own) - len(refused),
        "int8_layers": sum(judgement.precision_of(layer.name) == "int8" for layer in own),
        "loadables": sum(group.kept for group in judgement.candidates),
        "gpu": [{"layer": name, "rule": verdicts[name].reasons[0].rule} for name in refused],
    }
