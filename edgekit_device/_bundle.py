"""Opens a bundle wherever it lies (folder, .ekb file, release) without trusting a byte of it."""

from __future__ import annotations

import os
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Optional, Tuple

from ._checks import is_digest
from ._errors import DeviceError, map_os_errors
from ._manifest import MAX_MANIFEST
from ._root import Root
from ._signature import MAX_SIGNATURE
from ._store import map_file

__all__ = ["MANIFEST", "SIGNATURE", "BundleFiles", "open_bundle", "open_release"]

MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
_BLOBS = "blobs/"
_MAX_ENTRIES = 1 << 20
# a local file header: 26 bytes in, the lengths of the name and of the extra field (APPNOTE 4.3.7)
_LOCAL_HEADER = 30
_LOCAL_SIGNATURE = b"PK\x03\x04"


@dataclass(frozen=True)
class BundleFiles:
    """A bundle's raw parts: nothing is parsed or checked yet.

    Attributes:
        where: For messages.
        manifest: The manifest's bytes.
        signature: The signature's bytes, None when there is none.
        blob: Maps a digest to the blob's bytes, unhashed; "blob.missing" when absent.
        has: Whether a blob is there.
        root: The installation that the bundle is a release of, if it is one.
        release: The release's folder, likewise.
    """

    where: str
    manifest: bytes
    signature: Optional[bytes]
    blob: Callable[[str], memoryview]
    has: Callable[[str], bool]
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
                "there is no bundle or release here",
                code="bundle.not-found",
                where=str(path),
                hint="name a bundle folder, an .ekb file, a release or an app folder",
            )
        folder = path.resolve()
        if (folder / "releases").is_dir() and not (folder / MANIFEST).exists():
            root = Root(folder.parent.parent)
            return open_release(root, root.app(folder.name).release(None))
        if folder.parent.name == "releases" and (folder / "release.json").is_file():
            return open_release(Root(folder.parents[3]), folder)
        return _open_folder(folder)


def open_release(root: Root, folder: Path) -> BundleFiles:
    """Opens a release of ``root``; its blobs come from the root's store."""
    store = root.store
    manifest, signature = _two_files(folder)
    where = "{}/{}".format(folder.parents[1].name, folder.name)
    return BundleFiles(where, manifest, signature, store.read, store.has, root, folder)


def _open_folder(folder: Path) -> BundleFiles:
    blobs = folder / "blobs"

    def blob(digest: str) -> memoryview:
        if not has(digest):
            raise _no_blob(digest, folder)
        return map_file(blobs / digest)

    def has(digest: str) -> bool:
        return is_digest(digest) and (blobs / digest).is_file()

    manifest, signature = _two_files(folder)
    return BundleFiles(str(folder), manifest, signature, blob, has)


def _two_files(folder: Path) -> Tuple[bytes, Optional[bytes]]:
    manifest = _bounded(folder / MANIFEST, MAX_MANIFEST)
    if manifest is None:
        raise DeviceError(
            "the folder has no manifest.json, so it is no bundle",
            code="bundle.not-found",
            where=str(folder),
        )
    return manifest, _bounded(folder / SIGNATURE, MAX_SIGNATURE)


def _bounded(path: Path, most: int) -> Optional[bytes]:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise _malformed(path, "{} is no file".format(path.name))
    try:
        with map_os_errors(str(path)), path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > most:
                raise _malformed(path, "{} is too large".format(path.name))
            return file.read(most)
    except DeviceError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _open_zip(path: Path) -> BundleFiles:
    data = map_file(path)
    try:
        with zipfile.ZipFile(str(path)) as archive:
            infos = archive.infolist()
            if len(infos) > _MAX_ENTRIES:
                raise _malformed(path, "too many entries")
            entries: Dict[str, memoryview] = {}
            for info in infos:
                if info.filename in entries:
                    raise _malformed(path, "{!r} occurs twice".format(info.filename[:80]))
                entries[info.filename] = _entry(path, data, info)
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise _malformed(path, str(error)) from error
    manifest = entries.get(MANIFEST)
    if manifest is None:
        raise _malformed(path, "it has no manifest.json")
    signature = entries.get(SIGNATURE)

    def blob(digest: str) -> memoryview:
        if not has(digest):
            raise _no_blob(digest, path)
        return entries[_BLOBS + digest]

    def has(digest: str) -> bool:
        return is_digest(digest) and _BLOBS + digest in entries

    return BundleFiles(
        str(path),
        manifest.tobytes(),
        None if signature is None else signature.tobytes(),
        blob,
        has,
    )


def _entry(path: Path, data: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """The entry's bytes in the mapped file; only stored entries with the three known names."""
    name = info.filename
    known = name in (MANIFEST, SIGNATURE) or (
        name.startswith(_BLOBS) and is_digest(name[len(_BLOBS) :])
    )
    if not known:
        raise _malformed(path, "unexpected entry {!r}".format(name[:80]))
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise _malformed(path, "{} is compressed or encrypted".format(name))
    if info.compress_size != info.file_size:
        raise _malformed(path, "{} has two sizes".format(name))
    limit = {MANIFEST: MAX_MANIFEST, SIGNATURE: MAX_SIGNATURE}.get(name)
    if limit is not None and info.file_size > limit:
        raise _malformed(path, "{} is too large".format(name))
    start = info.header_offset
    header = data[start : start + _LOCAL_HEADER]
    if len(header) < _LOCAL_HEADER or header[:4] != _LOCAL_SIGNATURE:
        raise _malformed(path, "{} has no header".format(name))
    name_size, extra_size = struct.unpack_from("<HH", header, 26)
    offset = start + _LOCAL_HEADER + name_size
    if data[start + _LOCAL_HEADER : offset] != name.encode("ascii"):
        raise _malformed(path, "{} has two names".format(name))
    offset += extra_size
    if offset + info.file_size > len(data):
        raise _malformed(path, "{} is cut off".format(name))
    return data[offset : offset + info.file_size]


def _malformed(path: Path, message: str) -> DeviceError:
    return DeviceError(
        "not a bundle file: {}".format(message),
        code="bundle.malformed",
        where=str(path),
        hint="make it again with edgekit bundle",
    )


def _no_blob(digest: str, where: Path) -> DeviceError:
    return DeviceError(
        "the bundle lacks the blob {}".format(digest),
        code="blob.missing",
        where=str(where),
        hint="a stripped bundle has no weights: deploy it to a board, or use the full bundle",
    )
