"""The values of a bundle and the parts of its manifest: blobs, golden vectors, segments, weights, a
board's requirements, samples, and the record of rewrites.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from edgekit.errors import BundleError, UsageError
from edgekit.knowledge import data_folder, read_facts
from edgekit.reference.artefacts import Artefacts, Weight
from edgekit_device.protocol.codec import document
from edgekit_device.protocol.detection import Options
from edgekit_device.protocol.fields import dla_core
from edgekit_device.protocol.manifest import (
    WEIGHT_DTYPES,
    BlobEntry,
    GoldenCase,
    GoldenOutput,
    Issued,
    Manifest,
    Range,
    RequiredRuntime,
    Requires,
    SampleCase,
    Samples,
    TensorEntry,
    Tolerance,
    WeightEntry,
)
from edgekit_device.protocol.memory import context_bytes

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network.model import Network, Tensor


Blob: TypeAlias = "bytes | memoryview | np.ndarray"
#: Schema of the ``hello`` of the loader that reads such manifests.
_LOADER = "edgekit.device/1"
_BOARD = ("module", "l4t", "tensorrt")
_FORM = "%Y-%m-%dT%H:%M:%SZ"
_DIGITS = 11  # digits of seconds since 1970, up to the year 5138
#: Seed of the generated inputs of golden vectors.
GOLDEN_SEED = 7


@dataclass(frozen=True, eq=False)
class Golden:
    """A golden vector: inputs by seed and range, and the build's outputs.

    Attributes:
        seed: Seed of the inputs (``golden_inputs``), at least 0.
        ranges: (low, high) by input name.
        outputs: The unstripped build's outputs for these inputs, by name.
        relative: Allowed max|a-b| / max|b| on the board.
        lane: The lane (plan variant) of the outputs; None: the same for all lanes. Lanes on other
            devices round differently: the GPU writes floats if a DLA writes INT8.
        shapes: Sizes of the inputs for engines with profiles; empty for the variant's own sizes.
    """

    seed: int
    ranges: Mapping[str, tuple[float, float]]
    outputs: Mapping[str, np.ndarray]
    relative: float = 1e-5
    lane: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class BundleSamples:
    """Inputs in a bundle, with the FP32 network's outputs.

    Attributes:
        metric: A metric from ``gate.METRICS``; "top1_accuracy" with labels.
        source: Source of the inputs, for display.
        synthetic: True if they are generated, so that the figure only describes the engines.
        least: Least value of the metric on a board; None if the bundle has no gate.
        cases: Inputs and outputs by name, a pair for each inference.
        labels: The correct classes for each case and element of the batch; None without labels.
        detection: Compared objects for the metric "boxes"; None for other metrics.
        variants: Index of each case's variant; empty if all are of the first.
    """

    metric: str
    source: str
    synthetic: bool
    least: float | None
    cases: Sequence[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]
    labels: Sequence[Sequence[int]] | None = None
    detection: Options | None = None
    variants: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle: all files for a board; the manifest names every blob by SHA-256.

    Attributes:
        manifest: ``manifest_bytes``, parsed by the board's reader (docs/manifest.md).
        manifest_bytes: Its canonical bytes, which are signed.
        blobs: Engines and golden outputs by digest.
        weights: Weight values by digest; may be memory maps, and incomplete in a bundle from a
            stripped file.
        signature: OpenSSH's signature of ``manifest_bytes``, None while unsigned.
    """

    manifest: Manifest
    manifest_bytes: bytes
    blobs: Mapping[str, Blob]
    weights: Mapping[str, Blob]
    signature: bytes | None = None

    @property
    def name(self) -> str:
        """The name of the bundle and the application."""
        return self.manifest.name

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the manifest: the bundle's identity."""
        return self.manifest.digest

    @property
    def weight_bytes(self) -> dict[str, int]:
        """Size in bytes of every weight in the manifest, by digest."""
        return {w.digest: w.bytes for w in self.manifest.weights.values()}

    @property
    def stripped_bytes(self) -> int:
        """Size of the manifest, engines and golden outputs in bytes."""
        blobs = sum(blob.bytes for blob in self.manifest.blobs.values())
        return len(self.manifest_bytes) + blobs

    @property
    def full_bytes(self) -> int:
        """``stripped_bytes`` and the weights'."""
        return self.stripped_bytes + sum(self.weight_bytes.values())

    def weight_entries(self) -> dict[str, Weight]:
        """Returns the stripped weights by name, in the form of
        ``reference.weights.derive_weights``.
        """
        return {
            name: Weight(
                name, weight.source, weight.transform, weight.digest, weight.dtype, weight.shape
            )
            for name, weight in self.manifest.weights.items()
        }

    def signed(self, signature: bytes) -> Bundle:
        """Returns the bundle with a signature."""
        return replace(self, signature=signature)


