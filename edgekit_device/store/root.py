"""The board's folder and its contents: ``Root`` is the whole installation, ``App`` an app with its
releases and its links ``current`` and ``previous``, ``BlobStore`` the blobs by SHA-256.
The two links change together: both new targets are written to links.json first, so that the next
holder of the app's lock finishes a change that a power cut interrupted.

A blob's bytes are made durable before it gets its name (``store.partial``), so that a name in the
store always means complete, correct bytes, also after a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import (
    LOCK_WAIT_S,
    Buffer,
    Extent,
    check_kept,
    durable_folder,
    fsync_folder,
    locked,
    map_file,
    replace_link,
    write_durably,
)
from edgekit_device.protocol.codec import (
    APP_NAMES,
    document,
    dump,
    is_app_name,
    is_digest,
    is_release,
    load,
    member,
    nullable,
    release_name,
)

LINKS = "links.json"
ACCEPTED = "accepted.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_KEPT = (
    "apps",
    "bin",
    "incoming",
    "jobs",
    "kernels",
    "partial",
    "timing",
    "tmp",
    "allowed_signers",
    "revoked_keys",
    ACCEPTED,
    "counters.json",
    "taken-back.json",
)


def sha256(data: Buffer) -> str:
    """Returns the SHA-256 in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


class BlobStore:
    """Blobs under ``folder``/<2 hex>/<sha256>."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Returns the path of the blob, which need not exist."""
        if not is_digest(digest):
            raise DeviceError("not a SHA-256", code="blob.bad-digest", where=repr(digest)[:80])
        return self.folder / digest[:2] / digest

    def has(self, digest: str) -> bool:
        """Returns True if the blob exists; its bytes were verified when it was written, see
        ``is_whole``.
        """
        return self.path(digest).is_file()

    def size(self, digest: str) -> int:
        """Returns the blob's size in bytes; -1 if it is missing."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return -1

    def read(self, digest: str) -> memoryview:
        """Maps the blob; its bytes are not hashed again here.

        Raises:
            DeviceError: "blob.missing", "root.link", "root.owner" or "root.writable".
        """
        return map_file(self.extent(digest).path)

    def extent(self, digest: str) -> Extent:
        """Returns the blob's file; raises as ``read``."""
        path = self.path(digest)
        try:
            check_kept(path.parent)
            check_kept(path)
        except FileNotFoundError as error:
            raise DeviceError(
                "the blob is not in the store",
                code="blob.missing",
                where=digest,
                hint="deploy the bundle again to send missing blobs",
            ) from error
        return Extent(path)

    def is_whole(self, digest: str) -> bool:
        """Returns True if the blob exists and still has this SHA-256; reads the whole blob.

        Raises:
            DeviceError: "root.link", "root.owner" or "root.writable".
            OSError: It cannot be read.
        """
        return self.has(digest) and sha256(self.read(digest)) == digest

    def missing(self, digests: Iterable[str], verify: bool = False) -> List[str]:
        """Returns the digests of missing blobs; renews the time of the others.

        With ``verify``, a damaged blob counts as missing; raises as ``is_whole``.
        """
        absent = []
        for digest in dict.fromkeys(digests):
            if self.is_whole(digest) if verify else self.has(digest):
                self.renew(digest)
            else:
                absent.append(digest)
        return absent

    def renew(self, digest: str) -> None:
        """Renews the blob's time, so that a collection keeps it."""
        with map_os_errors(str(self.folder)):
            os.utime(self.path(digest))

    def blobs(self) -> Iterator[Path]:
        """Yields every blob's path."""
        for path in sorted(self.folder.glob("??/*")):
            if is_digest(path.name):
                yield path

    def usage(self) -> Dict[str, int]:
        """Returns the number of blobs and their bytes."""
        sizes = [path.stat().st_size for path in self.blobs()]
        return {"blobs": len(sizes), "bytes": sum(sizes)}


@document(frozen=True)
class Links:
    """links.json: the intended targets of both links; None for no link."""

    current: Optional[str] = member(nullable(release_name))
    previous: Optional[str] = member(nullable(release_name))


