"""The values of a bundle and the parts of its manifest: blobs, golden vectors, segments, weights,
what a board must have, hold and be judged by, and the record of rewrites.
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
_DIGITS = 11  # of seconds since 1970, up to the year 5138


@dataclass(frozen=True, eq=False)
class Golden:
    """One golden vector: inputs by seed and range, outputs as the build gave them.

    Attributes:
        seed: Seed of the inputs (``golden_inputs``), at least 0.
        ranges: (low, high) by input name.
        outputs: What the unstripped build answers to these inputs, by output name.
        relative: Allowed max|a-b| / max|b| on the board.
        lane: The lane (plan variant) whose outputs they are; None: all lanes give the same. Lanes
            that use other devices round elsewhere: the GPU writes floats where a DLA writes INT8.
        shapes: Sizes of the inputs, of engines with profiles; empty for the variant's own.
    """

    seed: int
    ranges: Mapping[str, tuple[float, float]]
    outputs: Mapping[str, np.ndarray]
    relative: float = 1e-5
    lane: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class BundleSamples:
    """Inputs that travel with a bundle, and what the FP32 network makes of them.

    Attributes:
        metric: One of ``gate.METRICS``; "top1_accuracy" with labels.
        source: Where the inputs are from, for people.
        synthetic: Whether they are made up, so that the figure describes the engines alone.
        least: What the metric must reach on a board; None for no gate of the bundle's own.
        cases: Inputs and outputs by name, one pair an inference.
        labels: For each case the right classes, one for each of the batch; None for none.
        detection: Which objects are compared for the metric "boxes"; None for others.
        variants: For each case the number of the variant that it is of; empty for the first.
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
    """Everything a board needs; the manifest names every blob by SHA-256.

    Attributes:
        manifest: What the board's reader makes of ``manifest_bytes`` (docs/manifest.md).
        manifest_bytes: Its canonical bytes, which are what is signed.
        blobs: Engines and golden outputs by digest.
        weights: Weight values by digest; may be memory maps, and lack some in a bundle that was
            read from a stripped file.
        signature: OpenSSH's signature of ``manifest_bytes``, None while unsigned.
    """

    manifest: Manifest
    manifest_bytes: bytes
    blobs: Mapping[str, Blob]
    weights: Mapping[str, Blob]
    signature: bytes | None = None

    @property
    def name(self) -> str:
        """The bundle's, and so the app's name."""
        return self.manifest.name

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the manifest: the bundle's identity."""
        return self.manifest.digest

    @property
    def weight_bytes(self) -> dict[str, int]:
        """Bytes by digest of every weight that the manifest names."""
        return {w.digest: w.bytes for w in self.manifest.weights.values()}

    @property
    def stripped_bytes(self) -> int:
        """Bytes of the manifest, engines and golden outputs."""
        blobs = sum(blob.bytes for blob in self.manifest.blobs.values())
        return len(self.manifest_bytes) + blobs

    @property
    def full_bytes(self) -> int:
        """``stripped_bytes`` and the weights'."""
        return self.stripped_bytes + sum(self.weight_bytes.values())

    def weight_entries(self) -> dict[str, Weight]:
        """Returns what was stripped, by name, as ``reference.weights.derive_weights`` reads it."""
        return {
            name: Weight(name, one.source, one.transform, one.digest, one.dtype, one.shape)
            for name, one in self.manifest.weights.items()
        }

    def signed(self, signature: bytes) -> Bundle:
        """Returns the bundle with a signature."""
        return replace(self, signature=signature)


def blob_view(blob: Blob) -> memoryview:
    """Returns a blob's bytes, in C order, without a copy where it is contiguous."""
    if isinstance(blob, (bytes, memoryview)):
        return memoryview(blob)
    import numpy as np

    return np.ascontiguousarray(blob).reshape(-1).view(np.uint8).data


def canonical(document: Mapping[str, object]) -> bytes:
    """Returns a document as canonical JSON: keys sorted, no spaces, one newline at the end."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8") + b"\n"


def rewrite_record(bundle: Bundle) -> Any:
    """Returns the ``edgekit.rewrites/1`` document of a bundle; None when it has none.

    Raises:
        BundleError: "bundle.invalid"; the blob is not JSON.
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
        strides: Bytes by dimension; those of a dense C-order array when None.
    """
    if strides is None:
        import numpy as np

        step, found = np.dtype(tensor.dtype).itemsize, []
        for size in reversed(tensor.shape):
            found.append(step)
            step *= size
        strides = found[::-1]
    return TensorEntry(tensor.name, tensor.dtype, tuple(tensor.shape), layout, tuple(strides))


#: Of the generated inputs of golden vectors.
GOLDEN_SEED = 7


def golden_ranges(inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Returns (low, high) by input name: what a calibration input spans."""
    return {name: (float(value.min()), float(value.max())) for name, value in inputs.items()}


def golden_inputs(
    network: Network,
    seed: int,
    ranges: Mapping[str, tuple[float, float]],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, np.ndarray]:
    """Returns the inputs that a board generates for a golden vector of this seed and ranges.

    Args:
        network: Whose inputs they are.
        seed: The vector's.
        ranges: (low, high) by input.
        shapes: Other sizes of the inputs, of engines with profiles.
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
        BundleError: "bundle.invalid": a type that no bundle can hold.
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
    """Returns the manifest's "issued" of a bundle that is signed now; None for neither.

    Without it a bundle's bytes depend on no clock; SOURCE_DATE_EPOCH gives a fixed time here, too.
    """
    if counter is None and valid_until is None:
        return None
    until = None if valid_until is None else _end(valid_until)
    return Issued(_now().strftime(_FORM), counter, until)


def check_valid_until(day: str) -> None:
    """Refuses an end of validity that is past when the bundle is signed.

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
    return valid_until + ("" if "T" in valid_until else "T23:59:59Z")


class Blobs:
    """A bundle's blobs by digest, and what each is: the first that it was named as."""

    def __init__(self) -> None:
        self.values: dict[str, Blob] = {}
        self._kinds: dict[str, str] = {}

    def add(self, blob: Blob, kind: str, digest: str | None = None) -> str:
        """Takes a blob in and returns its digest."""
        if digest is None:
            digest = hashlib.sha256(blob_view(blob)).hexdigest()
        self.values.setdefault(digest, blob)
        self._kinds.setdefault(digest, kind)
        return digest

    def sizes(self) -> dict[str, int]:
        """Returns bytes by digest."""
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


def requires_of(
    artefacts: Artefacts, sizes: Mapping[str, int], weight_bytes: int, *, shared: bool = True
) -> Requires:
    """Returns the manifest's "requires".

    Args:
        artefacts: Engines, segments and the fingerprint of where they were built.
        sizes: Bytes of the bundle's blobs by digest, without weights.
        weight_bytes: Bytes of the weights.
        shared: Whether engines of one device share the memory that they need while they run.
    """
    entries = artefacts.entries.values()
    segments = [segment for _, lane in artefacts.lanes for segment in lane]
    loaded = weight_bytes + sum(sizes[digest] for digest in artefacts.engines)
    runs = [(segment.engine, segment.device) for segment in segments]
    contexts = context_bytes(runs, artefacts.entries, shared=shared)
    # a refit stores the whole plans next to the stripped ones
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
