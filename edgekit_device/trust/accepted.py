"""The unsigned bundles that the operator accepted: ROOT/accepted.json, by digests of manifests.

Files in a release do not count for that: they come from the bundle's maker, or from anyone who
could write there.
"""

from __future__ import annotations

from typing import Container, Tuple

from edgekit_device.errors import map_os_errors
from edgekit_device.files import locked, write_durably
from edgekit_device.protocol.codec import array, choice, digest, document, dump, load, member
from edgekit_device.store.root import ACCEPTED, Root

_SCHEMA = "edgekit.accepted/1"


@document(frozen=True)
class AcceptedBundles:
    """ROOT/accepted.json: SHA-256 of manifests that were accepted without a trusted signature."""

    digests: Tuple[str, ...] = member(array(digest), default=())
    schema: str = member(choice(_SCHEMA), default=_SCHEMA)


def is_accepted(root: Root, manifest: str) -> bool:
    """Returns True if the manifest of this digest was accepted; raises DeviceError "root.*"."""
    return manifest in _read(root).digests


def accept(root: Root, manifest: str) -> None:
    """Records, durably, that the operator accepted the manifest of this digest."""
    with locked(root.folder / "accepted.lock"), map_os_errors(str(root.folder / ACCEPTED)):
        known = _read(root).digests
        if manifest not in known:
            _write(root, (*known, manifest))


def forget_others(root: Root, present: Container[str]) -> None:
    """Removes the digests without a release; the caller holds ROOT's lock exclusively."""
    known = _read(root).digests
    kept = tuple(digest for digest in known if digest in present)
    if kept != known:
        _write(root, kept)


def _read(root: Root) -> AcceptedBundles:
    # a damaged file counts as missing: bundles are refused until they are deployed again
    return load(AcceptedBundles, root.folder / ACCEPTED) or AcceptedBundles()


def _write(root: Root, digests: Tuple[str, ...]) -> None:
    write_durably(root.folder / ACCEPTED, dump(AcceptedBundles(digests)))