def blob_view(blob: Blob) -> memoryview:
    """Returns a blob's bytes in C order, without a copy if it is contiguous."""
    if isinstance(blob, (bytes, memoryview)):
        return memoryview(blob)
    import numpy as np

    return np.ascontiguousarray(blob).reshape(-1).view(np.uint8).data


def canonical(document: Mapping[str, object]) -> bytes:
    """Returns a document as canonical JSON: keys sorted, no spaces, a newline at the end."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8") + b"\n"


def rewrite_record(bundle: Bundle) -> Any:
    """Returns the ``edgekit.rewrites/1`` document of a bundle; None if it has none.

    Raises:
        BundleError: "bundle.invalid": the blob is not JSON.
    """
    digest = bundle.manifest.rewrites
    if digest is None:
        return None
    try:
        return json.loads(bytes(blob_view(bundle.blobs[digest])))
    except (ValueError, RecursionError) as error:
        raise BundleError(
            "the record of rewrites is not JSON", code="bundle.invalid", where=bundle.name
        ) from error


def tensor_io(
    tensor: Tensor, layout: str = "LINEAR", strides: Sequence[int] | None = None
) -> TensorEntry:
    """Returns a manifest's input or output.

    Args:
        tensor: Name, shape and type.
        layout: TensorRT's format name.
        strides: Bytes by dimension; None: those of a dense C-order array.
    """
    if strides is None:
        import numpy as np

        step, found = np.dtype(tensor.dtype).itemsize, []
        for size in reversed(tensor.shape):
            found.append(step)
            step *= size
        strides = found[::-1]
    return TensorEntry(tensor.name, tensor.dtype, tuple(tensor.shape), layout, tuple(strides))


def golden_ranges(inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Returns the range (low, high) of calibration inputs by input name."""
    return {name: (float(value.min()), float(value.max())) for name, value in inputs.items()}


def golden_inputs(
    network: Network,
    seed: int,
    ranges: Mapping[str, tuple[float, float]],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, np.ndarray]:
    """Returns the inputs that a board generates for a golden vector of this seed and ranges.

    Args:
        network: The network of the inputs.
        seed: The vector's seed.
        ranges: (low, high) by input.
        shapes: Other sizes of the inputs, for engines with profiles.
    """
    from edgekit_device.runtime.golden import golden_inputs as generate

    entries = [
        TensorEntry(
            tensor.name, tensor.dtype, (shapes or {}).get(tensor.name, tensor.shape), "LINEAR", ()
        )
        for tensor in (network.tensors[name] for name in network.inputs)
    ]
    return generate(entries, seed, dict(ranges))


def golden_cases(
    golden: Sequence[Golden], outputs: Sequence[TensorEntry]
) -> tuple[tuple[GoldenCase, ...], dict[str, np.ndarray]]:
    """Returns the manifest's golden cases, and their outputs by digest."""
    cases, blobs = [], {}
    for case in golden:
        results = {}
        for tensor in outputs:
            value = case.outputs[tensor.name]
            digest = hashlib.sha256(blob_view(value)).hexdigest()
            blobs[digest] = value
            results[tensor.name] = GoldenOutput(digest, str(value.dtype), value.shape)
        ranges = {name: Range(float(low), float(high)) for name, (low, high) in case.ranges.items()}
        relative = Tolerance(float(case.relative))
        cases.append(GoldenCase(case.seed, ranges, results, relative, case.lane, dict(case.shapes)))
    return tuple(cases), blobs


def weight_fields(weights: Mapping[str, Weight]) -> dict[str, WeightEntry]:
    """Returns the manifest's weights by name.

    Raises:
        BundleError: "bundle.invalid": a type that bundles do not support.
    """
    import numpy as np

    return {
        name: WeightEntry(
            digest=weight.digest,
            dtype=weight.dtype,
            shape=tuple(weight.shape),
            bytes=int(np.prod(weight.shape, dtype=np.int64)) * _item_bytes(weight.dtype),
            source=weight.source,
            transform=weight.transform,
        )
        for name, weight in weights.items()
    }


def _item_bytes(dtype: str) -> int:
    if dtype not in WEIGHT_DTYPES:
        raise BundleError(
            f"weights of type {dtype} cannot be bundled",
            code="bundle.invalid",
            hint=f"use one of {', '.join(WEIGHT_DTYPES)}",
        )
    return WEIGHT_DTYPES[dtype]


def issued_entry(counter: int | None, valid_until: str | None) -> Issued | None:
    """Returns the manifest's "issued" of a bundle that is signed now; None if both are None.

    Without it a bundle's bytes do not depend on a clock; SOURCE_DATE_EPOCH sets a fixed time.
    """
    if counter is None and valid_until is None:
        return None
    until = None if valid_until is None else _end(valid_until)
    return Issued(_now().strftime(_FORM), counter, until)


