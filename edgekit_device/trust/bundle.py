"""From untrusted files to a checked bundle: opens a folder, an .ekb file or a release without
trusting its bytes, then checks its signature, its manifest and its blobs in this order.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterable, Optional, Protocol, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import Buffer, Extent, check_kept, map_file, read_kept
from edgekit_device.protocol.codec import (
    app_name,
    choice,
    digest,
    document,
    flag,
    is_digest,
    member,
    nullable,
    parse_json,
    read,
    refuse_version,
    release_name,
    text,
)
from edgekit_device.protocol.manifest import MAX_MANIFEST, MEND, Manifest, WeightEntry, parse
from edgekit_device.store.root import Root, sha256
from edgekit_device.trust.accepted import is_accepted
from edgekit_device.trust.signature import MAX_SIGNATURE, check_signature
from edgekit_device.zips import ZipEntry, zip_entries

if TYPE_CHECKING:
    import numpy as np


MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
_BLOBS = "blobs/"
_MAX_ENTRIES = 1 << 16  # of an .ekb file; Linux's limit of maps per process

# in a local file header at byte 26: the lengths of the name and of the extra field (APPNOTE 4.3.7)
_LOCAL_HEADER = 30
_LOCAL_SIGNATURE = b"PK\x03\x04"
#: Types that NumPy lacks, and the types that hold their bits.
BITS = {"bfloat16": "uint16"}

RECORD = "release.json"
_RECORD_SCHEMA = "edgekit.release/1"


class BlobSource(Protocol):
    """The source of a bundle's blobs: a store, a folder or an .ekb file."""

    def has(self, digest: str) -> bool:
        """Returns True if a blob exists."""

    def read(self, digest: str) -> memoryview:
        """Maps a blob without hashing it; raises DeviceError "blob.missing"."""

    def extent(self, digest: str) -> Extent:
        """Returns the file and place of a blob's bytes; raises as ``read``."""


@document(frozen=True)
class BundleFiles:
    """A bundle's raw parts, not yet parsed or checked.

    Attributes:
        where: The bundle's place, for messages.
        manifest: The manifest's bytes.
        signature: The signature's bytes; None if unsigned.
        blobs: The source of the blobs.
        root: The installation, if the bundle is a release; else None.
        release: The release's folder, if the bundle is a release; else None.
    """

    where: str
    manifest: bytes
    signature: Optional[bytes]
    blobs: BlobSource
    root: Optional[Root] = None
    release: Optional[Path] = None


def open_bundle(path: Path) -> BundleFiles:
    """Opens a bundle folder, an .ekb file, a release folder or an app folder.

    Raises:
        DeviceError: "bundle.not-found", "bundle.malformed" or "release.none".
    """
    with map_os_errors(str(path)):
        if path.is_file():
            return _open_zip(path)
        if not path.is_dir():
            raise DeviceError(
                "no bundle or release at this path",
                code="bundle.not-found",
                where=str(path),
                hint="give a bundle folder, an .ekb file, a release or an app folder",
            )
        # before resolve(): afterwards a link to another app's folder could not be seen
        if path.is_symlink() and path.parent.name == "apps":
            check_kept(path)
        folder = path.resolve()
        if (folder / "releases").is_dir() and not (folder / MANIFEST).exists():
            # ROOT/apps/NAME
            root = Root(folder.parent.parent)
            return open_release(root, root.app(folder.name).release(None))
        if folder.parent.name == "releases" and (folder / RECORD).is_file():
            # ROOT/apps/NAME/releases/ID
            root = Root(folder.parents[3])
            return open_release(root, root.app(folder.parents[1].name).release(folder.name))
        manifest, signature = _read_manifest_files(folder)
        return BundleFiles(str(folder), manifest, signature, _FolderBlobs(folder))


def open_release(root: Root, folder: Path) -> BundleFiles:
    """Opens a release of ``root``; its blobs come from the root's store.

    Raises:
        DeviceError: "bundle.*", or "root.*" if others can change the release.
    """
    for name in (MANIFEST, SIGNATURE):
        with suppress(FileNotFoundError):
            check_kept(folder / name)
    manifest, signature = _read_manifest_files(folder)
    where = "{}/{}".format(folder.parents[1].name, folder.name)
    return BundleFiles(where, manifest, signature, root.store, root, folder)


class _FolderBlobs:
    """The blobs of a bundle's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, digest: str) -> bool:
        """Returns True if a blob exists."""
        return is_digest(digest) and (self._folder / "blobs" / digest).is_file()

    def read(self, digest: str) -> memoryview:
        """Maps a blob."""
        return map_file(self.extent(digest).path)

    def extent(self, digest: str) -> Extent:
        """Returns a blob's file."""
        if not self.has(digest):
            raise _missing_blob_error(digest, self._folder)
        return Extent(self._folder / "blobs" / digest)


