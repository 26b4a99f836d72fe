"""A board's root in this process: bundles are put on it as its commands would."""

from __future__ import annotations

from pathlib import Path

from edgekit.bundles.manifest import Bundle, blob_view
from edgekit_device.release.releases import stage
from edgekit_device.runtime.refit import refit_release
from edgekit_device.store.partial import BlobWriter
from edgekit_device.store.root import Root

__all__ = ["put"]


def put(root: Root, bundle: Bundle) -> Path:
    """Stores, stages and refits; returns the release's folder."""
    with BlobWriter(root) as writer:
        for digest, blob in {**bundle.weights, **bundle.blobs}.items():
            if not root.store.has(digest):
                writer.add(digest, bytes(blob_view(blob)))
    release = stage(root, bundle.manifest_bytes, bundle.signature).release
    app = root.app(bundle.name)
    folder = app.releases_folder / release
    refit_release(root, app, folder)
    return folder
