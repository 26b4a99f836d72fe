"""Builds of several shapes in a bundle: a weight's name has the same value in all builds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from edgekit.network.protos import rename_reads
from edgekit.reference.artefacts import Artefacts, EngineSegment, Weight


def in_one_bundle(builds: Sequence[Artefacts]) -> list[Artefacts]:
    """Returns builds in which equal weight names have equal values.

    Weights of the same value are shared. A weight whose value differs from an earlier build is
    prefixed with its build's number, also in ONNX engines; a TensorRT engine keeps its own name,
    and its entry maps it to the bundle's weight.
    """
    known: dict[str, Weight] = {}
    found = []
    for number, build in enumerate(builds):
        names = {
            name: f"{number}/{name}"
            for name, weight in build.weights.items()
            if name in known and known[name].digest != weight.digest
        }
        made = _rename_tensors(build, names) if names else build
        known.update(made.weights)
        found.append(made)
    return found


def together(builds: Sequence[Artefacts]) -> Artefacts:
    """Returns the union of several builds, with all lanes; weights are those of a bundle."""
    first = builds[0]
    return replace(
        first,
        lanes=tuple(lane for build in builds for lane in build.lanes),
        engines={digest: data for build in builds for digest, data in build.engines.items()},
        weights={name: weight for build in builds for name, weight in build.weights.items()},
        values={digest: value for build in builds for digest, value in build.values.items()},
        entries={digest: entry for build in builds for digest, entry in build.entries.items()},
        notes=tuple(dict.fromkeys(note for build in builds for note in build.notes)),
        plugins=tuple(dict.fromkeys(plugin for build in builds for plugin in build.plugins)),
        libraries={digest: data for build in builds for digest, data in build.libraries.items()},
    )


def _rename_tensors(build: Artefacts, names: Mapping[str, str]) -> Artefacts:
    """Returns a build with renamed weights."""
    weights = {}
    for name, weight in build.weights.items():
        own = names.get(name, name)
        weights[own] = replace(weight, name=own)
    if build.entries:
        entries = {
            digest: replace(
                entry,
                weights={
                    **{name: names[name] for name in names if name not in entry.weights},
                    **{name: names.get(own, own) for name, own in entry.weights.items()},
                },
            )
            if entry.stripped or entry.weights
            else entry
            for digest, entry in build.entries.items()
        }
        return replace(build, weights=weights, entries=entries)
    engines, digests = {}, {}
    for digest, data in build.engines.items():
        changed = _with_names(data, names)
        digests[digest] = hashlib.sha256(changed).hexdigest()
        engines[digests[digest]] = changed

    def segment(old: EngineSegment) -> EngineSegment:
        return replace(old, engine=digests[old.engine])

    lanes = tuple((share, tuple(map(segment, segments))) for share, segments in build.lanes)
    return replace(build, weights=weights, engines=engines, lanes=lanes)


def _with_names(engine: bytes, names: Mapping[str, str]) -> bytes:
    """Returns an ONNX engine with renamed stripped weights."""
    proto = onnx.ModelProto.FromString(engine)
    own = {
        tensor.name: names[tensor.name]
        for tensor in proto.graph.initializer
        if tensor.name in names
    }
    if not own:
        return engine
    for tensor in proto.graph.initializer:
        tensor.name = own.get(tensor.name, tensor.name)
    for node in proto.graph.node:
        rename_reads(node, own)
    # the engine's digest is that of its bytes, so equal engines need equal bytes
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
