"""Removes old releases, and blobs that no release names."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import List, Optional, Set, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import LOCK_WAIT_S, fsync_folder, locked, remove_unfinished, workspace
from edgekit_device.jobs.job import LIVE, all_jobs, needed_blobs, remove_outdated
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, document, long_text, member, records, text
from edgekit_device.protocol.manifest import Manifest, parse
from edgekit_device.release.journal import (
    TakenBack,
    read_journal,
    references,
    remember_taken_back,
    taken_back_records,
    timestamp,
)
from edgekit_device.release.offer import incoming_folders
from edgekit_device.store.partial import partials
from edgekit_device.store.root import App, Root, no_such_app, release_digest, sha256
from edgekit_device.trust.accepted import forget_others
from edgekit_device.trust.bundle import MANIFEST

# tolerated difference between the clocks of a file system and of the board
_SLACK_S = 60.0


@document(frozen=True)
class DamagedRelease:
    """A release whose list of blobs cannot be read.

    Attributes:
        release: APP/RELEASE.
        reason: The fault of its manifest.
        hint: The command that removes it.
    """

    release: str = member(text())
    reason: str = member(long_text)
    hint: str = member(text())


@document(frozen=True)
class Collected:
    """The answer of ``gc``.

    Attributes:
        removed_releases: Removed releases.
        removed_blobs: Number of removed blobs.
        freed_bytes: Bytes of removed blobs and of abandoned parts of blobs.
        damaged_releases: Damaged releases; while one exists, no blob is removed.
    """

    removed_releases: Tuple[str, ...] = member(array(text()))
    removed_blobs: int = member(fields.count)
    freed_bytes: int = member(fields.count)
    damaged_releases: Tuple[DamagedRelease, ...] = member(records(DamagedRelease))


def remove(
    root: Root, app: App, release: Optional[str] = None, reason: Optional[str] = None
) -> List[str]:
    """Removes a release that is not in use, or the whole app; returns the removed ids.

    Releases that were taken back stay recorded as taken back.

    Args:
        root: The installation.
        app: The app.
        release: The release; None for the whole app.
        reason: For the whole app: records the current release as taken back, for this reason.

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
    found = taken_back_records(app)
    current = app.link("current")
    if reason is not None and current is not None:
        found[release_digest(current)] = TakenBack(current, timestamp(), reason)
    recorded = False
    with contextlib.suppress(DeviceError):
        # before the removal: after a crash between the two nothing is forgotten
        remember_taken_back(root, app.name, found)
        recorded = True
    with workspace(root.folder) as work, app.lock(), map_os_errors(str(app.folder)):
        names = app.releases()
        # one rename moves the whole app; leaving the workspace deletes it
        app.folder.rename(work / "app")
        fsync_folder(app.folder.parent)
    if not recorded:
        # removing the app has freed space on a full disk
        remember_taken_back(root, app.name, found)
    _forget_jobs(root)  # no later deployment of this app would collect its jobs
    return names


def collect(
    root: Root,
    *,
    app: Optional[App] = None,
    keep: Optional[int] = None,
    grace_s: float = 3600.0,
    wait_s: float = LOCK_WAIT_S,
) -> Collected:
    """Removes releases beyond the newest ``keep`` (None: no limit), then unreferenced blobs.

    It keeps the current and the previous release; blobs that a release of any app, an unfinished
    deployment or an offered manifest names; and blobs younger than ``grace_s`` seconds, which may
    belong to a bundle in transfer. After the grace it removes offers without a deployment and
    abandoned parts of blobs. It also removes old jobs that ended, except the newest. If blobs keep
    arriving, it gives up after ``wait_s``.

    While a release has a damaged manifest, no blob is removed, and ``damaged_releases`` names the
    release; it is removed if it is beyond ``keep``, or by ``remove``.
    """
    removed: List[str] = []
    # exclusive: no transfer or deployment may rely on a blob that is judged here
    with root.lock(shared=False, wait_s=wait_s), workspace(root.folder) as work:
        for each in root.apps() if app is None else [app]:
            if keep is not None and each.folder.is_dir():
                removed += _prune(each, max(keep, 1), work)
        with map_os_errors(str(root.folder)):
            _forget_jobs(root, grace_s)
            _tidy(root)
            now = time.time()
            _forget_offers(root, now - grace_s, now, work)
            damaged = _damaged_releases(root)
            # such a release may need any blob, so all blobs stay until it is removed
            count, freed = (0, 0) if damaged else _sweep(root, now - grace_s, now)
            if not damaged:
                forget_others(
                    root, {_read_manifest(*release).digest for release in _releases(root)}
                )
            dropped = _drop_parts(root, now - grace_s, now)
    return Collected(tuple(removed), count, freed + dropped, tuple(damaged))


