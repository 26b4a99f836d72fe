"""Looks at a board's folder from outside: is what serves whole, and is anything left over?"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

__all__ = ["check", "leftovers"]


def check(root: str, app: str, allowed: list[str | None]) -> dict[str, Any]:
    """Loads what serves, runs its golden vectors, hashes all that it names.

    Args:
        root: The board's folder.
        app: The application.
        allowed: Digests of the manifests that may serve; None stands for nothing at all.

    Returns:
        "serving" (digest or None), "previous" likewise, "problems" (texts; empty when all is well).
    """
    problems: list[str] = []
    found: dict[str, Any] = {"problems": problems, "serving": None, "previous": None}
    folder = Path(root, "apps", app)
    for which in ("current", "previous"):
        link = folder / which
        if not link.is_symlink():
            continue
        if not link.is_dir():
            problems.append(f"{which} dangles: {os.readlink(link)}")
            continue
        digest = hashlib.sha256((link / "manifest.json").read_bytes()).hexdigest()
        found["serving" if which == "current" else which] = digest
        problems += [f"{which}: {text}" for text in _whole(link.resolve())]
    if found["serving"] not in allowed:
        problems.append(f"{found['serving']} serves, none of {allowed}")
    return found


def _whole(release: Path) -> list[str]:
    """Whether a release loads with every byte hashed and answers its golden vectors."""
    from edgekit_device.errors import DeviceError
    from edgekit_device.release.releases import check_release
    from edgekit_device.runtime.golden import self_test
    from edgekit_device.runtime.model import load
    from edgekit_device.store.root import Root
    from edgekit_device.trust.bundle import check_blobs

    try:
        checked = check_release(Root(release.parents[3]), release)
        check_blobs(checked, checked.manifest.sizes())
        model = load(release, verify="full", threads=1)
        result = self_test(model, checked)
    except DeviceError as error:
        return [f"{error.code}: {error.message} ({error.where})"]
    return [] if result.ok else ["the golden vectors are off"]


def leftovers(root: Path) -> list[str]:
    """Unfinished files: temporary names, working folders, partial blobs, offers."""
    found = []
    for path in root.rglob("*"):
        where = path.relative_to(root)
        unfinished = where.parts[0] in ("tmp", "partial", "incoming") and len(where.parts) > 1
        if unfinished or path.name.startswith(".") or path.name.endswith(".tmp"):
            found.append(str(where))
    return sorted(found)
