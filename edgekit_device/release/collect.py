"""Removes what is no longer needed: old releases, and blobs that no release names."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import List, Optional, Set, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import LOCK_WAIT_S, fsync_folder, locked, remove_unfinished, workspace
from edgekit_device.jobs.job import LIVE, all_jobs, forget_outdated, needed_blobs
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, document, long_text, member, records, text
from edgekit_device.protocol.manifest import Manifest, parse
from edgekit_device.release.journal import (
    TakenBack,
    read_journal,
    references,
    remember_taken_back,
    stamp,
    standing,
)
from edgekit_device.release.offer import incoming
from edgekit_device.store.partial import partials
from edgekit_device.store.root import App, Root, no_such_app
from edgekit_device.trust.accepted import forget_others
from edgekit_device.trust.bundle import MANIFEST

# file systems and clocks differ by so much without anybody having set one
_SLACK_S = 60.0


@document(frozen=True)
class DamagedRelease:
    """A release whose list of blobs cannot be read.

    Attributes:
        release: APP/RELEASE.
        reason: What is wrong with its manifest.
        hint: How it is removed.
    """

    release: str = member(text())
    reason: str = member(long_text)
    hint: str = member(text())


@document(frozen=True)
class Collected:
    """The answer of ``gc``.

    Attributes:
        removed_releases: Releases that were beyond the newest, which stay.
        removed_blobs: How many blobs went.
        freed_bytes: The bytes of those, and of parts of blobs that nobody waits for.
        damaged_releases: As long as there is one, no blob goes.
    """

    removed_releases: Tuple[str, ...] = member(array(text()))
    removed_blobs: int = member(fields.count)
    freed_bytes: int = member(fields.count)
    damaged_releases: Tuple[DamagedRelease, ...] = member(records(DamagedRelease))


def remove(
    root: Root, app: App, release: Optional[str] = None, reason: Optional[str] = None
) -> List[str]:
    """Removes one release that is not in use, or the whole app; returns the ids.

    What was taken back of the app stays taken back.

    Args:
        root: The installation.
        app: The app.
        release: One release; None for the whole app.
        reason: With the whole app: what serves is taken back by that, and why.

    Raises:
        DeviceError: "release.in-use", "release.unknown" or "app.unknown".
    """
    if not app.folder.is_dir():
        raise no_such_app(app)
    if release is None:
        return _remove_app(root, app, reason)
    with workspace(root.folder) as work, app.lock(), map_os_errors(str(app.folder)):
        folder = app.release(release)
        if release == app.link("current"):
            raise DeviceError(
                "the release is in use",
                code="release.in-use",
                where="{}/{}".format(app.name, release),
                hint="switch to another release first, or remove the whole app",
            )
        _drop(app, folder, work)
        return [release]


def _remove_app(root: Root, app: App, reason: Optional[str]) -> List[str]:
    found = standing(app)
    current = app.link("current")
    if reason is not None and current is not None:
        found[current.partition("-")[2]] = TakenBack(current, stamp(), reason)
    recorded = False
    with contextlib.suppress(DeviceError):
        remember_taken_back(root, app.name, found)
        recorded = True
    with workspace(root.folder) as work, app.lock(), map_os_errors(str(app.folder)):
        names = app.releases()
        # one rename takes the app away whole; the workspace's end deletes it
        app.folder.rename(work / "app")
        fsync_folder(app.folder.parent)
    if not recorded:
        remember_taken_back(
            root, app.name, found
        )  # removing the app has freed space on a full disk
    _forget_jobs(root)  # no deployment of it collects them any more
    return names


def collect(
    root: Root,
    *,
    app: Optional[App] = None,
    keep: Optional[int] = None,
    grace_s: float = 3600.0,
    wait_s: float = LOCK_WAIT_S,
) -> Collected:
    """Prunes releases beyond the newest ``keep`` (None: no limit), then unnamed blobs.

    Current and previous releases always stay, and so does every blob that any release of any app
    names, and every blob younger than ``grace_s`` seconds: it may belong to a bundle on its way.
    What a deployment that has not ended names stays, and what manifests on offer name. Offers that
    nobody deploys go after the grace, and parts of blobs that nobody waits for.
    Where blobs arrive all the time it gives up after ``wait_s``.
    Jobs that ended long ago go too, all but the newest; blobs of the others stay.
    While a release is there whose manifest is damaged no blob goes, and ``damaged_releases`` of
    the answer names it: it goes when it is beyond ``keep``, or by ``remove``.
    """
    removed: List[str] = []
    with root.lock(shared=False, wait_s=wait_s), workspace(root.folder) as work:
        for each in root.apps() if app is None else [app]:
            if keep is not None and each.folder.is_dir():
                removed += _prune(each, max(keep, 1), work)
        with map_os_errors(str(root.folder)):
            _forget_jobs(root, grace_s)
            _tidy(root)
            now = time.time()
            _forget_offers(root, now - grace_s, now, work)
            damaged = _damaged(root)
            # what such a release needs may be any blob, so all of them stay until it is removed
            count, freed = (0, 0) if damaged else _sweep(root, now - grace_s, now)
            if not damaged:
                forget_others(root, {_manifest_of(*one).digest for one in _releases(root)})
            dropped = _drop_parts(root, now - grace_s, now)
    return Collected(tuple(removed), count, freed + dropped, tuple(damaged))


def _prune(app: App, keep: int, work: Path) -> List[str]:
    with app.lock(), map_os_errors(str(app.folder)):
        names = app.releases()
        used = {app.link("current"), app.link("previous"), *references(app)}
        old = [name for name in names[: max(0, len(names) - keep)] if name not in used]
        for name in old:
            _drop(app, app.releases_folder / name, work)
        return old


def _drop(app: App, folder: Path, work: Path) -> None:
    if folder.name == app.link("previous"):
        (app.folder / "previous").unlink()
    # renamed away first, so that no reader meets half a release
    folder.rename(work / "{}-{}".format(app.name, folder.name))
    fsync_folder(app.releases_folder)


def _forget_jobs(root: Root, grace_s: float = 0.0) -> None:
    if (root.folder / "jobs").is_dir():
        with locked(root.folder / "jobs" / "lock"):
            forget_outdated(root, grace_s)


def _tidy(root: Root) -> None:
    """Removes half files of processes that died where no other writer comes after them."""
    folders = [job.folder for job in all_jobs(root)]
    for app in root.apps():
        folders += [app.folder, *(app.releases_folder / name for name in app.releases())]
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):  # what runs may go meanwhile
            remove_unfinished(folder)


def _forget_offers(root: Root, horizon: float, now: float, work: Path) -> None:
    """Manifests that were offered and never deployed; not those that a deployment is about."""
    wanted = set()
    for app in root.apps():
        journal = read_journal(app)
        if journal is not None and journal.live:
            wanted.add(journal.facts.digest)
    for job in all_jobs(root):
        if job.read().state in LIVE:
            request = job.request()
            wanted.add("" if request is None else str(request.request.get("digest")))
    for folder in incoming(root):
        if folder.name not in wanted and _is_old(folder, horizon, now):
            folder.rename(work / ("offer-" + folder.name))
            fsync_folder(folder.parent)


def _drop_parts(root: Root, horizon: float, now: float) -> int:
    """Removes what arrived of blobs that no offered manifest waits for; returns the bytes."""
    awaited: Set[str] = set()
    for folder in incoming(root):
        with contextlib.suppress(DeviceError, OSError):
            awaited.update(parse((folder / MANIFEST).read_bytes()).sizes())
    freed = 0
    for digest, size in partials(root.folder):
        path = root.folder / "partial" / digest
        if digest not in awaited and _is_old(path, horizon, now):
            path.unlink()
            freed += size
    return freed


def _sweep(root: Root, horizon: float, now: float) -> Tuple[int, int]:
    named = _named_blobs(root) | needed_blobs(root)
    count = freed = 0
    for path in root.store.blobs():
        if path.name not in named and _is_old(path, horizon, now):
            size = path.stat().st_size
            path.unlink()
            count, freed = count + 1, freed + size
    return count, freed


def _is_old(path: Path, horizon: float, now: float) -> bool:
    """Whether the grace is over; what a clock that jumped back left in the future begins anew."""
    changed = path.stat().st_mtime
    if changed > now + _SLACK_S:
        os.utime(str(path), (now, now))
        return False
    return changed <= horizon


def _damaged(root: Root) -> List[DamagedRelease]:
    """Releases whose list of blobs cannot be read."""
    found = []
    for app, name in _releases(root):
        try:
            _manifest_of(app, name)
        except DeviceError as error:
            command = "edgekit remove --app {} --release {}".format(app.name, name)
            in_use = name == app.link("current")
            found.append(
                DamagedRelease(
                    release="{}/{}".format(app.name, name),
                    reason=error.message,
                    hint=("deploy another one, then: " if in_use else "") + command,
                )
            )
    return found


def _releases(root: Root) -> List[Tuple[App, str]]:
    return [(app, name) for app in root.apps() for name in app.releases()]


def _manifest_of(app: App, name: str) -> Manifest:
    """The manifest that the release was made of; signatures are not verified again.

    Raises:
        DeviceError: It cannot be read, or is another one now.
    """
    path = app.releases_folder / name / MANIFEST
    with map_os_errors(str(path)):
        data = path.read_bytes()
    # a flipped bit may leave a good manifest that names a blob that does not exist
    if not name.endswith("-" + hashlib.sha256(data).hexdigest()[:12]):
        raise DeviceError(
            "manifest.json is not the one the release was made from",
            code="release.damaged",
            where="{}/{}".format(app.name, name),
        )
    return parse(data)


def _named_blobs(root: Root) -> Set[str]:
    """Digests that releases name, and manifests on offer."""
    named: Set[str] = set()
    for one in _releases(root):
        named.update(_manifest_of(*one).sizes())
    for folder in incoming(root):
        # one that cannot be read can become no release either
        with contextlib.suppress(DeviceError, OSError):
            named.update(parse((folder / MANIFEST).read_bytes()).sizes())
    return named