def _prune(app: App, keep: int, work: Path) -> List[str]:
    with app.lock(), map_os_errors(str(app.folder)):
        names = app.releases()
        # inside the app's lock, so that a switch cannot make an old release current meanwhile
        used = {app.link("current"), app.link("previous"), *references(app)}
        old = [name for name in names[: max(0, len(names) - keep)] if name not in used]
        for name in old:
            _drop(app, app.releases_folder / name, work)
        return old


def _drop(app: App, folder: Path, work: Path) -> None:
    if folder.name == app.link("previous"):
        # before the release goes: a link must not lead nowhere
        (app.folder / "previous").unlink()
    # renamed first, so that no reader sees a half-deleted release
    folder.rename(work / "{}-{}".format(app.name, folder.name))
    fsync_folder(app.releases_folder)


def _forget_jobs(root: Root, grace_s: float = 0.0) -> None:
    if (root.folder / "jobs").is_dir():
        with locked(root.folder / "jobs" / "lock"):
            remove_outdated(root, grace_s)


def _tidy(root: Root) -> None:
    """Removes partial files of dead processes in places that no other writer tidies."""
    folders = [job.folder for job in all_jobs(root)]
    for app in root.apps():
        folders += [app.folder, *(app.releases_folder / name for name in app.releases())]
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):  # a running process may remove it meanwhile
            remove_unfinished(folder)


def _forget_offers(root: Root, horizon: float, now: float, work: Path) -> None:
    """Removes offered manifests without a deployment, after the grace."""
    wanted = set()
    for app in root.apps():
        journal = read_journal(app)
        if journal is not None and journal.live:
            wanted.add(journal.facts.digest)
    for job in all_jobs(root):
        if job.read().state in LIVE:
            request = job.request()
            wanted.add("" if request is None else str(request.request.get("digest")))
    for folder in incoming_folders(root):
        if folder.name not in wanted and _is_old(folder, horizon, now):
            folder.rename(work / ("offer-" + folder.name))
            fsync_folder(folder.parent)


def _drop_parts(root: Root, horizon: float, now: float) -> int:
    """Removes parts of blobs that no offered manifest needs; returns their bytes."""
    awaited: Set[str] = set()
    for folder in incoming_folders(root):
        with contextlib.suppress(DeviceError, OSError):
            # a transfer may be interrupted for longer than the grace: the offer's own grace decides
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
    """Returns True if a file's grace is over; the grace restarts for a time stamp in the future."""
    changed = path.stat().st_mtime
    # the board's clock was wrong when it was written: with that time it would stay for years
    if changed > now + _SLACK_S:
        os.utime(str(path), (now, now))
        return False
    return changed <= horizon


def _damaged_releases(root: Root) -> List[DamagedRelease]:
    """Returns the releases whose list of blobs cannot be read."""
    found = []
    for app, name in _releases(root):
        try:
            _read_manifest(app, name)
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


def _read_manifest(app: App, name: str) -> Manifest:
    """Returns a release's manifest, without verifying its signature again.

    Raises:
        DeviceError: The manifest cannot be read, or its digest changed.
    """
    path = app.releases_folder / name / MANIFEST
    with map_os_errors(str(path)):
        data = path.read_bytes()
    # after a flipped bit the manifest may still parse, with a wrong blob's name
    if release_digest(name) != sha256(data)[:12]:
        raise DeviceError(
            "manifest.json is not the one the release was made from",
            code="release.damaged",
            where="{}/{}".format(app.name, name),
        )
    return parse(data)


def _named_blobs(root: Root) -> Set[str]:
    """Returns the digests of the blobs that releases and offered manifests name."""
    named: Set[str] = set()
    for release in _releases(root):
        named.update(_read_manifest(*release).sizes())
    for folder in incoming_folders(root):
        # an unreadable offer cannot be deployed
        with contextlib.suppress(DeviceError, OSError):
            named.update(parse((folder / MANIFEST).read_bytes()).sizes())
    return named
