"""The values of this floor: a bundle, and a golden vector on its way into one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from edgekit.build import Weight

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Blob", "Bundle", "Golden", "Samples", "blob_view"]

Blob: TypeAlias = "bytes | memoryview | np.ndarray"


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
    """

    seed: int
    ranges: Mapping[str, tuple[float, float]]
    outputs: Mapping[str, np.ndarray]
    relative: float = 1e-5
    lane: int | None = None


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs that travel with a bundle, and what the FP32 network makes of them.

    Attributes:
        metric: "cosine", "snr_db" or "top1_agreement"; "top1_accuracy" with labels.
        source: Where the inputs are from, for people.
        synthetic: Whether they are made up, so that the figure tells of the engines alone.
        least: What the metric must reach on a board; None for no gate of the bundle's own.
        cases: Inputs and outputs by name, one pair an inference.
        labels: For each case the right classes, one for each of the batch; None for none.
    """

    metric: str
    source: str
    synthetic: bool
    least: float | None
    cases: Sequence[tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]]
    labels: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, eq=False)
class Bundle:
    """Everything a board needs; the manifest names every blob by SHA-256.

    Attributes:
        manifest: ``edgekit.bundle/1`` (docs/architecture.md).
        manifest_bytes: Its canonical bytes, which are what is signed.
        blobs: Engines and golden outputs by digest.
        weights: Weight values by digest; may be memory maps, and lack some in a bundle that was
            read from a stripped file.
        signature: OpenSSH's signature of ``manifest_bytes``, None while unsigned.
    """

    manifest: Mapping[str, Any]
    manifest_bytes: bytes
    blobs: Mapping[str, Blob]
    weights: Mapping[str, Blob]
    signature: bytes | None = None

    @property
    def name(self) -> str:
        """The bundle's, and so the app's name."""
        return str(self.manifest["name"])

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the manifest: the bundle's identity."""
        return hashlib.sha256(self.manifest_bytes).hexdigest()

    @property
    def weight_bytes(self) -> dict[str, int]:
        """Bytes by digest of every weight that the manifest names."""
        return {w["digest"]: w["bytes"] for w in self.manifest["weights"].values()}

    @property
    def stripped_bytes(self) -> int:
        """Bytes of the manifest, engines and golden outputs."""
        blobs = sum(blob["bytes"] for blob in self.manifest["blobs"].values())
        return len(self.manifest_bytes) + int(blobs)

    @property
    def full_bytes(self) -> int:
        """``stripped_bytes`` and the weights'."""
        return self.stripped_bytes + sum(self.weight_bytes.values())

    def weight_entries(self) -> dict[str, Weight]:
        """Returns what was stripped, by name, as the build floor's ``derive_weights`` reads it."""
        return {
            name: Weight(
                name=name,
                source=entry["source"],
                transform=entry["transform"],
                digest=entry["digest"],
                dtype=entry["dtype"],
                shape=tuple(entry["shape"]),
            )
            for name, entry in self.manifest["weights"].items()
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
