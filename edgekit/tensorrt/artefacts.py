"""A board's build as the artefacts of bundles: plans and loadables, the weights for their refit,
and golden vectors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import BuildError
from edgekit.files import forget_pages
from edgekit.reference.artefacts import Artefacts, EngineSegment, Weight
from edgekit.reference.weights import Keep, weight_digest
from edgekit.text import counted
from edgekit_device.protocol.manifest import EngineEntry, IoEntry
from edgekit_device.tensorrt.weights import named_weights, weight_origins

if TYPE_CHECKING:
    from edgekit.tensorrt.requests import BuildRequest, RequestedEngine, RequestedLane
    from edgekit_device.build.request import (
        BuildResult,
        BuiltTensor,
        EngineResult,
        EngineSpec,
        IoSpec,
    )


Fetch = Callable[[Iterable[str]], Mapping[str, bytes]]
_TAKES_OTHERS = ("any", "individual")
# bytes of a model and its data whose weights are read at once
_PART_BYTES = 128 << 20


def read_artefacts(
    request: BuildRequest,
    result: BuildResult,
    lanes: Sequence[RequestedLane],
    fetch: Fetch,
    keep: Keep | None = None,
) -> Artefacts:
    """Returns the artefacts of a build.

    The weights that stripped engines lack, and those that can be refitted, come from the models
    that were built, by the names that TensorRT's ONNX parser gives them
    (``edgekit_device.tensorrt.weights``). If a weight of an unstripped engine has no such name,
    the engine cannot be refitted: its "refit" is "none".

    Args:
        request: The request.
        result: The board's answer.
        lanes: The engines of the request.
        fetch: Returns blobs of the board by SHA-256.
        keep: Stores a weight's value, as of ``WeightStore``.

    Raises:
        BuildError: "build.result": the answer does not fit the request; "build.weights": a weight
            that an engine lacks is not in its model.
    """
    built = {engine.key: engine for engine in result.engines}
    missing = [e.key for lane in lanes for e in lane.engines if e.key not in built]
    if missing:
        raise BuildError(
            f"the board's answer misses {counted(len(missing), 'engine')}, such as {missing[0]}",
            code="build.result",
            where=request.job.name,
            hint="remove the job (edgekit jobs remove) and build again",
        )
    # engines with equal bytes, such as those of two cores, are fetched once
    engines = dict(fetch(dict.fromkeys(answer.engine for answer in built.values())))
    store = _EngineWeights(keep)
    entries: dict[str, EngineEntry] = {}
    notes = list(result.notes)
    requested = {spec.key: spec for spec in request.job.engines}
    found = []
    for lane in lanes:
        segments = []
        for index, engine in enumerate(lane.engines):
            answer = built[engine.key]
            segments.append(
                EngineSegment(
                    index,
                    engine.device,
                    tuple(layer.name for layer in engine.layers),
                    tuple(tensor.name for tensor in engine.inputs),
                    tuple(tensor.name for tensor in engine.outputs),
                    answer.engine,
                )
            )
            known = entries.get(answer.engine)
            if known is not None:
                # the same bytes for another device: the segment names the device
                if known.dla_core is None:
                    entries[answer.engine] = replace(known, dla_core=answer.dla_core)
                continue
            entry = entries[answer.engine] = _engine_entry(engine, answer)
            if answer.plugins_embedded:
                notes.append(
                    f"{engine.key} carries the libraries of its plugins: a runtime loads it only "
                    "with engine_host_code_allowed, which edgekit's loader sets for a signed bundle"
                )
            if not answer.stripped and answer.refit not in _TAKES_OTHERS:
                continue
            try:
                renamed = store.take(engine, answer, request.blobs, requested[engine.key])
            except BuildError as error:
                if answer.stripped:
                    raise
                entries[answer.engine] = replace(entry, refit="none")
                notes.append(f"{engine.key} cannot be refitted: {error.message}")
                continue
            if renamed:
                entries[answer.engine] = replace(entry, weights=renamed)
        found.append((lane.share, tuple(segments)))
    return Artefacts(
        backend="tensorrt",
        lanes=tuple(found),
        engines=engines,
        weights=store.weights,
        values=store.values,
        fingerprint=dict(result.fingerprint),
        inputs=tuple(tensor.name for tensor in request.job.network.inputs),
        outputs=tuple(tensor.name for tensor in request.job.network.outputs),
        notes=tuple(notes),
        entries=entries,
        plugins=request.job.plugins,
        libraries={
            plugin.library: bytes(request.blobs[plugin.library])
            for plugin in request.job.plugins
            if plugin.library
        },
    )


@dataclass(frozen=True, eq=False)
class BoardGolden:
    """Outputs of the unstripped engines on the board; ``lane`` is None if there is only one lane.

    ``shapes`` are the inputs' sizes if they differ from the network's.
    """

    seed: int
    lane: int | None
    outputs: dict[str, np.ndarray]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def read_golden(result: BuildResult, fetch: Fetch) -> list[BoardGolden]:
    """Returns the outputs of the unstripped engines on the board, as arrays."""
    blobs = fetch(dict.fromkeys(x.digest for case in result.golden for x in case.outputs.values()))
    return [
        BoardGolden(
            case.seed,
            case.lane,
            {
                name: np.frombuffer(blobs[x.digest], np.dtype(x.dtype)).reshape(x.shape)
                for name, x in case.outputs.items()
            },
            dict(case.shapes),
        )
        for case in result.golden
    ]


def _engine_entry(engine: RequestedEngine, answer: EngineResult) -> EngineEntry:
    """Returns the manifest's entry of an engine."""
    return EngineEntry(
        kind=answer.kind,
        tensorrt=answer.tensorrt,
        stripped=answer.stripped,
        version_compatible=answer.version_compatible,
        lean_embedded=answer.lean_embedded,
        refit=answer.refit,
        dla_core=answer.dla_core,
        inputs=_ordered_entries(answer.io, "input", engine.inputs),
        outputs=_ordered_entries(answer.io, "output", engine.outputs),
        plugins_embedded=answer.plugins_embedded,
        device_bytes=answer.device_bytes,
    )


