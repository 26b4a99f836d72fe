"""Runs the golden cases on what was just built, as the loader will run it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ._build_strides import strides
from ._build_types import BuildRequest, EngineSpec, GoldenSpec, IoSpec
from ._bundle import BundleFiles
from ._golden import golden_inputs
from ._model import Model, open_model
from ._types import (
    BlobEntry,
    EngineEntry,
    IoEntry,
    Lane,
    Manifest,
    SegmentEntry,
    TensorEntry,
)
from ._verify import Checked

__all__ = ["run_golden"]


def run_golden(
    request: BuildRequest,
    engines: Mapping[str, Mapping[str, Any]],
    files: BundleFiles,
    fingerprint: Mapping[str, str],
    store: Callable[[bytes], str],
    model: Optional[Model] = None,
) -> List[Dict[str, Any]]:
    """Runs every golden case on its lane, or on each lane.

    Args:
        request: What was asked.
        engines: The result's entries by engine key.
        files: Gives the blobs.
        fingerprint: The board's.
        store: Keeps an output and returns its digest.
        model: What runs them; by default the loader's own.

    Returns:
        ``{"seed", "lane", "outputs": {name: {"digest", "dtype", "shape"}}}`` for each run; the
        lane is None where the request has one lane alone and names none.

    Raises:
        DeviceError: As the loader raises them.
    """
    checked = _checked_of(request, engines, files, fingerprint)
    if model is None:
        model = open_model(checked)
    found = []
    for case in request.golden:
        inputs = golden_inputs(checked.manifest.inputs, case.seed, case.ranges)
        for lane in _lanes(case, len(request.lanes)):
            outputs = model.run_lane(lane or 0, inputs)
            entry = {}
            for tensor in checked.manifest.outputs:
                array = outputs[tensor.name]
                entry[tensor.name] = {
                    "digest": store(array.tobytes()),
                    "dtype": str(array.dtype),
                    "shape": list(array.shape),
                }
            found.append({"seed": case.seed, "lane": lane, "outputs": entry})
    return found


def _lanes(case: GoldenSpec, count: int) -> Sequence[Optional[int]]:
    if case.lane is not None or count == 1:
        return [case.lane]
    return range(count)


def _checked_of(
    request: BuildRequest,
    engines: Mapping[str, Mapping[str, Any]],
    files: BundleFiles,
    fingerprint: Mapping[str, str],
) -> Checked:
    """The built engines, whole, as a bundle that this board has checked itself."""
    specs = {spec.key: spec for spec in request.engines}
    lanes = []
    blobs: Dict[str, BlobEntry] = {}
    entries: Dict[str, EngineEntry] = {}
    for lane in request.lanes:
        segments = []
        for index, key in enumerate(lane.engines):
            built, spec = engines[key], specs[key]
            digest = str(built["full"] or built["engine"])
            size = int(built["full_bytes"] or built["bytes"])
            blobs[digest] = BlobEntry(size, "engine")
            entries[digest] = _entry(spec, built)
            segments.append(
                SegmentEntry(
                    index,
                    spec.device,
                    digest,
                    tuple(io.name for io in spec.inputs),
                    tuple(io.name for io in spec.outputs),
                    tuple(layer.name for layer in spec.layers),
                )
            )
        lanes.append(Lane(lane.share, tuple(segments)))
    manifest = Manifest(
        digest=request.digest,
        name=request.name,
        backend="tensorrt",
        inputs=_tensors(request.inputs),
        outputs=_tensors(request.outputs),
        lanes=tuple(lanes),
        weights={},
        blobs=blobs,
        golden=(),
        document={"fingerprint": dict(fingerprint)},
        engines=entries,
    )
    # built here a moment ago: as good as signed
    return Checked(files, manifest, signer="this board")


def _entry(spec: EngineSpec, built: Mapping[str, Any]) -> EngineEntry:
    return EngineEntry(
        kind=spec.kind,
        tensorrt=str(built["tensorrt"]),
        stripped=False,
        version_compatible=bool(built["version_compatible"]),
        lean_embedded=bool(built["lean_embedded"]),
        refit="none",
        dla_core=spec.dla_core,
        inputs=_ios(built, "input"),
        outputs=_ios(built, "output"),
    )


def _ios(built: Mapping[str, Any], mode: str) -> "tuple[IoEntry, ...]":
    return tuple(
        IoEntry(
            io["name"], io["dtype"], tuple(io["shape"]), io["format"], tuple(io["strides"]),
            io["scale"],
        )
        for io in built["io"]
        if io["mode"] == mode
    )  # fmt: skip


def _tensors(tensors: Sequence[IoSpec]) -> "tuple[TensorEntry, ...]":
    return tuple(
        TensorEntry(io.name, io.dtype, io.shape, "LINEAR", strides(io.shape, io.dtype, "LINEAR"))
        for io in tensors
    )
