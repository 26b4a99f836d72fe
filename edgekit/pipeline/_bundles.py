"""A packed bundle in the cache: its manifest and signature, its blobs and weights by digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.pipeline._cache import Cache

__all__ = ["load_bundle", "store_bundle"]


def store_bundle(cache: Cache, bundle: Bundle) -> dict[str, Any]:
    """Puts a bundle's blobs into the cache and returns the record of the rest.

    Its weights are there: the build put them in.
    """
    for digest, blob in bundle.blobs.items():
        cache.put_blob(digest, blob)
    return {
        "manifest": bundle.manifest_bytes.decode("utf-8"),
        "blobs": sorted(bundle.blobs),
        "signature": (bundle.signature or b"").decode("ascii"),
    }


def load_bundle(cache: Cache, record: Mapping[str, Any]) -> Bundle | None:
    """Reads a bundle back; None where the cache lacks some of it."""
    from edgekit.bundle import Bundle

    manifest = json.loads(record["manifest"])
    entries = {entry["digest"]: entry for entry in manifest["weights"].values()}
    try:
        blobs = {digest: cache.blob(digest) for digest in record["blobs"]}
        weights = {
            digest: cache.array(digest, entry["dtype"], tuple(entry["shape"]))
            for digest, entry in entries.items()
        }
    except LookupError:
        return None
    return Bundle(
        manifest,
        record["manifest"].encode("utf-8"),
        blobs,
        weights,
        record["signature"].encode("ascii"),
    )