def _ordered_entries(
    found: Sequence[BuiltTensor], mode: str, requested: Sequence[IoSpec]
) -> tuple[IoEntry, ...]:
    at = {tensor.name: number for number, tensor in enumerate(requested)}
    # the board lists tensors in its engine's order, the manifest in the plan's
    ordered = sorted(found, key=lambda tensor: at.get(tensor.name, len(at)))
    return tuple(
        IoEntry(
            tensor.name, tensor.dtype, tensor.shape, tensor.format, tensor.strides, tensor.scale
        )
        for tensor in ordered
        if tensor.mode == mode
    )


class _EngineWeights:
    """The weights of all engines: each name has a single value."""

    def __init__(self, keep: Keep | None) -> None:
        self._keep = keep
        self.weights: dict[str, Weight] = {}
        self.values: dict[str, np.ndarray] = {}

    def take(
        self,
        engine: RequestedEngine,
        answer: EngineResult,
        blobs: Mapping[str, bytes | memoryview],
        requested: EngineSpec,
    ) -> dict[str, str]:
        """Adds the weights that an engine lacks; returns the names that it had to change.

        The parser's generated names ("tmp_batch_norm_weight") have another meaning in each engine.
        """
        found: dict[str, tuple[str, np.ndarray, str]] = {}
        for arrays, by_node in _named_weights(blobs, requested, list(answer.weights)):
            for name, value in arrays.items():
                digest = weight_digest(value)
                kept = self._keep(digest, value) if self._keep else value
                found[name] = digest, kept, by_node.get(name, "none")
        lacking = sorted(set(answer.weights) - set(found))
        if lacking:
            raise BuildError(
                f"{len(lacking)} of the engine's weights are missing from its model, such as "
                f"{lacking[0]!r}",
                code="build.weights",
                where=engine.key,
                hint="to build engines with their weights: build.strip: false",
            )
        renamed = {}
        for name, (digest, value, made) in found.items():
            known = self.weights.get(name)
            key = name if known is None or known.digest == digest else f"{engine.key}/{name}"
            if key != name:
                renamed[name] = key
            # found by its node: in the whole file the parser would number it differently
            source = made.partition(":")[2] or name
            self.weights[key] = Weight(
                key, source, made, digest, str(value.dtype), tuple(value.shape)
            )
            self.values[digest] = value
        return renamed


def _named_weights(
    blobs: Mapping[str, bytes | memoryview], requested: EngineSpec, wanted: Sequence[str]
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, str]]]:
    """Yields weights, and the numbered names by node; for large models in parts."""
    model = blobs[requested.model]
    files = [(name, blobs[digest]) for name, digest in requested.data.items()]
    size = len(model) + sum(len(data) for _, data in files)
    count = max(1, len(wanted) * _PART_BYTES // max(size, _PART_BYTES))
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        for name, data in files:
            Path(folder, name).write_bytes(data)
        for start in range(0, len(wanted), count):
            source = (model, Path(folder), set(wanted[start : start + count]))
            yield dict(named_weights(*source)), weight_origins(*source)
            for data in (model, *(data for _, data in files)):
                forget_pages(data)


def unchangeable_weights(
    old: Iterable[RequestedLane], new: Iterable[RequestedLane], engines: Iterable[EngineResult]
) -> list[str]:
    """Returns the weights that differ and cannot be refitted, neither by name nor folded.

    Folded batch normalisations have names generated by TensorRT's importer ("tmp_...").
    """
    taken = {answer.key: set(answer.weights) for answer in engines}
    models = {engine.key: engine.model for lane in new for engine in lane.engines}
    found: dict[str, None] = {}
    for engine in (engine for lane in old for engine in lane.engines):
        names, graph = taken[engine.key], engine.model.proto.graph
        if any(name.startswith("tmp_") for name in names):
            norms = (node for node in graph.node if node.op_type == "BatchNormalization")
            # scale, bias, mean and variance, which the importer folds into "tmp_..." weights
            names.update(name for node in norms for name in node.input[1:5])
        others = models[engine.key].weights
        for name, value in engine.model.weights.items():
            if name not in names and value.tobytes() != others[name].tobytes():
                found[name] = None
    return list(found)
