"""Joins the bundles of a network's parts, with the ONNX files that run between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from edgekit.bundles.manifest import Blob, Blobs, Bundle, Golden, canonical, golden_cases
from edgekit.bundles.pack import finish
from edgekit.errors import BundleError
from edgekit.version import __version__
from edgekit_device.protocol.manifest import (
    CPU,
    NETWORK_SCHEMA,
    PYTHON,
    EngineEntry,
    Lane,
    Manifest,
    ModelSource,
    PlacedLoadable,
    PlacementRecord,
    Requires,
    SegmentEntry,
    TensorEntry,
    WeightEntry,
)

# least length of a lane's share: shorter pieces are rounding errors
_DIGITS = 9
_REFERENCE = "reference"


@dataclass(frozen=True, eq=False)
class CpuPart:
    """A part that runs on the board's CPU.

    Attributes:
        name: Displayed name.
        model: The ONNX file, with its weights; or the record of a Python part.
        inputs: Input tensors, by the names in the file.
        outputs: Output tensors.
        files: For a Python part, its source file and state by the kind of blob.
    """

    name: str
    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)


Part: TypeAlias = "Bundle | CpuPart"


def join(
    parts: Sequence[Part],
    *,
    name: str,
    model: ModelSource,
    inputs: Sequence[TensorEntry],
    outputs: Sequence[TensorEntry],
    call: Mapping[str, object],
    golden: Sequence[Golden] = (),
) -> Bundle:
    """Returns the unsigned bundle of a network's parts. The same inputs give the same bytes.

    Rewrites, samples and golden vectors belong to a network, so a part's bundle only keeps its own
    if it is the whole network.

    Args:
        parts: The parts in the order of the network, including at least a bundle; a tensor between
            two parts has the same name in both.
        name: The application's name.
        model: The source of the cut network.
        inputs: The network's inputs.
        outputs: The network's outputs.
        call: The ``edgekit.export/1`` document with the network's call signature.
        golden: Golden vectors of the network.

    Raises:
        BundleError: "bundle.invalid": the parts are of different boards, or their names collide.
    """
    blobs = Blobs()
    bundles = [part for part in parts if isinstance(part, Bundle)]
    first = bundles[0].manifest
    record = blobs.add(canonical(call), "record")
    if len(parts) == 1:
        for digest, entry in first.blobs.items():
            blobs.add(bundles[0].blobs[digest], entry.kind, digest)
        manifest = replace(first, schema=NETWORK_SCHEMA, call=record, blobs=blobs.entries())
        return finish(manifest, blobs.values, bundles[0].weights)
    for other in bundles:
        if other.manifest.fingerprint != first.fingerprint:
            raise _join_error("the parts were built on different boards", name)
    weights, engines = _weights_and_engines(bundles, name)
    values: dict[str, Blob] = {}
    for bundle in bundles:
        values.update(bundle.weights)
        for digest, entry in bundle.manifest.blobs.items():
            if entry.kind in ("engine", "library"):
                blobs.add(bundle.blobs[digest], entry.kind, digest)
    on_cpu: dict[int, str] = {}
    for part in parts:
        if isinstance(part, CpuPart):
            on_cpu[id(part)] = blobs.add(part.model, PYTHON if part.files else "engine")
            for kind, data in part.files.items():
                blobs.add(data, kind)
    lanes = _lanes([_part_lanes(part, on_cpu) for part in parts])
    cases, results = golden_cases(golden, outputs)
    if len(lanes) > 1 and first.backend != _REFERENCE:
        # devices round differently, and these belong to the lane of single frames
        cases = tuple(replace(case, lane=0) for case in cases)
    for digest, result in results.items():
        blobs.add(result, "golden", digest)
    manifest = Manifest(
        name=name,
        backend=first.backend,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        lanes=lanes,
        weights=weights,
        blobs=blobs.entries(),
        golden=cases,
        without_golden=not cases,
        schema=NETWORK_SCHEMA,
        created_by={"edgekit": __version__},
        model=model,
        target=first.target,
        power_mode=first.power_mode,
        precision=first.precision,
        mode=first.mode,
        tensorrt=first.tensorrt,
        fingerprint=first.fingerprint,
        stripped=bool(weights),
        placement=_placement(parts),
        engines=engines,
        requires=_requires(parts, blobs),
        issued=first.issued,
        call=record,
        memory=first.memory,
        plugins=tuple(dict.fromkeys(plugin for b in bundles for plugin in b.manifest.plugins)),
    )
    return finish(manifest, blobs.values, values)


def _weights_and_engines(
    bundles: Sequence[Bundle], where: str
) -> tuple[dict[str, WeightEntry], dict[str, EngineEntry]]:
    """Returns weights by name and engines by digest; a name of two different weights is split."""
    weights: dict[str, WeightEntry] = {}
    engines: dict[str, EngineEntry] = {}
    for number, bundle in enumerate(bundles, 1):
        manifest = bundle.manifest
        other = {
            name: f"{name}@{number}"
            for name, weight in manifest.weights.items()
            if name in weights and weights[name].digest != weight.digest
        }
        if other and manifest.backend == _REFERENCE:
            # these engines find their weights only by name
            raise _join_error(f"two parts have different weights named {min(other)!r}", where)
        weights |= {other.get(name, name): weight for name, weight in manifest.weights.items()}
        for digest, entry in manifest.engines.items():
            # the engine keeps its own names; its entry maps them to the bundle's names
            own = {name: name for name in other} | dict(entry.weights)
            called = {name: other.get(key, key) for name, key in own.items()}
            made = replace(entry, weights=called)
            if engines.setdefault(digest, made) != made:
                raise _join_error("two parts are the same engine with different weights", where)
    return weights, engines


def _part_lanes(part: Part, on_cpu: Mapping[int, str]) -> list[Lane]:
    """Returns a part's lanes, the lane with the most frames first."""
    if isinstance(part, Bundle):
        return sorted(part.manifest.lanes, key=lambda lane: -lane.share)
    engine = on_cpu[id(part)]
    return [Lane(1.0, (SegmentEntry(0, CPU, engine, part.inputs, part.outputs, (part.name,)),))]


