"""Parts of a network become one bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.join import CpuPart, join
from edgekit.bundles.manifest import Bundle, Golden
from edgekit.errors import BundleError
from edgekit_device.protocol.manifest import (
    BlobEntry,
    EngineEntry,
    GoldenCase,
    IoEntry,
    Lane,
    Manifest,
    ModelSource,
    PlacementRecord,
    PluginEntry,
    Requires,
    SegmentEntry,
    TensorEntry,
    WeightEntry,
)

CALL = {"schema": "edgekit.export/1"}
MODEL = ModelSource("ab" * 32, "net.Net")


def tensor(name: str) -> TensorEntry:
    return TensorEntry(name, "float32", (1, 4), "LINEAR", (16, 4))


def part(
    reads: str,
    writes: str,
    weight: float,
    *,
    shares: Sequence[float] = (1.0,),
    backend: str = "reference",
    device: str = "GPU",
    board: str = "a",
) -> Bundle:
    """A bundle of one segment in each lane, whose engines lack the weight "w"."""
    value = np.full(4, weight, np.float32)
    digest = hashlib.sha256(value.tobytes()).hexdigest()
    engines = [f"{reads}{writes}{number}".encode() for number in range(len(shares))]
    names = [hashlib.sha256(data).hexdigest() for data in engines]
    core = int(device[3:]) if device.startswith("DLA") else None
    io = [IoEntry(name, "float32", (1, 4), "LINEAR", (16, 4), None) for name in (reads, writes)]
    about = EngineEntry("plan", "10.3.0.30", True, False, False, "any", core, (io[0],), (io[1],))
    manifest = Manifest(
        name=f"net-{reads}",
        backend=backend,
        inputs=(tensor(reads),),
        outputs=(tensor(writes),),
        lanes=tuple(
            Lane(share, (SegmentEntry(0, device, name, (reads,), (writes,), (f"to {writes}",)),))
            for share, name in zip(shares, names, strict=True)
        ),
        weights={"w": WeightEntry(digest, "float32", (4,), 16, "w", "none")},
        blobs={
            name: BlobEntry(len(data), "engine") for name, data in zip(names, engines, strict=True)
        },
        golden=(),
        without_golden=True,
        model=MODEL,
        fingerprint={"backend": backend, "module": board},
        engines=dict.fromkeys(names, about) if backend == "tensorrt" else {},
        placement=PlacementRecord(((f"to {writes}", device, "fp16", 0),), ()),
        requires=Requires(
            backend,
            "edgekit.device/1",
            None,
            (),
            False,
            () if core is None else (core,),
            False,
            100,
            50,
        ),
    )
    blobs = dict(zip(names, engines, strict=True))
    return Bundle(manifest, b"", blobs, {digest: value})


def joined(*parts: Any, reads: str = "x", writes: str = "y", **more: Any) -> Bundle:
    return join(
        parts,
        name="net",
        model=MODEL,
        inputs=[tensor(reads)],
        outputs=[tensor(writes)],
        call=CALL,
        **more,
    )


BETWEEN = CpuPart("head", b"an ONNX file", ("t",), ("u",))


def test_parts_run_in_order_with_the_cpus_between_them() -> None:
    last = part("u", "y", 1, device="DLA1")
    golden = Golden(7, {"x": (0.0, 1.0)}, {"y": np.zeros((1, 4), np.float32)})
    found = joined(part("x", "t", 1), BETWEEN, last, golden=[golden]).manifest
    (lane,) = found.lanes
    assert [(s.index, s.device, s.inputs, s.outputs) for s in lane.segments] == [
        (0, "GPU", ("x",), ("t",)),
        (1, "CPU", ("t",), ("u",)),
        (2, "DLA1", ("u",), ("y",)),
    ]
    assert found.schema == "edgekit.bundle/2"
    assert [row[3] for row in found.placement.layers] == [0, 1, 2]
    assert found.requires is not None
    assert (found.requires.cpu, found.requires.dla_cores) == (True, (1,))
    assert found.requires.memory_bytes == 100 + len(BETWEEN.model)
    assert found.blobs[found.call or ""].kind == "record"
    assert [type(case) for case in found.golden] == [GoldenCase]


def test_the_first_lane_takes_each_parts_first_and_all_keep_their_shares() -> None:
    first, last = part("x", "t", 1, shares=(0.25, 0.75)), part("u", "y", 1, shares=(0.6, 0.4))
    found = joined(first, BETWEEN, last).manifest.lanes
    engines = [(*first.blobs,)[1], (*first.blobs,)[0]], [*last.blobs]
    ways = [
        (engines[0].index(lane.segments[0].engine), engines[1].index(lane.segments[2].engine))
        for lane in found
    ]
    assert ways == [(0, 0), (0, 1), (1, 1)]
    assert [lane.share for lane in found] == pytest.approx([0.6, 0.15, 0.25])


def test_a_name_that_means_two_weights_becomes_two_or_is_refused() -> None:
    with pytest.raises(BundleError, match="different weights named 'w'"):
        joined(part("x", "t", 1), BETWEEN, part("u", "y", 2))
    parts = [part(*names, backend="tensorrt") for names in (("x", "t", 1), ("u", "y", 2))]
    found = joined(parts[0], BETWEEN, parts[1])
    assert set(found.manifest.weights) == {"w", "w@2"}
    engines = [found.manifest.engines[next(iter(one.blobs))] for one in parts]
    assert [dict(one.weights) for one in engines] == [{}, {"w": "w@2"}]
    assert len(found.weights) == 2


def test_parts_of_different_boards_are_no_network() -> None:
    with pytest.raises(BundleError, match="different boards"):
        joined(part("x", "t", 1), BETWEEN, part("u", "y", 1, board="b"))


def test_a_bundle_that_is_the_whole_network_keeps_what_it_has() -> None:
    alone = part("x", "y", 1)
    found = joined(alone).manifest
    assert found.name == "net-x"
    assert replace(found, schema="edgekit.bundle/1", call=None, digest="", blobs={}) == replace(
        alone.manifest, blobs={}
    )


def test_the_parts_plugins_are_the_networks() -> None:
    library = b"\x7fELF"
    digest = hashlib.sha256(library).hexdigest()
    mine = PluginEntry("MyOp", "1", "", digest, "libmine.so")
    theirs = PluginEntry("Theirs", "1", "", None)

    def with_plugins(bundle: Bundle, *plugins: PluginEntry) -> Bundle:
        blobs = {**bundle.manifest.blobs, digest: BlobEntry(len(library), "library")}
        manifest = replace(bundle.manifest, plugins=plugins, blobs=blobs)
        return replace(bundle, manifest=manifest, blobs={**bundle.blobs, digest: library})

    first = with_plugins(part("x", "t", 1), mine)
    found = joined(first, BETWEEN, with_plugins(part("u", "y", 1), mine, theirs))
    assert found.manifest.plugins == (mine, theirs)
    assert found.manifest.blobs[digest].kind == "library"
    assert found.blobs[digest] == library
