"""Pushes a bundle to where boards take it from: a mirror of plain files, found by digest, which
any HTTP server can serve; an OCI image layout; or a registry, by ``oras``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.bundles.manifest import Blob, Bundle, blob_view
from edgekit.errors import BundleError, EnvironmentLack, UsageError
from edgekit.files import write_atomically
from edgekit.text import counted

_CHUNK = 1 << 22
_IMAGE = "application/vnd.oci.image.manifest.v1+json"
_MANIFEST_TYPE = "application/vnd.edgekit.bundle.manifest.v1+json"
_SIGNATURE_TYPE = "application/vnd.edgekit.bundle.signature.v1"
# registries take image manifests of at least 4 MiB (OCI distribution specification, "Pushing
# Manifests"); larger ones are not portable
_MAX_IMAGE = 4 << 20
_CONFIG_TYPE = "application/vnd.edgekit.bundle.config.v1+json"
_BLOB_TYPE = "application/vnd.edgekit.blob.v1"
_CONFIG = b"{}"
_INDEX = "application/vnd.oci.image.index.v1+json"
_REF = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True)
class Pushed:
    """A bundle that lies somewhere for boards to take.

    Attributes:
        path: What follows the mirror's own address on a board, or the whole
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


def all_blobs(bundle: Bundle) -> tuple[dict[str, int], dict[str, Blob]]:
    """Returns bytes by digest of all that a board needs, and what of it the bundle has."""
    return bundle.manifest.sizes(), {**bundle.weights, **bundle.blobs}


