"""Bundles on disk: a folder, or an ``.ekb`` file whose entries can be memory-mapped; and the
board's loader, a reproducible executable zip of ``edgekit_device``.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import edgekit_device
from edgekit.bundles.manifest import Bundle, blob_view
from edgekit.errors import BundleError, UsageError
from edgekit.files import forget_pages, write_atomically, write_folder_atomically
from edgekit.text import counted
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import array, digest, document, member, text
from edgekit_device.protocol.manifest import parse

_MANIFEST = "manifest.json"
_SIGNATURE = "manifest.json.sig"
# a ZIP entry's earliest date: the same contents give the same bytes
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16
_CHUNK = 1 << 22
_ALIGNMENT = 64

# a local header's fixed part, an extra field's head, and zip64's extra field (APPNOTE 4.3.7, 4.5)
_LOCAL_HEADER = 30
_EXTRA_HEAD = 4
_ZIP64_EXTRA = 20

# the extra field that Android's zipalign uses for padding; readers skip it
_PADDING_ID = 0xD935
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = """\
import os
import sys

# a link may lead to another loader soon, whose modules lie at other places of the file
sys.path[0] = os.path.realpath(sys.path[0])

from edgekit_device.__main__ import main

sys.exit(main())
"""


@document(frozen=True)
class PackedBundle:
    """A bundle's file.

    Attributes:
        path: The file, without weights unless requested.
        bytes: Size with all weights.
        stripped_bytes: Size without weights.
        digest: SHA-256 of the manifest.
        others: Files of the bundles for other kinds of boards.
        qdq: The Q/DQ model from which TensorRT builds.
    """

    path: str = member(text())
    bytes: int = member(fields.count)
    stripped_bytes: int = member(fields.count)
    digest: str = member(digest)
    others: tuple[str, ...] = member(array(text()), absent=())
    qdq: str | None = member(text(), absent=None)


def write(bundle: Bundle, path: str | Path, *, stripped: bool = True) -> Path:
    """Writes a bundle atomically.

    Args:
        bundle: The bundle, with its signature if it has one.
        path: A name that ends in ``.ekb`` gives a file, any other name a folder.
        stripped: Leave the weights out; the manifest still has their digests.

    Raises:
        BundleError: "bundle.incomplete": a full bundle is requested and weights are missing.
        UsageError: The path exists and is no bundle.
        EnvironmentLack: "file.write": it cannot be written.
    """
    path = Path(path)
    parts = dict(bundle.blobs)
    if not stripped:
        lacking = [digest for digest in bundle.weight_bytes if digest not in bundle.weights]
        if lacking:
            raise BundleError(
                f"the full bundle cannot be written: {counted(len(lacking), 'weight')} missing",
                code="bundle.incomplete",
                where=str(path),
                hint="it was read from a stripped bundle; build it again",
            )
        parts.update(bundle.weights)
    entries = {_MANIFEST: memoryview(bundle.manifest_bytes)}
    if bundle.signature is not None:
        entries[_SIGNATURE] = memoryview(bundle.signature)
    entries.update({f"blobs/{digest}": blob_view(parts[digest]) for digest in sorted(parts)})
    if path.suffix == ".ekb":
        if path.is_dir():
            raise _occupied_error(path)
        with write_atomically(path) as temporary:
            _write_file(entries, temporary)
    else:
        replaceable = path.is_dir() and ((path / _MANIFEST).is_file() or not os.listdir(path))
        if path.exists() and not replaceable:
            raise _occupied_error(path)
        with write_folder_atomically(path) as temporary:
            (temporary / "blobs").mkdir()
            for name, data in entries.items():
                with (temporary / name).open("xb") as file:
                    for chunk in _chunks(data):
                        file.write(chunk)
                forget_pages(data)
    return path


def read(
    path: str | Path,
    *,
    verify: bool = True,
    signers: Iterable[str] | None = None,
    trust_unsigned: bool = False,
) -> Bundle:
    """Opens a bundle; blobs are memory-mapped.

    Args:
        path: A bundle folder or an ``.ekb`` file.
        verify: Check the digest of every present blob.
        signers: Lines in OpenSSH's allowed_signers format with the accepted keys; the signature is
            checked before parsing. None: the signature is not checked here.
        trust_unsigned: With ``signers``, accepts a bundle without a signature, or signed by an
            unknown key; a wrong signature is still refused.

    Raises:
        UsageError: "bundle.not-found": the path does not exist.
        BundleError: The file is no bundle, is damaged, or its signature is invalid.
    """
    from edgekit_device.trust.bundle import open_bundle

    try:
        files = open_bundle(Path(path))
        if signers is not None:
            _check_signers(files.manifest, files.signature, signers, trust_unsigned, str(path))
        manifest = parse(files.manifest)
        found = {
            digest: files.blobs.read(digest)
            for digest in manifest.sizes()
            if files.blobs.has(digest)
        }
        lacking = [digest for digest in manifest.blobs if digest not in found]
        if lacking:
            # raises the error of a missing blob
            files.blobs.read(lacking[0])
    except DeviceError as error:
        kind = UsageError if error.code == "bundle.not-found" else BundleError
        raise kind(
            error.message, code=error.code, where=error.where or str(path), hint=error.hint
        ) from error
    for name, data in found.items():
        size = manifest.sizes()[name]
        if len(data) != size or (verify and hashlib.sha256(data).hexdigest() != name):
            raise BundleError(
                f"blob {name} is damaged: its bytes have another SHA-256 than its name",
                code="blob.digest-mismatch",
                where=str(path),
                hint="make or copy the bundle again",
            )
        forget_pages(data)
    return Bundle(
        manifest=manifest,
        manifest_bytes=files.manifest,
        blobs={digest: data for digest, data in found.items() if digest in manifest.blobs},
        weights={w.digest: found[w.digest] for w in manifest.weights.values() if w.digest in found},
        signature=files.signature,
    )


def _check_signers(
    manifest: bytes, signature: bytes | None, signers: Iterable[str], trust: bool, where: str
) -> None:
    from edgekit_device.trust.signature import check_signature

    with tempfile.TemporaryDirectory() as folder:
        allowed = Path(folder, "allowed_signers")
        allowed.write_text("".join(f"{line}\n" for line in signers), encoding="utf-8")
        try:
            check_signature(manifest, signature, allowed, trust_unsigned=trust, where=where)
        except DeviceError as error:
            if error.code == "bundle.unknown-signer":
                # the folder of the list no longer exists
                error.message = "the bundle is not signed by a key known on this machine"
            raise


def _write_file(entries: dict[str, memoryview], path: Path) -> None:
    with path.open("wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = _MODE
            # Unix (APPNOTE 4.4.2.2), whichever system writes it
            entry.create_system = 3
            entry.file_size = len(data)
            # decided here, far below the size from which zipfile adds ZIP64's field by itself: the
            # header's length must be known for the padding
            large = len(data) > zipfile.ZIP64_LIMIT // 2
            fixed = _LOCAL_HEADER + len(name) + _EXTRA_HEAD + (_ZIP64_EXTRA if large else 0)
            padding = -(file.tell() + fixed) % _ALIGNMENT
            entry.extra = (
                _PADDING_ID.to_bytes(2, "little") + padding.to_bytes(2, "little") + bytes(padding)
            )
            with archive.open(entry, "w", force_zip64=large) as out:
                for chunk in _chunks(data):
                    out.write(chunk)
            forget_pages(data)


def _chunks(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), _CHUNK):
        yield data[start : start + _CHUNK]


def _occupied_error(path: Path) -> UsageError:
    return UsageError(
        "another file or folder is here, and edgekit does not overwrite it",
        code="write.occupied",
        where=str(path),
        hint="give another path, or remove the file or folder",
    )


def build_zipapp(path: str | Path) -> str:
    """Writes ``edgekit_device`` as a single file that Python can run and import.

    The board needs no other file: ``python3 edgekit_device.pyz hello`` runs it, and with the file
    on ``sys.path``, ``import edgekit_device`` works.

    Returns:
        SHA-256 (hex) of the file; the same sources give the same bytes.
    """
    folder = Path(edgekit_device.__file__).parent
    files = {
        f"edgekit_device/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*.py")
    }
    files["__main__.py"] = _MAIN.encode("ascii")
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    # stored, not deflated: zlib's output differs between its versions
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = _MODE
            entry.create_system = 3
            archive.writestr(entry, data)
    data = buffer.getvalue()
    with write_atomically(Path(path)) as temporary:
        temporary.write_bytes(data)
        os.chmod(temporary, 0o755)
    return hashlib.sha256(data).hexdigest()


def build_board_loader(folder: Path) -> Path:
    """Writes the loader into ``folder``, named by its digest as on boards; returns the file.

    Hosts of different versions may share the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # not ``write_atomically``: its name is only known when it is complete
    with tempfile.TemporaryDirectory(dir=folder) as made:
        digest = build_zipapp(Path(made, "loader"))
        path = folder / f"edgekit_device-{digest[:16]}.pyz"
        os.replace(Path(made, "loader"), path)
    return path