def set_links(folder: Path, current: Optional[str], previous: Optional[str]) -> None:
    """Points ``current`` and ``previous`` at these releases; None removes a link.

    The caller holds the app's lock.

    It works even on a completely full disk: then ``current`` changes first, and after a power cut
    ``previous`` may be unchanged.

    Two symlinks cannot be renamed at once, so both targets are first written durably to
    links.json. The next holder of the app's lock finishes a change that a power cut
    interrupted: the result is the old or the new pair, and ``current`` by itself changes with a
    single rename.

    Raises:
        OSError: The disk has no free inode or another error; the lock's next holder finishes the
            pair if links.json could be written.
    """
    wanted = Links(current, previous)
    try:
        write_durably(folder / LINKS, dump(wanted))
    except OSError as error:
        # links need no space for data, so a switch back works on a full disk
        if error.errno not in _FULL:
            raise
        _apply(folder, wanted, ("current", "previous"))
        return
    _apply(folder, wanted)


def finish_links(folder: Path) -> None:
    """Finishes an interrupted change, and removes its temporary names."""
    # the caller holds the lock, so their writers are dead
    for pattern in (".current.*", ".previous.*", "." + LINKS + ".*"):
        for left in folder.glob(pattern):
            left.unlink()
    wanted = read_links(folder)
    if wanted is not None:
        _apply(folder, wanted)


def read_links(folder: Path) -> Optional[Links]:
    """Returns the links of an unfinished change; None if there is none."""
    return load(Links, folder / LINKS)


def _apply(
    folder: Path,
    wanted: Links,
    order: Tuple[str, str] = ("previous", "current"),
) -> None:
    for which in order:
        release = getattr(wanted, which)
        if release is None:
            with contextlib.suppress(FileNotFoundError):
                (folder / which).unlink()
        elif not _points_to(folder / which, release):
            replace_link(folder / which, "releases/" + release)
    fsync_folder(folder)
    with contextlib.suppress(FileNotFoundError):
        (folder / LINKS).unlink()
    fsync_folder(folder)


def _points_to(link: Path, release: str) -> bool:
    try:
        return os.readlink(str(link)) == "releases/" + release
    except OSError:
        return False


def default_root() -> Path:
    """Returns $EDGEKIT_ROOT, or ~/.edgekit.

    Raises:
        DeviceError: "root.no-home".
    """
    try:
        return Path(os.environ.get("EDGEKIT_ROOT") or "~/.edgekit").expanduser()
    except RuntimeError as error:
        raise DeviceError(
            "this account has no home folder",
            code="root.no-home",
            hint="give --root, or set EDGEKIT_ROOT or HOME to a folder",
        ) from error


class Root:
    """An installation's folder on a board; reading creates no files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.store = BlobStore(self.folder / "blobs")
        self.allowed_signers = self.folder / "allowed_signers"

    @contextmanager
    def lock(self, shared: bool, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Holds the lock: shared while blobs arrive or are used, exclusive while they are
        collected.
        """
        with locked(self.folder / "lock", shared=shared, wait_s=wait_s):
            yield

    def app(self, name: str) -> App:
        """Returns the app called ``name``, which need not exist yet.

        Raises:
            DeviceError: "app.bad-name" if the name cannot be a folder's.
        """
        if not is_app_name(name):
            raise DeviceError(
                "{!r} is not a valid app name".format(name[:80]),
                code="app.bad-name",
                hint=APP_NAMES,
            )
        app = App(self, name)
        for folder in (app.folder.parent, app.folder, app.releases_folder):
            with contextlib.suppress(FileNotFoundError):
                check_kept(folder)
        return app

    def apps(self) -> List[App]:
        """Returns every app, sorted by name."""
        folder = self.folder / "apps"
        if not folder.is_dir():
            return []
        names = [path.name for path in sorted(folder.iterdir()) if not path.is_symlink()]
        return [App(self, name) for name in names if is_app_name(name)]