def stripped(lacking: int, where: str) -> BundleError:
    """Returns the error of a bundle whose weights are nowhere."""
    return BundleError(
        f"the bundle and the mirror both lack {counted(lacking, 'weight')}",
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
        EnvironmentLack: "file.write".
    """
    sizes, have = all_blobs(bundle)
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
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        for start in range(0, len(data), _CHUNK):
            file.write(data[start : start + _CHUNK])
        file.flush()
        os.fsync(file.fileno())


# Bundles as OCI images: one image manifest whose layers are the bundle's own blobs.
#
# Blobs have the same SHA-256 as in the bundle, so a registry keeps equal weights once. Source: OCI
# image specification 1.1 (manifest.md "Guidelines for Artifact Usage", image-layout.md).


def _parts(bundle: Bundle) -> tuple[dict[str, int], dict[str, Blob]]:
    """Returns bytes by digest of all that the image consists of, and what the bundle has of it."""
    sizes, have = all_blobs(bundle)
    small = [_CONFIG, bundle.manifest_bytes]
    if bundle.signature is not None:
        small.append(bundle.signature)
    own: dict[str, Blob] = {hashlib.sha256(data).hexdigest(): data for data in small}
    return {**sizes, **{d: len(blob_view(data)) for d, data in own.items()}}, {**have, **own}


def _image_manifest(bundle: Bundle) -> bytes:
    """Returns the image manifest, the same bytes for the same bundle.

    Raises:
        BundleError: "bundle.too-many-blobs"; registries do not take so long a manifest.
    """
    layers = [_descriptor(_MANIFEST_TYPE, bundle.manifest_bytes)]
    if bundle.signature is not None:
        layers.append(_descriptor(_SIGNATURE_TYPE, bundle.signature))
    sizes, _ = all_blobs(bundle)
    layers += [
        {"mediaType": _BLOB_TYPE, "digest": f"sha256:{digest}", "size": sizes[digest]}
        for digest in sorted(sizes)
    ]
    document = {
        "schemaVersion": 2,
        "mediaType": _IMAGE,
        # registries from before version 1.1 know an artifact by its configuration's type
        "config": _descriptor(_CONFIG_TYPE, _CONFIG),
        "layers": layers,
        "annotations": {"org.opencontainers.image.title": bundle.name},
    }
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    if len(data) > _MAX_IMAGE:
        raise BundleError(
            f"its image manifest has {len(data):,} bytes (limit of registries {_MAX_IMAGE:,})",
            code="bundle.too-many-blobs",
            where=bundle.name,
            hint="push to a mirror instead: edgekit bundle push BUNDLE FOLDER",
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
        EnvironmentLack: "file.write".
    """
    index = _read_index(folder)
    data = _image_manifest(bundle)
    sizes, have = _parts(bundle)
    blobs = folder / "blobs" / "sha256"
    absent = [digest for digest in sizes if not (blobs / digest).is_file()]
    lacking = [digest for digest in absent if digest not in have]
    if lacking:
        raise stripped(len(lacking), str(folder))
    for digest in absent:
        put(blobs / digest, blob_view(have[digest]))
    entry = {**_descriptor(_IMAGE, data), "annotations": {_REF: tag}}
    put(blobs / entry["digest"].removeprefix("sha256:"), memoryview(data))
    others = [e for e in index["manifests"] if (e.get("annotations") or {}).get(_REF) != tag]
    index["manifests"] = [*others, entry]
    put(folder / "oci-layout", memoryview(b'{"imageLayoutVersion": "1.0.0"}'))
    put(folder / "index.json", memoryview(json.dumps(index, indent=1).encode()))
    count = sum(sizes[digest] for digest in absent)
    return Pushed(f"{folder}:{tag}", bundle.digest, len(absent), count, len(sizes) - len(absent))


def push_registry(bundle: Bundle, url: str) -> Pushed:
    """Copies a bundle into a registry with ``oras``, which has the logins and writes what is new.

    Args:
        bundle: With its weights and its signature.
        url: ``oci://REGISTRY/REPOSITORY:TAG``; ``oci+http://`` goes without TLS.

    Raises:
        EnvironmentLack: "bundle.no-oras", or "bundle.oras" with what it said.
        BundleError: As :func:`push_layout`.
    """
    program = shutil.which("oras")
    if program is None:
        raise EnvironmentLack(
            "oras is needed to push to a registry and is not installed",
            code="bundle.no-oras",
            where=url,
            hint="install it (https://oras.land/docs/installation), or write an image layout "
            "with --oci-layout",
        )
    scheme, _, image = url.partition("://")
    with tempfile.TemporaryDirectory(prefix="edgekit-push-") as folder:
        pushed = push_layout(bundle, Path(folder, "layout"), "bundle")
        plain = ["--to-plain-http"] if scheme == "oci+http" else []
        copy = ["cp", "--from-oci-layout", *plain, f"{folder}/layout:bundle", image]
        done = subprocess.run(
            [program, *copy], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["nothing"]
        raise EnvironmentLack(
            f"oras failed with exit status {done.returncode}: {said[-1][:300]}",
            code="bundle.oras",
            where=url,
            hint="log in with `oras login HOST`, and check the address: "
            "oci://REGISTRY/REPOSITORY:TAG",
        )
    return replace(pushed, path=url)


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
        "not an OCI image layout",
        code="bundle.no-layout",
        where=str(folder),
        hint="give a new folder",
    )


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def push(bundle: Bundle, destination: str, *, oci_layout: bool = False) -> Pushed:
    """Puts a bundle where boards can take it from.

    Args:
        bundle: With its weights and its signature.
        destination: A folder for any HTTP server to serve, ``FOLDER[:TAG]`` of an OCI image layout,
            or ``oci://REGISTRY/REPOSITORY:TAG``.
        oci_layout: The folder is an OCI image layout.

    Raises:
        BundleError: See ``push_mirror`` and ``push_layout``.
        EnvironmentLack: See ``push_registry``.
        UsageError: "bundle.destination", or the place cannot be written.
    """
    if destination.startswith(("oci://", "oci+http://")):
        return push_registry(bundle, destination)
    if "://" in destination:
        raise UsageError(
            "bundles are pushed to a folder or to oci://REGISTRY/REPOSITORY:TAG",
            code="bundle.destination",
            where=destination,
            hint="push to the folder that the HTTP server serves: edgekit bundle push FILE FOLDER",
        )
    if oci_layout:
        folder, colon, tag = destination.rpartition(":")
        if not colon or "/" in tag:
            folder, tag = destination, "latest"
        return push_layout(bundle, Path(folder), tag)
    return push_mirror(bundle, Path(destination))
