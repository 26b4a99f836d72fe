"""Where a bundle can be pushed to: a mirror, an OCI image layout, or a registry by oras."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundle._mirror import Pushed, push_mirror

if TYPE_CHECKING:
    from edgekit.bundle._types import Bundle

__all__ = ["Pushed", "push"]


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
        UsageError: The place cannot be written.
    """
    if destination.startswith(("oci://", "oci+http://")):
        from edgekit.bundle._oci import push_registry

        return push_registry(bundle, destination)
    if oci_layout:
        from edgekit.bundle._oci import push_layout

        folder, colon, tag = destination.rpartition(":")
        if not colon or "/" in tag:
            folder, tag = destination, "latest"
        return push_layout(bundle, Path(folder), tag)
    return push_mirror(bundle, Path(destination))