def _lanes(ways: Sequence[Sequence[Lane]]) -> tuple[Lane, ...]:
    """Returns lanes through all parts that preserve the shares of each part's lanes.

    The first lane uses the first lane of each part, and has the most frames.
    """
    # Cut the frames at every border between two lanes of any part: within such a piece each part
    # uses a single lane, found at the middle of the piece
    ends = {1.0}
    for lanes in ways:
        ends |= {
            round(sum(lane.share for lane in lanes[:n]), _DIGITS) for n in range(1, len(lanes))
        }
    made, start = [], 0.0
    for end in sorted(ends):
        segments = [
            segment for lanes in ways for segment in _lane_at(lanes, (start + end) / 2).segments
        ]
        numbered = tuple(replace(segment, index=number) for number, segment in enumerate(segments))
        made.append(Lane(end - start, numbered))
        start = end
    return tuple(made)


def _lane_at(lanes: Sequence[Lane], share: float) -> Lane:
    """Returns the lane at which the cumulated shares reach ``share``."""
    end = 0.0
    for lane in lanes:
        end += lane.share
        if share < end:
            return lane
    return lanes[-1]


def _placement(parts: Sequence[Part]) -> PlacementRecord:
    layers: list[tuple[str, str, str, int]] = []
    loadables: list[PlacedLoadable] = []
    segments = 0
    for part in parts:
        if isinstance(part, CpuPart):
            layers.append((part.name, CPU, "fp32", segments))
            segments += 1
            continue
        placed = part.manifest.placement
        layers += [(*row[:3], row[3] + segments) for row in placed.layers]
        loadables += placed.loadables
        segments += len(part.manifest.lanes[0].segments)
    return PlacementRecord(tuple(layers), tuple(loadables))


def _requires(parts: Sequence[Part], blobs: Blobs) -> Requires | None:
    """Returns the joint requirements of the parts: bytes are the sums over the parts and new
    blobs.
    """
    bundles = [part for part in parts if isinstance(part, Bundle)]
    on_cpu = [part for part in parts if isinstance(part, CpuPart)]
    every = [bundle.manifest.requires for bundle in bundles if bundle.manifest.requires is not None]
    if len(every) < len(bundles):
        return None
    of_parts = {digest for bundle in bundles for digest in bundle.blobs}
    loaded = sum(len(data) for part in on_cpu for data in (part.model, *part.files.values()))
    return replace(
        every[0],
        portable=all(own.portable for own in every),
        dla_cores=tuple(sorted({core for own in every for core in own.dla_cores})),
        cudla=any(own.cudla for own in every),
        disk_bytes=sum(own.disk_bytes for own in every)
        # the parts' own blobs are in their requirements already
        + sum(size for digest, size in blobs.sizes().items() if digest not in of_parts),
        memory_bytes=sum(own.memory_bytes for own in every) + loaded,
        cpu=any(not part.files for part in on_cpu),
    )


def _join_error(problem: str, where: str) -> BundleError:
    return BundleError(
        f"the parts cannot become one bundle: {problem}",
        code="bundle.invalid",
        where=where,
        hint="deploy the parts as they are: net.deploy(...)",
    )
