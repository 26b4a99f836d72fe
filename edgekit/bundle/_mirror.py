"""Bundles on a mirror: plain files that any HTTP server can serve, found by digest."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._listed import counted
from edgekit.bundle._atomic import replacing
from edgekit.bundle._types import blob_view
from edgekit.errors import BundleError

if TYPE_CHECKING:
    from edgekit.bundle._types import Blob, Bundle

__all__ = ["Pushed", "everything", "push_mirror", "put", "stripped"]

_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class Pushed:
    """A bundle that lies somewhere for boards to take.

    Attributes:
        path: What a board is given behind the mirror's or registry's own address, or the whole
            address.
        digest: SHA-256 (hex) of the bundle's manifest.
        blobs: Blobs written now.
        bytes: Their bytes.
        reused: Blobs that were there.
    """

    path: str
    digest: str
    blobs: int
    bytes: int
    reused: int


def everything(bundle: Bundle) -> tuple[dict[str, int], dict[str, Blob]]:
    """Returns bytes by digest of all that a board needs, and what of it the bundle has."""
    blobs = {digest: int(blob["bytes"]) for digest, blob in bundle.manifest["blobs"].items()}
    return {**bundle.weight_bytes, **blobs}, {**bundle.weights, **bundle.blobs}


def stripped(lacking: int, where: str) -> BundleError:
    """Returns the error of a bundle whose weights are nowhere."""
    return BundleError(
        f"neither the bundle nor the mirror has {counted(lacking, 'weight')}",
        code="bundle.incomplete",
        where=where,
        hint="push the full bundle: edgekit bundle CONFIG --full FILE",
    )


def push_mirror(bundle: Bundle, folder: Path) -> Pushed:
    """Writes a bundle into a mirror's folder; what was there of others stays.

    Files appear whole: blobs first, then manifest and signature, then ``latest``. So a board that
    reads at the same time finds the old bundle or the new one.

    Args:
        bundle: With its signature; boards refuse one without.
        folder: The mirror; made when it is not there.

    Raises:
        BundleError: "bundle.incomplete"; weights are neither in the bundle nor on the mirror.
        UsageError: "write.failed".
    """
    sizes, have = everything(bundle)
    places = {digest: folder / "blobs" / digest[:2] / digest for digest in sizes}
    absent = [digest for digest, path in places.items() if _size(path) != sizes[digest]]
    lacking = [digest for digest in absent if digest not in have]
    if lacking:
        raise stripped(len(lacking), str(folder))
    for digest in absent:
        put(places[digest], blob_view(have[digest]))
    release = f"{bundle.name}/{bundle.digest}"
    put(folder / release / "manifest.json", memoryview(bundle.manifest_bytes))
    if bundle.signature is not None:
        put(folder / release / "manifest.json.sig", memoryview(bundle.signature))
    put(folder / bundle.name / "latest", memoryview(f"{bundle.digest}\n".encode()))
    count = sum(sizes[digest] for digest in absent)
    return Pushed(f"{release}/", bundle.digest, len(absent), count, len(sizes) - len(absent))


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def put(path: Path, data: memoryview) -> None:
    """Writes a file, whole or not at all, and durably."""
    with replacing(path) as temporary, temporary.open("xb") as file:
        for start in range(0, len(data), _CHUNK):
            file.write(data[start : start + _CHUNK])
        file.flush()
        os.fsync(file.fileno())
