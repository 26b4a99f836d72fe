"""The documents about INT8 scales: measured ones, calibration caches, and Q/DQ models.

A scale is the step of INT8; ``amax`` is the largest value that it reaches.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.quantize.scales import ChangedScale
from edgekit.reference.method import MethodChoice
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
class WrittenScales:
    """What a calibration cache got: tensors, those without a scale (written as 0), and those of
    the network before its rewriting.

    Attributes:
        tensors: How many tensors have an entry.
        without: How many of them have no scale.
        original: How many are tensors of the network before its rewriting.
    """

    tensors: int = member(fields.count)
    without: int = member(fields.count)
    original: int = member(fields.count)


@document(frozen=True, kw_only=True)
class MeasuredScales(FormerDict):
    """An ``edgekit.scales/1``.

    Attributes:
        model: What was calibrated.
        method: How: "entropy", "minmax", "percentile" or "mse".
        choice: Why that method was taken; None where it was given.
        data: The data.
        digest: Of the data and how they are read.
        scales: By tensor.
        without: Tensors that have none.
        changes: Scales that the hardware makes wider.
        notes: What a person should know.
        file: The calibration cache, or None.
        written: What it got, or None.
    """

    schema: str = member(choice("edgekit.scales/1"), default="edgekit.scales/1")
    model: str = member(long_text)
    method: str = member(long_text)
    choice: MethodChoice | None = member(nullable(record(MethodChoice)))
    data: str = member(long_text)
    digest: str = member(long_text)
    scales: Mapping[str, float] = member(mapping(fields.figure, long_text))
    without: tuple[str, ...] = member(array(long_text))
    changes: tuple[ChangedScale, ...] = member(records(ChangedScale))
    notes: tuple[str, ...] = member(array(long_text))
    file: str | None = member(nullable(long_text))
    written: WrittenScales | None = member(nullable(record(WrittenScales)))


@document(frozen=True)
class DerivedScale:
    """A scale that follows from those of Q/DQ nodes, by a rule.

    Attributes:
        scale: The value of one step of INT8.
    """

    tensor: str = member(long_text)
    scale: float = member(fields.figure)
    rule: str = member(long_text)


@document(frozen=True)
class SplitFiles:
    """Where a Q/DQ model was split to; None for what was not written."""

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
        tied: Whether scales that the builder has one for are written as it takes them.
        changes: What the builder changes.
        propagated: Scales that follow from others.
        missing: Tensors without a scale.
        fp16_nodes: What runs in FP16.
        other_codes: Tensors that are quantised to other types.
        notes: What a person should know.
        files: What was written.
        trtexec: The line that builds it; None where files for it were not written.
    """

    schema: str = member(choice("edgekit.from-qdq/1"), default="edgekit.from-qdq/1")
    model: str = member(long_text)
    tensorrt: str | None = member(nullable(fields.release))
    quantizers: int = member(fields.count)
    weights: int = member(fields.count)
    scales: Mapping[str, float] = member(mapping(fields.figure, long_text))
    tied: bool = member(flag)
    changes: tuple[ChangedScale, ...] = member(records(ChangedScale))
    propagated: tuple[DerivedScale, ...] = member(records(DerivedScale))
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
    """How many layers of a Q/DQ model could run on the DLA, in how many loadables.

    Attributes:
        layers: How many layers there are.
        dla_layers: How many layers can run on a DLA.
        int8_layers: How many of these can run in INT8.
        loadables: How many loadables they form.
    """

    layers: int = member(fields.count)
    dla_layers: int = member(fields.count)
    int8_layers: int = member(fields.count)
    loadables: int = member(fields.count)
    gpu: tuple[RefusedLayer, ...] = member(records(RefusedLayer))


@document(frozen=True, kw_only=True)
class LoweredModel(FormerDict):
    """An ``edgekit.to-qdq/1``: a plain model and its scales as a Q/DQ model.

    Attributes:
        model: The plain model.
        target: The board.
        tensorrt: The release.
        method: How the scales were measured.
        data: On what data.
        opset: The Q/DQ model's ai.onnx.
        activations: Activations between Q/DQ nodes.
        weights: Constants between Q/DQ nodes.
        casts: Cast nodes.
        fp16_layers: Layers in FP16.
        check: Where its layers could run.
        notes: What a person should know.
        file: The Q/DQ model.
        trtexec: The line that builds it.
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
