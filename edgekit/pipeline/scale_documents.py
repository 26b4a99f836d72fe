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


@document(frozen=True, kw_only=True)
class CachedScale:
    """A tensor of a calibration cache.

    With a model, ``writer`` and ``readers`` are the layers that write and read it, and ``known``
    says whether the network has it.
    """

    name: str = member(long_text)
    scale: float = member(fields.figure)
    amax: float = member(fields.figure)
    writer: str | None = None
    readers: tuple[str, ...] = ()
    known: bool = False


@document(frozen=True, kw_only=True)
class ReadScale(CachedScale):
    """A tensor of a calibration cache, beside a network."""

    writer: str | None = member(nullable(long_text))
    readers: tuple[str, ...] = member(array(long_text))
    known: bool = member(flag)


@document(frozen=True, kw_only=True)
class InferredScale:
    """A scale that follows from others; ``source`` says how."""

    name: str = member(long_text)
    scale: float = member(fields.figure)
    amax: float = member(fields.figure)
    source: str = member(long_text, key="from")


@document(frozen=True)
class LackingTensor:
    """A tensor without a scale, and the layers that need one."""

    tensor: str = member(long_text)
    layers: tuple[str, ...] = member(array(long_text))


@document(frozen=True, kw_only=True)
class ShownCache(FormerDict):
    """An ``edgekit.cache/1``: the scales of a calibration cache.

    Attributes:
        file: The cache.
        header: Its first line.
        version: TensorRT's number in it.
        algorithm: The calibrator in it.
        model: The model that it is shown beside, or None.
        tensors: Its tensors.
        notes: What a person should know.
    """

    schema: str = member(choice("edgekit.cache/1"), default="edgekit.cache/1")
    file: str = member(long_text)
    header: str = member(long_text)
    version: int = member(fields.count)
    algorithm: str = member(long_text)
    model: str | None = member(nullable(long_text))
    tensors: tuple[CachedScale, ...] = member(records(CachedScale))
    notes: tuple[str, ...] = member(array(long_text))


@document(frozen=True, kw_only=True)
class ReadCache(ShownCache):
    """An ``edgekit.cache/1`` beside a model.

    Attributes:
        tensors: Its tensors, with what writes and reads them.
        inferred: Scales that follow from others.
        missing: Tensors that need a scale and have none.
        without: Tensors that are listed without one.
        unknown: Names that the network does not have.
        unnamed: How many entries are of TensorRT's unnamed layers.
    """

    tensors: tuple[ReadScale, ...] = member(records(ReadScale))
    inferred: tuple[InferredScale, ...] = member(records(InferredScale))
    missing: tuple[LackingTensor, ...] = member(records(LackingTensor))
    without: tuple[LackingTensor, ...] = member(records(LackingTensor))
    unknown: tuple[str, ...] = member(array(long_text))
    unnamed: int = member(fields.count)


@document(frozen=True)
class ScaleDifference:
    """A tensor whose scale differs; ``ratio`` is None where the old one is 0."""

    name: str = member(long_text)
    old: float = member(fields.figure)
    new: float = member(fields.figure)
    ratio: float | None = member(nullable(fields.figure))


@document(frozen=True, kw_only=True)
class CacheDifference(FormerDict):
    """An ``edgekit.cache-diff/1``: two calibration caches compared; ``same`` if they are equal."""

    schema: str = member(choice("edgekit.cache-diff/1"), default="edgekit.cache-diff/1")
    files: tuple[str, ...] = member(array(long_text, 2, 2))
    headers: tuple[str, ...] = member(array(long_text, 2, 2))
    same: bool = member(flag)
    added: tuple[CachedScale, ...] = member(records(CachedScale))
    removed: tuple[CachedScale, ...] = member(records(CachedScale))
    changed: tuple[ScaleDifference, ...] = member(records(ScaleDifference))
    equal: int = member(fields.count)


@document(frozen=True, kw_only=True)
class MergedCache(FormerDict):
    """An ``edgekit.cache-merge/1``: the calibration cache made of ``files``; ``conflicts`` are the
    tensors whose scales differed, ``tensors`` is how many it has.
    """

    schema: str = member(choice("edgekit.cache-merge/1"), default="edgekit.cache-merge/1")
    files: tuple[str, ...] = member(array(long_text))
    file: str = member(long_text)
    header: str = member(long_text)
    policy: str = member(choice("last", "first", "max", "error"))
    tensors: int = member(fields.count)
    conflicts: tuple[str, ...] = member(array(long_text))
    notes: tuple[str, ...] = member(array(long_text))


@document(frozen=True)
class DerivedScale:
    """A scale that follows from those of Q/DQ nodes, by a rule."""

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
    """How many layers of a Q/DQ model could run on the DLA, in how many loadables."""

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
