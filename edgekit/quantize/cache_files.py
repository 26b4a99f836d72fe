"""Calibration caches shown, compared and merged: the documents of `edgekit calibrate show`,
`diff` and `merge`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.dla.scales import LEVELS
from edgekit.errors import DataError, UsageError
from edgekit.network.loading.load import canonical, load
from edgekit.network.loading.validation import input_shapes
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model
from edgekit.network.source import is_config_file, parse_builtin
from edgekit.network.zoo import builtin
from edgekit.quantize.caches import (
    CalibrationCache,
    diff,
    edit,
    load_cache,
    merge,
    scales_from_cache,
    write_cache,
)
from edgekit.quantize.calibration.calibrate import describe_missing
from edgekit.quantize.qdq.to_implicit import from_qdq, has_qdq
from edgekit.removed import FormerDict
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    member,
    nullable,
    records,
)


@document(frozen=True, kw_only=True)
class CachedScale:
    """A tensor of a calibration cache.

    With a model, ``writer`` and ``readers`` are the layers that write and read it, and ``known``
    is True if the network has it.

    Attributes:
        scale: The value of one step of INT8.
        amax: The largest magnitude that INT8 can hold: 127 steps.
    """

    name: str = member(long_text)
    scale: float = member(fields.figure)
    amax: float = member(fields.figure)
    writer: str | None = None
    readers: tuple[str, ...] = ()
    known: bool = False


@document(frozen=True, kw_only=True)
class ReadScale(CachedScale):
    """A tensor of a calibration cache, with a network."""

    writer: str | None = member(nullable(long_text))
    readers: tuple[str, ...] = member(array(long_text))
    known: bool = member(flag)


@document(frozen=True, kw_only=True)
class InferredScale:
    """A scale that follows from others; ``source`` is its origin.

    Attributes:
        scale: The value of one step of INT8.
        amax: The largest magnitude that INT8 can hold: 127 steps.
    """

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
        model: The model that it is shown with, or None.
        tensors: Its tensors.
        notes: Notes for the user.
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
    """An ``edgekit.cache/1`` with a model.

    Attributes:
        tensors: Its tensors, with the layers that write and read them.
        inferred: Scales that follow from others.
        missing: Tensors that need a scale and have none.
        without: Tensors that are listed without a scale.
        unknown: Names that the network does not have.
        unnamed: Number of entries of TensorRT's unnamed layers.
    """

    tensors: tuple[ReadScale, ...] = member(records(ReadScale))
    inferred: tuple[InferredScale, ...] = member(records(InferredScale))
    missing: tuple[LackingTensor, ...] = member(records(LackingTensor))
    without: tuple[LackingTensor, ...] = member(records(LackingTensor))
    unknown: tuple[str, ...] = member(array(long_text))
    unnamed: int = member(fields.count)


@document(frozen=True)
class ScaleDifference:
    """A tensor whose scale differs; ``ratio`` is None if the old scale is 0.

    Attributes:
        old: The value of one step of INT8 in the first cache.
        new: The same in the second cache.
        ratio: The new scale over the old scale.
    """

    name: str = member(long_text)
    old: float = member(fields.figure)
    new: float = member(fields.figure)
    ratio: float | None = member(nullable(fields.figure))


@document(frozen=True, kw_only=True)
class CacheDifference(FormerDict):
    """An ``edgekit.cache-diff/1``: two calibration caches compared; ``same`` if they are equal.

    Attributes:
        equal: Number of tensors with the same scale in both.
    """

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
    """An ``edgekit.cache-merge/1``: the calibration cache merged from ``files``.

    Attributes:
        tensors: Number of its tensors.
        conflicts: The tensors whose scales differed.
    """

    schema: str = member(choice("edgekit.cache-merge/1"), default="edgekit.cache-merge/1")
    files: tuple[str, ...] = member(array(long_text))
    file: str = member(long_text)
    header: str = member(long_text)
    policy: str = member(choice("last", "first", "max", "error"))
    tensors: int = member(fields.count)
    conflicts: tuple[str, ...] = member(array(long_text))
    notes: tuple[str, ...] = member(array(long_text))


def ranges(options: Sequence[str]) -> dict[str, float]:
    """Parses NAME=AMAX; a name may contain "="."""
    found = {}
    for option in options:
        name, _, text = option.rpartition("=")
        try:
            found[name] = float(text)
        except ValueError:
            name = ""
        if not name:
            raise UsageError(
                f"--set {option!r} is not NAME=AMAX", code="cache.set", hint="--set conv1_out=6.5"
            )
    return found


def renames(options: Sequence[str], scales: Mapping[str, float]) -> dict[str, str]:
    """Parses OLD=NEW; if names contain "=", OLD is a name of the cache."""
    found = {}
    for option in options:
        cuts = [place for place, sign in enumerate(option) if sign == "="]
        fits = [place for place in cuts if option[:place] in scales] or cuts[:1]
        # two names of the cache may both be followed by "=": then the option is ambiguous
        if len(fits) != 1 or not option[: fits[0]] or not option[fits[0] + 1 :]:
            raise UsageError(
                f"--rename {option!r} is not OLD=NEW"
                + (": it can be read in several ways" if len(fits) > 1 else ""),
                code="cache.rename",
                hint="--rename 'input:0=input'",
            )
        found[option[: fits[0]]] = option[fits[0] + 1 :]
    return found


def show_document(
    path: Path,
    model: str | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
) -> ShownCache:
    """Returns an ``edgekit.cache/1``: a cache's scales; with a model, their writers and readers.

    Args:
        path: The cache.
        model: An ONNX file or "builtin:NAME"; None shows the cache alone. A Q/DQ model is shown
            translated, because only the translation reads a cache.
        shapes: Shapes by input name of the model, for sizes that its file leaves open.
        batch: The batch if only the batch is open; 1 when None.
        outputs: Tensors that the model is cut at.

    Raises:
        UsageError: Shapes or outputs without a model, or that the model does not have.
        DataError: The file is no cache, or of another network than ``model``.
        ModelError: The model cannot be loaded.
    """
    cache = load_cache(path)
    if model is None:
        if shapes or batch or outputs:
            raise UsageError(
                "only part of a model is given, and no model", hint="add --model model.onnx"
            )
        tensors = tuple(_row(name, scale) for name, scale in cache.scales.items())
        return ShownCache(
            file=str(path),
            header=cache.header,
            version=cache.version,
            algorithm=cache.algorithm,
            model=None,
            tensors=tensors,
            notes=tuple(cache.notes),
        )
    loaded, notes = _model(model, shapes, batch, outputs), []
    if has_qdq(loaded):
        loaded = from_qdq(loaded).model
        notes.append(
            f"{model} has Q/DQ nodes; shown is its conversion to implicit INT8, which reads "
            "the cache"
        )
    return _with_network(cache, path, model, loaded, notes)


def _row(name: str, scale: float) -> CachedScale:
    return CachedScale(name=name, scale=scale, amax=scale * LEVELS)


def _with_network(
    cache: CalibrationCache, path: Path, model: str, loaded: Model, notes: Sequence[str]
) -> ReadCache:
    network = layers(loaded)
    reading = scales_from_cache(cache, network, model=loaded, name=str(path))
    producers, consumers = network.producers(), network.consumers()
    unknown = {*reading.unknown, *reading.unnamed}
    rows = []
    for tensor, scale in cache.scales.items():
        writer = producers.get(tensor)
        rows.append(
            ReadScale(
                name=tensor,
                scale=scale,
                amax=scale * LEVELS,
                writer=writer.name if writer else None,
                readers=tuple(layer.name for layer in consumers.get(tensor, ())),
                known=tensor not in unknown,
            )
        )
    scales = reading.scales.scales
    listed = [lack for lack in reading.lacks if lack.tensor in reading.without]
    layers_of = {lack.tensor: tuple(lack.layers) for lack in listed}
    return ReadCache(
        file=str(path),
        header=cache.header,
        version=cache.version,
        algorithm=cache.algorithm,
        model=model,
        tensors=tuple(rows),
        inferred=tuple(
            InferredScale(
                name=tensor, scale=scales[tensor], amax=scales[tensor] * LEVELS, source=why
            )
            for tensor, why in reading.inferred.items()
        ),
        # as in calibrate, plan and build: 0 in the cache means that no scale suits
        missing=tuple(
            LackingTensor(lack.tensor, tuple(lack.layers))
            for lack in reading.lacks
            if lack.tensor not in reading.without
        ),
        without=tuple(LackingTensor(name, layers_of.get(name, ())) for name in reading.listed),
        unknown=tuple(reading.unknown),
        unnamed=len(reading.unnamed),
        notes=(*reading.scales.warnings, *describe_missing(reading.listed, listed), *notes),
    )


def _model(
    name: str,
    shapes: Mapping[str, Sequence[int]] | None,
    batch: int | None,
    outputs: Sequence[str] | None,
) -> Model:
    cut = list(outputs or ()) or None
    given = parse_builtin(name)
    if given is None:
        if is_config_file(name):
            raise UsageError(
                "this is a configuration, but a model is needed",
                where=name,
                hint="give its ONNX file, with the same --shape and --outputs",
            )
        return load(Path(name), shapes=shapes, batch=batch, outputs=cut)
    loaded = builtin(*given)
    # only checks the given shapes: a built-in network has no open sizes
    input_shapes(loaded.proto.graph.input, shapes or {}, batch)
    if cut is None:
        return loaded
    return canonical(loaded.proto, None, outputs=cut, source=loaded.source, weights=loaded.weights)


def diff_document(
    first: Path, second: Path, *, tolerance: float = 0.0, headers: bool = True
) -> CacheDifference:
    """Returns an ``edgekit.cache-diff/1``; ``same`` is True if the caches are equal.

    Args:
        first: The old cache.
        second: The new cache.
        tolerance: Scales that differ by at most this part of the smaller are equal.
        headers: True if different headers count as a difference.

    Raises:
        DataError: A file is no cache.
        UsageError: A negative tolerance.
    """
    # refuses NaN, too
    if not tolerance >= 0:
        raise UsageError(f"the tolerance cannot be {tolerance}", hint="a number such as 0.01")
    found = diff(load_cache(first), load_cache(second), tolerance=tolerance)
    return CacheDifference(
        files=(str(first), str(second)),
        headers=tuple(found.headers),
        same=found.same_scales and not (headers and found.headers[0] != found.headers[1]),
        added=tuple(_row(*item) for item in found.added.items()),
        removed=tuple(_row(*item) for item in found.removed.items()),
        changed=tuple(
            ScaleDifference(name, old, new, new / old if old else None)
            for name, old, new in found.changed
        ),
        equal=found.equal,
    )


def merge_document(
    sources: Sequence[Path],
    out: Path,
    *,
    policy: str = "last",
    amax: Sequence[str] = (),
    drop: Sequence[str] = (),
    rename: Sequence[str] = (),
    tensorrt: str | None = None,
) -> MergedCache:
    """Merges caches into a file and returns an ``edgekit.cache-merge/1``.

    All are read before the file is written, so ``out`` may also be a source; it is replaced
    atomically.

    Args:
        sources: One or more caches.
        out: The file to write.
        policy: Which of several scales of a tensor counts: "last", "first", "max" or "error".
        amax: "NAME=AMAX" to set.
        drop: Names, or patterns of names, to leave out.
        rename: "OLD=NEW".
        tensorrt: The TensorRT release whose header to write; None keeps the first cache's.

    Raises:
        DataError: A file is no cache, or ``out`` cannot be written.
        UsageError: An edit that matches no tensor.
    """
    caches = [load_cache(path) for path in sources]
    merged = merge(caches, policy=policy, names=[str(path) for path in sources], tensorrt=tensorrt)
    new = edit(merged, drop=drop, rename=renames(rename, merged.scales), amax=ranges(amax))
    if not new.scales:
        raise DataError(
            "no tensor is left", code="cache.empty", where=str(out), hint="drop fewer tensors"
        )
    write_cache(new, out)
    tensors: dict[str, set[float]] = {}
    for cache in caches:
        for name, scale in cache.scales.items():
            tensors.setdefault(name, set()).add(scale)
    return MergedCache(
        files=tuple(map(str, sources)),
        file=str(out),
        header=new.header,
        policy=policy,
        tensors=len(new.scales),
        conflicts=tuple(name for name, found in tensors.items() if len(found) > 1),
        notes=new.notes,
    )