class App:
    """An app's releases: names of folders, and the two links."""

    def __init__(self, root: Root, name: str) -> None:
        self.root = root
        self.name = name
        self.folder = root.folder / "apps" / name
        self.releases_folder = self.folder / "releases"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the lock for changes of releases or links; first finishes an interrupted change."""
        with map_os_errors(str(self.folder)):
            durable_folder(self.releases_folder)
        # again inside: ``remove`` may have moved the app away during the wait
        with locked(self.folder / "lock"):
            with map_os_errors(str(self.folder)):
                durable_folder(self.releases_folder)
                finish_links(self.folder)
            yield

    def releases(self) -> List[str]:
        """Returns the release names, oldest first."""
        if not self.releases_folder.is_dir():
            return []
        names = [path.name for path in self.releases_folder.iterdir()]
        return sorted((name for name in names if is_release(name)), key=release_number)

    def find_releases(self, digest: str) -> List[str]:
        """Returns the names of the releases of a manifest, by its SHA-256, oldest first."""
        return [name for name in self.releases() if release_digest(name) == digest[:12]]

    def link(self, which: str) -> Optional[str]:
        """Returns the existing target of ``which`` ("current" or "previous"); None without."""
        try:
            target = os.readlink(str(self.folder / which))
        except OSError:
            return None
        name = os.path.basename(target)
        return name if is_release(name) and (self.releases_folder / name).is_dir() else None

    def release(self, name: Optional[str]) -> Path:
        """Returns the folder of the release ``name``; None for the current release.

        Raises:
            DeviceError: "release.none" or "release.unknown".
        """
        if name is None:
            name = self.link("current")
            if name is None:
                raise DeviceError(
                    "the app has no current release",
                    code="release.none",
                    where=self.name,
                    hint="deploy a bundle, or give a --release",
                )
        folder = self.releases_folder / name
        if is_release(name):
            with contextlib.suppress(FileNotFoundError):
                check_kept(folder)
        if not is_release(name) or not folder.is_dir():
            raise DeviceError(
                "the release does not exist",
                code="release.unknown",
                where="{}/{}".format(self.name, name[:80]),
                hint="available: {}".format(", ".join(self.releases()) or "none"),
            )
        return folder


def no_such_app(app: App) -> DeviceError:
    """Returns the error that an app does not exist, which lists the existing apps."""
    names = ", ".join(other.name for other in app.root.apps() if other.folder.is_dir())
    return DeviceError(
        "the app does not exist",
        code="app.unknown",
        where=app.name,
        hint="available: " + (names or "none"),
    )


def release_number(release: str) -> int:
    """Returns the number at the start of a release's name: its age, independent of clocks."""
    return int(release.partition("-")[0])


def release_digest(release: str) -> str:
    """Returns the end of a release's name: the first 12 digits of its manifest's SHA-256."""
    return release.partition("-")[2]


def make_private() -> None:
    """Makes this process and its children create files for their owner alone."""
    os.umask(0o077)


def check_root(folder: Path, *, loads: bool = False) -> None:
    """Refuses a ROOT that belongs to another account or that others can write; it may be missing.

    Refuses also contents that are links, belong to another account or are writable by others.

    New files are for their owner alone, whatever the account's umask. An existing ROOT is not
    changed if only its owner can write it. Its blobs may be a link to another disk; a link at
    any other place could redirect a checked name to another folder.

    Args:
        folder: ROOT.
        loads: True if a program loads from ROOT: then it may belong to another account than the
            program's, as in a container.

    Raises:
        DeviceError: "root.owner", "root.writable" or "root.link".
    """
    with map_os_errors(str(folder)):
        try:
            facts = os.stat(str(folder))
        except FileNotFoundError:
            return
        if not loads and (
            facts.st_uid not in (0, os.geteuid()) or (os.geteuid() == 0 and facts.st_uid != 0)
        ):
            raise DeviceError(
                "the folder belongs to another account (number {})".format(facts.st_uid),
                code="root.owner",
                where=str(folder),
                hint="use that account, another --root, or: sudo chown -R {} {}".format(
                    os.geteuid(), folder
                ),
            )
        if facts.st_mode & _OTHERS:
            raise DeviceError(
                "other accounts can write to the folder (mode {:o})".format(facts.st_mode & 0o7777),
                code="root.writable",
                where=str(folder),
                hint=(
                    "anyone who can write there controls this board's releases: chmod -R go-w {}"
                ).format(folder),
            )
        for name in _KEPT:
            with contextlib.suppress(FileNotFoundError):
                check_kept(folder / name)
        with contextlib.suppress(FileNotFoundError):
            check_kept((folder / "blobs").resolve())
