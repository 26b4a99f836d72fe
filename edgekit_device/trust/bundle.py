"""From untrusted files to a checked bundle: a folder, an .ekb file or a release is opened without
trusting a byte of it, then its signature, its manifest and its blobs are checked in that order.
"""

from __future__ import annotations

import os
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterable, Optional, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import map_file
from edgekit_device.protocol.codec import (
    app_name,
    choice,
    digest,
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
from edgekit_device.trust.signature import MAX_SIGNATURE, check_signature

if TYPE_CHECKING:
    import numpy as np


MANIFEST = "manifest.json"
SIGNATURE = "manifest.json.sig"
_BLOBS = "blobs/"
_MAX_ENTRIES = 1 << 20

# a local file header: 26 bytes in, the lengths of the name and of the extra field (APPNOTE 4.3.7)
_LOCAL_HEADER = 30
_LOCAL_SIGNATURE = b"PK\x03\x04"
#: Types that NumPy lacks, and what holds their bits.
BITS = {"bfloat16": "uint16"}

RECORD = "release.json"
_RECORD_SCHEMA = "edgekit.release/1"


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
                "no bundle or release at this path",
                code="bundle.not-found",
                where=str(path),
                hint="give a bundle folder, an .ekb file, a release or an app folder",
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
            "not a bundle: the folder has no manifest.json",
            code="bundle.not-found",
            where=str(folder),
        )
    return manifest, _bounded(folder / SIGNATURE, MAX_SIGNATURE)


def _bounded(path: Path, most: int) -> Optional[bytes]:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise _malformed(path, "{} is not a file".format(path.name))
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
        raise _malformed(path, "{} has two different sizes".format(name))
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
        raise _malformed(path, "{} has two different names".format(name))
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
        "the bundle lacks blob {}".format(digest),
        code="blob.missing",
        where=str(where),
        hint="a stripped bundle has no weights: deploy it to a board, or use the full bundle",
    )


@dataclass(frozen=True)
class Checked:
    """A bundle whose signature and manifest are good; ``signer`` is None when trusted without."""

    files: BundleFiles
    manifest: Manifest
    signer: Optional[str]


def check_bundle(files: BundleFiles, allowed_signers: Path, trust_unsigned: bool) -> Checked:
    """Checks the signature first and parses the manifest only then.

    Raises:
        DeviceError: See ``check_signature`` and ``_manifest.parse``.
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
    """Raises DeviceError "bundle.wrong-app" where the bundle is another application's."""
    name = checked.manifest.name
    if app != name:
        raise DeviceError(
            "the bundle is for the app {!r}".format(name),
            code="bundle.wrong-app",
            where=app[:80],
            hint="use --app {}, or build it under the other name".format(name),
        )


def read_checked(checked: Checked, digest: str) -> bytes:
    """Reads a blob of the manifest into memory and hashes what was read.

    Raises:
        DeviceError: "blob.missing" or "blob.digest-mismatch".
    """
    size = checked.manifest.sizes()[digest]
    view = checked.files.blob(digest)
    # the size is compared before anything is copied
    data = view.tobytes() if len(view) == size else b""
    if len(view) != size or sha256(data) != digest:
        raise _mismatch(checked, digest)
    return data


def check_blobs(checked: Checked, digests: Iterable[str]) -> int:
    """Hashes blobs in place and returns their bytes.

    Raises:
        DeviceError: "blob.missing" or "blob.digest-mismatch".
    """
    sizes, total = checked.manifest.sizes(), 0
    for name in dict.fromkeys(digests):
        view = checked.files.blob(name)
        if len(view) != sizes[name] or sha256(view) != name:
            raise _mismatch(checked, name)
        total += len(view)
    return total


def _mismatch(checked: Checked, digest: str) -> DeviceError:
    return DeviceError(
        "the stored bytes do not have the SHA-256 {}".format(digest),
        code="blob.digest-mismatch",
        where=checked.files.where,
        hint="the file was changed or the storage is failing; deploy the bundle again",
    )


def weight_array(checked: Checked, weight: WeightEntry) -> np.ndarray:
    """A weight's values; bfloat16 as uint16 bit patterns.

    Raises:
        DeviceError: "blob.missing", or "blob.digest-mismatch" for a blob of another size.
    """
    import numpy as np

    view = checked.files.blob(weight.digest)
    if len(view) != weight.bytes:
        raise DeviceError(
            "the blob has {} bytes instead of {}".format(len(view), weight.bytes),
            code="blob.digest-mismatch",
            where=weight.digest,
            hint="the file was changed or the storage is failing; deploy the bundle again",
        )
    dtype = BITS.get(weight.dtype, weight.dtype)
    if not weight.bytes:
        return np.empty(weight.shape, dtype=dtype)
    array = np.frombuffer(view, dtype=dtype).reshape(weight.shape)
    # a bundle file of another maker may not align its entries
    return array if array.flags.aligned else array.copy()


@dataclass(frozen=True)
class ReleaseRecord:
    """release.json: what was made of which bundle, when, and who signed it.

    ``trusted`` says that it was taken without a signature.
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
        data = (folder / RECORD).read_bytes()
    try:
        document = parse_json(data, where, damaged)
        refuse_version(document, (_RECORD_SCHEMA,), folder / RECORD, MEND)
        return read(ReleaseRecord, document, where, code=damaged)
    except DeviceError as error:
        error.hint = error.hint or MEND
        raise


def check_signer(root: Root, folder: Path) -> Optional[str]:
    """Checks again who signed a release; its manifest is not read.

    Raises:
        DeviceError: As ``check_signature``: the key may have been revoked or removed meanwhile.
    """
    files = open_release(root, folder)
    trusted = read_record(folder).trusted
    return check_signature(
        files.manifest,
        files.signature,
        root.allowed_signers,
        trust_unsigned=trusted,
        where=files.where,
    )
