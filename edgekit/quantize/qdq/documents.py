"""The documents of Q/DQ models: the split of a Q/DQ model (``from-qdq``), and a Q/DQ model from a
plain model (``to-qdq``).
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.dla.verdicts import Judgement
from edgekit.network.model import QDQ, Network
from edgekit.quantize.qdq.to_implicit import Propagated
from edgekit.quantize.scales import ChangedScale
from edgekit.removed import FormerDict
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    mapping,
    member,
    nullable,
    record,
    records,
)


@document(frozen=True)
class SplitFiles:
    """The files of a split Q/DQ model; None for a file that was not written."""

    model: str | None = member(nullable(long_text))
    cache: str | None = member(nullable(long_text))
    precisions: tuple[str, ...] = member(array(long_text))


@document(frozen=True, kw_only=True)
class SplitModel(FormerDict):
    """An ``edgekit.from-qdq/1``: a Q/DQ model as a plain model, scales and FP16 layers.

    Attributes:
        model: The Q/DQ model.
        tensorrt: The release that reads the cache, or None.
        quantizers: Scales of its Q/DQ nodes.
        weights: Its quantised constants.
        scales: By tensor.
        tied: True if scales that the builder ties are written as it takes them.
        changes: Scales that the builder changes.
        propagated: Scales that follow from others.
        missing: Tensors without a scale.
        fp16_nodes: Nodes that run in FP16.
        other_codes: Weights that get other codes when they are quantised anew.
        notes: Notes for the user.
        files: The written files.
        trtexec: The command line that builds it; None if its files were not written.
    """

    schema: str = member(choice("edgekit.from-qdq/1"), default="edgekit.from-qdq/1")
    model: str = member(long_text)
    tensorrt: str | None = member(nullable(fields.release))
    quantizers: int = member(fields.count)
    weights: int = member(fields.count)
    scales: Mapping[str, float] = member(mapping(fields.figure, long_text))
    tied: bool = member(flag)
    changes: tuple[ChangedScale, ...] = member(records(ChangedScale))
    propagated: tuple[Propagated, ...] = member(records(Propagated))
    missing: tuple[str, ...] = member(array(long_text))
    fp16_nodes: tuple[str, ...] = member(array(long_text))
    other_codes: tuple[str, ...] = member(array(long_text))
    notes: tuple[str, ...] = member(array(long_text))
    files: SplitFiles = member(record(SplitFiles))
    trtexec: str | None = member(nullable(long_text))


@document(frozen=True)
class RefusedLayer:
    """A layer that the DLA cannot run, and the rule that it breaks."""

    layer: str = member(long_text)
    rule: str = member(long_text)


@document(frozen=True)
class LoweredCheck:
    """The numbers of a Q/DQ model's layers that could run on the DLA, and of their loadables.

    Attributes:
        layers: Number of layers without Q/DQ nodes.
        qdq_nodes: Number of Q/DQ nodes; ``edgekit check`` counts them as layers for TensorRT
            releases that take Q/DQ nodes on a DLA.
        dla_layers: Number of layers that can run on a DLA.
        int8_layers: Number of these that can run in INT8.
        loadables: Number of loadables they form.
    """

    layers: int = member(fields.count)
    dla_layers: int = member(fields.count)
    int8_layers: int = member(fields.count)
    loadables: int = member(fields.count)
    gpu: tuple[RefusedLayer, ...] = member(records(RefusedLayer))
    qdq_nodes: int = member(fields.count, default=0)

    @classmethod
    def of(cls, network: Network, judgement: Judgement) -> LoweredCheck:
        """Returns the verdicts on the layers of a Q/DQ model other than its Q/DQ nodes."""
        own = [layer for layer in network.layers if layer.op not in QDQ]
        verdicts = judgement.verdicts
        refused = [layer.name for layer in own if not verdicts[layer.name].ok]
        return cls(
            layers=len(own),
            dla_layers=len(own) - len(refused),
            int8_layers=sum(judgement.precision_of(layer.name) == "int8" for layer in own),
            loadables=sum(group.retained for group in judgement.candidates),
            gpu=tuple(RefusedLayer(name, verdicts[name].reasons[0].rule) for name in refused),
            qdq_nodes=len(network.layers) - len(own),
        )


@document(frozen=True, kw_only=True)
class LoweredModel(FormerDict):
    """An ``edgekit.to-qdq/1``: a plain model and its scales as a Q/DQ model.

    Attributes:
        model: The plain model.
        target: The board.
        tensorrt: The release.
        method: The calibration method of the scales.
        data: The calibration data.
        opset: The Q/DQ model's ai.onnx opset.
        activations: Activations between Q/DQ nodes.
        weights: Constants between Q/DQ nodes.
        casts: Cast nodes.
        fp16_layers: Layers in FP16.
        check: Numbers of layers that could run on the DLA.
        notes: Notes for the user.
        file: The Q/DQ model.
        trtexec: The command line that builds it.
    """

    schema: str = member(choice("edgekit.to-qdq/1"), default="edgekit.to-qdq/1")
    model: str = member(long_text)
    target: str = member(fields.target)
    tensorrt: str = member(fields.release)
    method: str = member(long_text)
    data: str = member(long_text)
    opset: int = member(fields.count)
    activations: int = member(fields.count)
    weights: int = member(fields.count)
    casts: int = member(fields.count)
    fp16_layers: tuple[str, ...] = member(array(long_text))
    check: LoweredCheck = member(record(LoweredCheck))
    notes: tuple[str, ...] = member(array(long_text))
    file: str = member(long_text)
    trtexec: str = member(long_text)
