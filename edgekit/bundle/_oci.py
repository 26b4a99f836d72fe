"""Bundles as OCI images: one image manifest whose layers are the bundle's own blobs.

Blobs have the same SHA-256 as in the bundle, so a registry keeps equal weights once and a board
asks for exactly what it lacks. Source: OCI image specification 1.1 (manifest.md "Guidelines for
Artifact Usage", image-layout.md).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundle._mirror import Pushed, everything, put, stripped
from edgekit.bundle._types import blob_view
from edgekit.errors import BundleError

if TYPE_CHECKING:
    from edgekit.bundle._types import Blob, Bundle

__all__ = ["CONFIG_TYPE", "image_manifest", "image_parts", "push_layout"]

CONFIG_TYPE = "application/vnd.edgekit.bundle.config.v1+json"
_BLOB_TYPE = "application/vnd.edgekit.blob.v1"
_CONFIG = b"{}"
_INDEX = "application/vnd.oci.image.index.v1+json"
_REF = "org.opencontainers.image.ref.name"


def image_parts(bundle: Bundle) -> tuple[dict[str, int], dict[str, Blob]]:
    """Returns bytes by digest of all that the image consists of, and what the bundle has of it."""
    sizes, have = everything(bundle)
    small = [_CONFIG, bundle.manifest_bytes]
    if bundle.signature is not None:
        small.append(bundle.signature)
    own: dict[str, Blob] = {hashlib.sha256(data).hexdigest(): data for data in small}
    return {**sizes, **{d: len(blob_view(data)) for d, data in own.items()}}, {**have, **own}


def image_manifest(bundle: Bundle) -> bytes:
    """Returns the image manifest, the same bytes for the same bundle.

    Raises:
        BundleError: "bundle.too-many-blobs"; registries do not take so long a manifest.
    """
    from edgekit_device._source_web import IMAGE, MANIFEST_TYPE, MAX_IMAGE, SIGNATURE_TYPE

    layers = [_descriptor(MANIFEST_TYPE, bundle.manifest_bytes)]
    if bundle.signature is not None:
        layers.append(_descriptor(SIGNATURE_TYPE, bundle.signature))
    sizes, _ = everything(bundle)
    layers += [
        {"mediaType": _BLOB_TYPE, "digest": f"sha256:{digest}", "size": sizes[digest]}
        for digest in sorted(sizes)
    ]
    document = {
        "schemaVersion": 2,
        "mediaType": IMAGE,
        # registries from before version 1.1 know an artifact by its configuration's type
        "config": _descriptor(CONFIG_TYPE, _CONFIG),
        "layers": layers,
        "annotations": {"org.opencontainers.image.title": bundle.name},
    }
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    if len(data) > MAX_IMAGE:
        raise BundleError(
            f"its image manifest has {len(data):,} bytes, registries take {MAX_IMAGE:,}",
            code="bundle.too-many-blobs",
            where=bundle.name,
            hint="use a mirror: edgekit bundle push BUNDLE FOLDER",
        )
    return data


def push_layout(bundle: Bundle, folder: Path, tag: str) -> Pushed:
    """Writes a bundle into an OCI image layout, which oras, skopeo and crane copy to a registry.

    Args:
        bundle: With its signature.
        folder: The layout; made when it is not there, and other images in it stay.
        tag: The image's name in it.

    Raises:
        BundleError: "bundle.incomplete", "bundle.too-many-blobs", or "bundle.no-layout" when the
            folder holds something else.
        UsageError: "write.failed".
    """
    from edgekit_device._source_web import IMAGE

    index = _read_index(folder)
    data = image_manifest(bundle)
    sizes, have = image_parts(bundle)
    blobs = folder / "blobs" / "sha256"
    absent = [digest for digest in sizes if not (blobs / digest).is_file()]
    lacking = [digest for digest in absent if digest not in have]
    if lacking:
        raise stripped(len(lacking), str(folder))
    for digest in absent:
        put(blobs / digest, blob_view(have[digest]))
    entry = {**_descriptor(IMAGE, data), "annotations": {_REF: tag}}
    put(blobs / entry["digest"].removeprefix("sha256:"), memoryview(data))
    others = [e for e in index["manifests"] if (e.get("annotations") or {}).get(_REF) != tag]
    index["manifests"] = [*others, entry]
    put(folder / "oci-layout", memoryview(b'{"imageLayoutVersion": "1.0.0"}'))
    put(folder / "index.json", memoryview(json.dumps(index, indent=1).encode()))
    count = sum(sizes[digest] for digest in absent)
    return Pushed(f"{folder}:{tag}", bundle.digest, len(absent), count, len(sizes) - len(absent))


def _read_index(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "index.json").read_bytes())
        if isinstance(found.get("manifests"), list):
            return dict(found)
    except FileNotFoundError:
        if not folder.exists() or not any(folder.iterdir()):
            return {"schemaVersion": 2, "mediaType": _INDEX, "manifests": []}
    except (ValueError, AttributeError, OSError):
        pass
    raise BundleError(
        "this is no OCI image layout",
        code="bundle.no-layout",
        where=str(folder),
        hint="name a new folder",
    )


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}