def _read_manifest_files(folder: Path) -> Tuple[bytes, Optional[bytes]]:
    manifest = _read_bounded(folder / MANIFEST, MAX_MANIFEST)
    if manifest is None:
        raise DeviceError(
            "not a bundle: the folder has no manifest.json",
            code="bundle.not-found",
            where=str(folder),
            hint="give the file or folder that edgekit bundle or net.save wrote",
        )
    return manifest, _read_bounded(folder / SIGNATURE, MAX_SIGNATURE)


def _read_bounded(path: Path, most: int) -> Optional[bytes]:
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise _malformed_error(path, "{} is not a file".format(path.name))
    try:
        with map_os_errors(str(path)), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise _malformed_error(path, "{} is too large".format(path.name))
            # not more than was measured: the file may grow
            return file.read(size)
    except DeviceError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _open_zip(path: Path) -> BundleFiles:
    data = map_file(path)
    parts: Dict[str, Tuple[int, int]] = {}
    try:
        for entry in zip_entries(data, _MAX_ENTRIES):
            name, offset = _entry(path, data, entry)
            # a second entry of the same name could replace the one that was checked
            if name in parts:
                raise _malformed_error(path, "{!r} occurs twice".format(name))
            parts[name] = offset, entry.size
    except (ValueError, struct.error) as error:
        raise _malformed_error(path, str(error)) from error
    if MANIFEST not in parts:
        raise _malformed_error(path, "it has no manifest.json")
    blobs = _ZipBlobs(path, data, parts)
    manifest = blobs.part(MANIFEST).tobytes()
    signature = blobs.part(SIGNATURE).tobytes() if SIGNATURE in parts else None
    return BundleFiles(str(path), manifest, signature, blobs)


class _ZipBlobs:
    """The blobs of an .ekb file, whose entries are stored uncompressed."""

    def __init__(self, path: Path, data: memoryview, parts: Dict[str, Tuple[int, int]]) -> None:
        self._path, self._data, self._parts = path, data, parts

    def part(self, name: str) -> memoryview:
        """Returns an entry's bytes, without a copy."""
        offset, size = self._parts[name]
        return self._data[offset : offset + size]

    def has(self, digest: str) -> bool:
        """Returns True if a blob exists."""
        return _BLOBS + digest in self._parts

    def read(self, digest: str) -> memoryview:
        """Maps a blob."""
        if not self.has(digest):
            raise _missing_blob_error(digest, self._path)
        return self.part(_BLOBS + digest)

    def extent(self, digest: str) -> Extent:
        """Returns a blob's part of the file."""
        if not self.has(digest):
            raise _missing_blob_error(digest, self._path)
        return Extent(self._path, *self._parts[_BLOBS + digest])


def _entry(path: Path, data: memoryview, entry: ZipEntry) -> Tuple[str, int]:
    """Returns an entry's name and the offset of its bytes; refuses compressed entries and unknown
    names.
    """
    name = entry.name.decode("ascii", "backslashreplace")
    known = name in (MANIFEST, SIGNATURE) or (
        name.startswith(_BLOBS) and is_digest(name[len(_BLOBS) :])
    )
    if not known:
        raise _malformed_error(path, "unexpected entry {!r}".format(name[:80]))
    # blobs are mapped, not copied, so they are stored as they are
    if entry.method or entry.flags & 1:
        raise _malformed_error(path, "{} is compressed or encrypted".format(name))
    if entry.packed != entry.size:
        raise _malformed_error(path, "{} has two different sizes".format(name))
    limit = {MANIFEST: MAX_MANIFEST, SIGNATURE: MAX_SIGNATURE}.get(name)
    if limit is not None and entry.size > limit:
        raise _malformed_error(path, "{} is too large".format(name))
    start = entry.offset
    header = data[start : start + _LOCAL_HEADER]
    if len(header) < _LOCAL_HEADER or header[:4] != _LOCAL_SIGNATURE:
        raise _malformed_error(path, "{} has no header".format(name))
    name_size, extra_size = struct.unpack_from("<HH", header, 26)
    offset = start + _LOCAL_HEADER + name_size
    # other programs read the local headers: both must name the same bytes
    if data[start + _LOCAL_HEADER : offset] != entry.name:
        raise _malformed_error(path, "{} has two different names".format(name))
    # the local extra field may have another length than the directory's
    offset += extra_size
    if offset + entry.size > len(data):
        raise _malformed_error(path, "{} is cut off".format(name))
    return name, offset


def _malformed_error(path: Path, message: str) -> DeviceError:
    return DeviceError(
        "not a bundle file: {}".format(message),
        code="bundle.malformed",
        where=str(path),
        hint="make it again with edgekit bundle",
    )


def _missing_blob_error(digest: str, where: Path) -> DeviceError:
    return DeviceError(
        "the bundle lacks blob {}".format(digest),
        code="blob.missing",
        where=str(where),
        hint="a stripped bundle has no weights: deploy it to a board, or use the full bundle",
    )