def check_valid_until(day: str) -> None:
    """Refuses an end of validity in the past.

    Raises:
        UsageError: "bundle.expired".
    """
    if _end(day) < _now().strftime(_FORM):
        raise UsageError(
            f"valid until {day} is in the past: no board would install the bundle unattended",
            code="bundle.expired",
            where="deploy.release.valid_until",
            hint="give a later day or time, in UTC (--valid-until)",
        )


def _now() -> datetime:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isdecimal() and len(epoch) <= _DIGITS:
        return datetime.fromtimestamp(int(epoch), timezone.utc)
    return datetime.now(timezone.utc)


def _end(valid_until: str) -> str:
    # a day is valid to its last second
    return valid_until + ("" if "T" in valid_until else "T23:59:59Z")


class Blobs:
    """A bundle's blobs by digest, with their kinds (the first kind if added repeatedly)."""

    def __init__(self) -> None:
        self.values: dict[str, Blob] = {}
        self._kinds: dict[str, str] = {}

    def add(self, blob: Blob, kind: str, digest: str | None = None) -> str:
        """Adds a blob and returns its digest."""
        if digest is None:
            digest = hashlib.sha256(blob_view(blob)).hexdigest()
        self.values.setdefault(digest, blob)
        self._kinds.setdefault(digest, kind)
        return digest

    def sizes(self) -> dict[str, int]:
        """Returns the sizes in bytes by digest."""
        return {digest: len(blob_view(blob)) for digest, blob in self.values.items()}

    def entries(self) -> dict[str, BlobEntry]:
        """Returns the manifest's "blobs"."""
        return {
            digest: BlobEntry(size, self._kinds[digest]) for digest, size in self.sizes().items()
        }


def samples_entry(samples: BundleSamples, blobs: Blobs) -> Samples:
    """Returns the manifest's "samples"; its arrays become blobs."""

    def added(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        return {name: blobs.add(array, "sample") for name, array in arrays.items()}

    labels = samples.labels
    return Samples(
        metric=samples.metric,
        source=samples.source,
        synthetic=samples.synthetic,
        least=None if samples.least is None else float(samples.least),
        detection=samples.detection,
        cases=tuple(
            SampleCase(
                added(inputs),
                added(outputs),
                None if labels is None else tuple(labels[number]),
                samples.variants[number] if samples.variants else 0,
            )
            for number, (inputs, outputs) in enumerate(samples.cases)
        ),
    )


def make_requires(
    artefacts: Artefacts, sizes: Mapping[str, int], weight_bytes: int, *, shared: bool = True
) -> Requires:
    """Returns the manifest's "requires".

    Args:
        artefacts: Engines, segments and the fingerprint of the build machine.
        sizes: Size of the bundle's blobs in bytes by digest, without weights.
        weight_bytes: Size of the weights in bytes.
        shared: True if engines of the same device share their activation memory.
    """
    entries = artefacts.entries.values()
    segments = [segment for _, lane in artefacts.lanes for segment in lane]
    loaded = weight_bytes + sum(sizes[digest] for digest in artefacts.engines)
    runs = [(segment.engine, segment.device) for segment in segments]
    contexts = context_bytes(runs, artefacts.entries, shared=shared)
    # a refit stores the complete plans in addition to the stripped plans
    retained = loaded if any(entry.stripped for entry in entries) else 0
    emulated = artefacts.backend == "reference"
    used = (dla_core(segment.device) for segment in segments)
    cores = sorted({core for core in used if core is not None})
    board = {name: str(artefacts.fingerprint.get(name) or "") for name in _BOARD}
    return Requires(
        backend=artefacts.backend,
        loader=_LOADER,
        runtime=_runtime(artefacts.fingerprint),
        boards=() if emulated or not any(board.values()) else (board,),
        portable=bool(entries) and all(entry.portable for entry in entries),
        dla_cores=() if emulated else tuple(cores),
        cudla=any(entry.kind == "loadable" for entry in entries),
        disk_bytes=weight_bytes + sum(sizes.values()) + retained,
        memory_bytes=loaded + sum(contexts.values()),
    )


def _runtime(fingerprint: Mapping[str, str]) -> RequiredRuntime | None:
    name = fingerprint.get("runtime")
    if not name:
        return None
    known = _runtimes().get(name)
    return RequiredRuntime(name, known.oldest if known else "", known.below if known else "")


@document(frozen=True)
class _RuntimeRow:
    oldest: str
    below: str


@document(frozen=True)
class _RuntimesFile:
    """``targets/_runtimes.yaml``."""

    runtimes: Mapping[str, _RuntimeRow]


@cache
def _runtimes() -> Mapping[str, _RuntimeRow]:
    path = data_folder("targets") / "_runtimes.yaml"
    return read_facts(_RuntimesFile, path, "edgekit.runtimes/1").runtimes