@document(frozen=True)
class Checked:
    """A bundle with a checked signature and manifest; ``signer`` is None if accepted unsigned."""

    files: BundleFiles
    manifest: Manifest
    signer: Optional[str]


def check_bundle(files: BundleFiles, allowed_signers: Path, trust_unsigned: bool) -> Checked:
    """Checks the signature first and parses the manifest only then.

    Raises:
        DeviceError: See ``check_signature`` and ``protocol.manifest.parse``.
    """
    signer = check_signature(
        files.manifest,
        files.signature,
        allowed_signers,
        trust_unsigned=trust_unsigned,
        where=files.where,
    )
    return Checked(files, parse(files.manifest), signer)


def need_app(checked: Checked, app: str) -> None:
    """Raises DeviceError "bundle.wrong-app" if the bundle belongs to another application."""
    name = checked.manifest.name
    if app != name:
        raise DeviceError(
            "the bundle is for the app {!r}".format(name),
            code="bundle.wrong-app",
            where=app[:80],
            hint="use --app {}, or build it under the other name".format(name),
        )


def read_checked(checked: Checked, digest: str, size: Optional[int] = None) -> Buffer:
    """Reads a blob of the manifest into memory and hashes it on the way.

    Args:
        checked: The bundle.
        digest: The blob's digest.
        size: Its bytes if the caller knows them; by default the manifest's size.

    Raises:
        DeviceError: "blob.missing", "blob.digest-mismatch", "root.*" or "board.io".
    """
    if size is None:
        size = checked.manifest.sizes()[digest]
    with map_os_errors(checked.files.where):
        data, found = checked.files.blobs.extent(digest).read(size)
    # hashed while copied into this process: nobody can change the bytes afterwards
    if found != digest:
        raise _mismatch_error(checked, digest)
    return data


def check_blobs(checked: Checked, digests: Iterable[str]) -> int:
    """Hashes blobs without copies and returns their size in bytes.

    Raises:
        DeviceError: "blob.missing" or "blob.digest-mismatch".
    """
    sizes, total = checked.manifest.sizes(), 0
    for name in dict.fromkeys(digests):
        view = checked.files.blobs.read(name)
        if len(view) != sizes[name] or sha256(view) != name:
            raise _mismatch_error(checked, name)
        total += len(view)
    return total


def _mismatch_error(checked: Checked, digest: str) -> DeviceError:
    return DeviceError(
        "the stored bytes do not have the SHA-256 {}".format(digest),
        code="blob.digest-mismatch",
        where=checked.files.where,
        hint="the file was changed or the storage is failing; deploy the bundle again",
    )


def weight_array(checked: Checked, weight: WeightEntry) -> np.ndarray:
    """Returns a weight's values, read with ``read_checked``; bfloat16 as uint16 bit patterns."""
    import numpy as np

    data = read_checked(checked, weight.digest, weight.bytes)
    dtype = BITS.get(weight.dtype, weight.dtype)
    if not weight.bytes:
        return np.empty(weight.shape, dtype=dtype)
    return np.frombuffer(data, dtype=dtype).reshape(weight.shape)


@document(frozen=True)
class ReleaseRecord:
    """release.json: the release's bundle, its time and its signer.

    ``trusted`` shows people that it was accepted without a signature; only ``trust.accepted``
    decides that.
    """

    app: str = member(app_name)
    id: str = member(release_name)
    digest: str = member(digest)
    backend: str = member(text())
    signer: Optional[str] = member(nullable(text()))
    trusted: bool = member(flag)
    staged_at: str = member(text())
    schema: str = member(choice(_RECORD_SCHEMA), default=_RECORD_SCHEMA)


def read_record(folder: Path) -> ReleaseRecord:
    """Reads release.json of a release's folder.

    Raises:
        DeviceError: "release.damaged", "state.version" or "board.*"; a deployment writes it anew.
    """
    where, damaged = str(folder / RECORD), "release.damaged"
    with map_os_errors(str(folder)):
        data = read_kept(folder / RECORD)
    try:
        document = parse_json(data, where, damaged)
        refuse_version(document, (_RECORD_SCHEMA,), folder / RECORD, MEND)
        return read(ReleaseRecord, document, where, code=damaged)
    except DeviceError as error:
        error.hint = error.hint or MEND
        raise


def check_signer(root: Root, folder: Path) -> Optional[str]:
    """Checks a release's signature again; its manifest is not parsed.

    Raises:
        DeviceError: As ``check_signature``: the key may have been revoked or removed meanwhile.
    """
    files = open_release(root, folder)
    return check_signature(
        files.manifest,
        files.signature,
        root.allowed_signers,
        trust_unsigned=is_accepted(root, sha256(files.manifest)),
        where=files.where,
    )
