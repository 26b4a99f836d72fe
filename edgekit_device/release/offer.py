"""The command ``offer``: a host announces a bundle, and the board answers which blobs are missing.

The host first sends only the digest; if the board has the bundle, it answers at once. Otherwise
the host sends the manifest, which waits in ``incoming/<digest>/`` until a deployment stages it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, List, Optional, Tuple

from edgekit_device.board.identity import Hello, HelloThread
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import fsync_folder, workspace, write_durably
from edgekit_device.protocol import codec
from edgekit_device.protocol.codec import (
    app_name,
    array,
    document,
    flag,
    integer,
    is_digest,
    member,
    nullable,
    read,
    read_json,
    record,
    release_name,
    text,
)
from edgekit_device.protocol.manifest import MAX_MANIFEST, Manifest
from edgekit_device.release.changed import find_change, is_readable
from edgekit_device.release.journal import DeploymentFacts, TakenBack, find_taken_back, read_journal
from edgekit_device.release.releases import is_ready
from edgekit_device.store.partial import received_bytes
from edgekit_device.store.root import Root
from edgekit_device.trust.accepted import is_accepted
from edgekit_device.trust.bundle import MANIFEST, SIGNATURE, BundleFiles, Checked, check_bundle

#: Most bytes of an envelope: a JSON escape takes up to six bytes for a byte of text.
MAX_ENVELOPE = 6 * MAX_MANIFEST + (1 << 20)


def _utf8(value: Any) -> bytes:
    # bytes that are no UTF-8 cannot have a valid signature
    return bytes(text(most=MAX_MANIFEST)(value).encode("utf-8", "surrogatepass"))


@document(frozen=True)
class _DeflatedManifest:
    deflated: str = member(text(most=2 * MAX_MANIFEST))


def _decode_manifest(value: Any) -> bytes:
    """Reads a text, or {"deflated": base64 of a zlib stream}, up to the largest manifest's size."""
    if not isinstance(value, dict):
        return _utf8(value)
    try:
        packed = base64.b64decode(codec.record(_DeflatedManifest)(value).deflated, validate=True)
        worker = zlib.decompressobj()
        # bounded: a small stream can expand to any size
        data = worker.decompress(packed, MAX_MANIFEST + 1)
    except (ValueError, zlib.error) as error:
        codec.fail("", "not base64 of a zlib stream: {}".format(error))
    if len(data) > MAX_MANIFEST or not worker.eof or worker.unused_data:
        codec.fail("", "not one zlib stream of a manifest")
    return data


@document(frozen=True)
class Envelope:
    """A host's manifest and OpenSSH's signature of its bytes, both unchecked."""

    manifest: bytes = member(_decode_manifest)
    signature: Optional[bytes] = member(nullable(_utf8), absent=None)


@document(frozen=True)
class _Question:
    """The digest of a manifest, sent to ask whether the board has the bundle."""

    digest: str = member(codec.digest)
    signature: Optional[bytes] = member(nullable(_utf8), absent=None)


def _missing_blob(value: Any) -> Tuple[str, int]:
    """Reads [digest, bytes]."""
    if not isinstance(value, list) or len(value) != 2:
        codec.fail("", "not a digest and a number of bytes")
    return codec.digest(value[0]), integer(0, 1 << 40)(value[1])


@document(frozen=True)
class OfferAnswer:
    """The answer of ``offer`` to a bundle that is known.

    Attributes:
        missing: The missing blobs, each with the number of bytes that the board already has.
        serving: The release that serves this bundle with all its blobs.
        deployment: The deployment of that release.
        taken_back: When and why the bundle was taken back, if it was.
        hello: The board's description, with --hello.
    """

    digest: str = member(codec.digest)
    app: str = member(app_name)
    signer: Optional[str] = member(nullable(text()))
    missing: Tuple[Tuple[str, int], ...] = member(array(_missing_blob))
    serving: Optional[str] = member(nullable(release_name))
    deployment: Optional[DeploymentFacts] = member(nullable(record(DeploymentFacts)))
    taken_back: Optional[TakenBack] = member(record(TakenBack), absent=None)
    hello: Optional[Hello] = member(record(Hello), absent=None)
    known: bool = member(flag, default=True)


@document(frozen=True)
class UnknownBundle:
    """The answer of ``offer`` to the digest of an unknown manifest."""

    digest: str = member(codec.digest)
    known: bool = member(flag, default=False)


def offer_answer(value: Any) -> "OfferAnswer | UnknownBundle":
    """Reads either answer of ``offer``."""
    if isinstance(value, dict) and value.get("known") is False:
        return read(UnknownBundle, value)
    return read(OfferAnswer, value)


def read_envelope(stdin: BinaryIO) -> Envelope:
    """Reads an envelope from stdin.

    Raises:
        DeviceError: "protocol.invalid".
    """
    return read(Envelope, read_json(stdin, MAX_ENVELOPE), "stdin", code="protocol.invalid")


def do_offer(
    root: Root, arguments: argparse.Namespace, stdin: BinaryIO
) -> "OfferAnswer | UnknownBundle":
    """Stores a manifest with a valid signature, and answers which of its blobs are missing.

    Raises:
        DeviceError: As ``stage`` for a signature or a manifest that is refused ("bundle.*",
            "manifest.*"), or "protocol.invalid".
    """
    document = read_json(stdin, MAX_ENVELOPE)
    with root.lock(shared=True), map_os_errors(str(root.folder)):
        if isinstance(document, dict) and "digest" in document:
            question = read(_Question, document, "stdin", code="protocol.invalid")
            manifest = _find_manifest(root, question.digest)
            if manifest is None:
                return UnknownBundle(question.digest)
            envelope = Envelope(manifest, question.signature)
        else:
            envelope = read(Envelope, document, "stdin", code="protocol.invalid")
        hello = None
        if arguments.hello:
            # in a thread: it runs while ssh-keygen checks the signature
            hello = HelloThread(root.folder)
        try:
            answer = _answer(root, envelope, arguments.trust_unsigned)
        finally:
            if hello is not None:
                hello.join()
    if hello is not None:
        answer = replace(answer, hello=hello.facts())
    return answer


def take_offer(
    root: Root, manifest: bytes, signature: Optional[bytes], trust_unsigned: bool = False
) -> OfferAnswer:
    """Stores a manifest that the board downloaded itself; answers and raises like ``offer``."""
    with root.lock(shared=True), map_os_errors(str(root.folder)):
        return _answer(root, Envelope(manifest, signature), trust_unsigned)


def read_incoming(root: Root, digest: str) -> Optional[Tuple[bytes, Optional[bytes]]]:
    """Returns the offered manifest of a digest and its signature; None if it was not offered."""
    if not is_digest(digest):
        raise DeviceError("not a SHA-256", code="offer.invalid", where=repr(digest)[:80])
    manifest = _read(root.folder / "incoming" / digest / MANIFEST)
    if manifest is None or hashlib.sha256(manifest).hexdigest() != digest:
        return None
    return manifest, _read(root.folder / "incoming" / digest / SIGNATURE)


def incoming_folders(root: Root) -> List[Path]:
    """Returns the folders of all offered manifests, which are named by digest."""
    folder = root.folder / "incoming"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if is_digest(path.name)]


def drop_incoming(root: Root, digest: str) -> None:
    """Removes an offered manifest."""
    folder = root.folder / "incoming" / digest
    with map_os_errors(str(folder)), workspace(root.folder) as work:
        try:
            folder.rename(work / digest)
        except FileNotFoundError:
            return
        fsync_folder(folder.parent)


def _answer(root: Root, envelope: Envelope, trust_unsigned: bool) -> OfferAnswer:
    manifest, signature = envelope.manifest, envelope.signature
    files = BundleFiles("the offered bundle", manifest, signature, root.store)
    checked = check_bundle(files, root.allowed_signers, trust_unsigned)
    app = root.app(checked.manifest.name)
    lacking = _missing_blobs(root, checked.manifest)
    # a release that lacks blobs does not load again after a restart
    serving = None if lacking else find_working(root, checked)
    # otherwise nothing will be deployed, and the offer would only wait for its collection
    if serving is None:
        _store_manifest(root, checked)
    journal = None if serving is None else read_journal(app)
    deployment = None
    if journal is not None:
        deployment = replace(journal.facts, previous=app.link("previous"))
    return OfferAnswer(
        digest=checked.manifest.digest,
        app=checked.manifest.name,
        signer=checked.signer,
        missing=tuple(
            # min(): a damaged part may be longer than the blob
            (digest, min(received_bytes(root.folder, digest), size))
            for digest, size in lacking
        ),
        serving=serving,
        deployment=deployment,
        taken_back=find_taken_back(app, checked.manifest.digest) if serving is None else None,
    )


def _missing_blobs(root: Root, manifest: Manifest) -> List[Tuple[str, int]]:
    found = []
    for digest, size in manifest.sizes().items():
        # hashed even if all blobs exist: a deployment replaces damaged blobs that a load refused
        if root.store.size(digest) == size and root.store.is_whole(digest):
            root.store.renew(digest)
        else:
            found.append((digest, size))
    return found


def find_serving(root: Root, checked: Checked) -> Optional[str]:
    """Returns the current release if it is this bundle, is ready and can be read; else None."""
    app = root.app(checked.manifest.name)
    current = app.link("current")
    if current is None:
        return None
    folder = app.releases_folder / current
    if not is_ready(folder) or not is_readable(folder):
        return None
    same = _read(folder / MANIFEST) == checked.files.manifest
    return current if same and _read(folder / SIGNATURE) == checked.files.signature else None


def find_working(root: Root, checked: Checked) -> Optional[str]:
    """Returns the current release if it is this bundle and loads, without checking its blobs."""
    serving = find_serving(root, checked)
    if checked.signer is None and not is_accepted(root, checked.manifest.digest):
        return None  # it does not load until a deployment records that it is accepted
    if serving is not None and find_change(root, root.app(checked.manifest.name)) is not None:
        return None  # it does not load until a new deployment tests it again
    return serving


def _store_manifest(root: Root, checked: Checked) -> None:
    folder = root.folder / "incoming" / checked.manifest.digest
    manifest, signature = checked.files.manifest, checked.files.signature
    if read_incoming(root, folder.name) == (manifest, signature):
        # renews the grace of the collection
        os.utime(str(folder))
        return
    with workspace(root.folder) as work:
        new = work / "incoming"
        new.mkdir()
        write_durably(new / MANIFEST, manifest)
        if signature is not None:
            write_durably(new / SIGNATURE, signature)
        folder.parent.mkdir(exist_ok=True)
        if folder.exists():
            # the same manifest with another signature, or a damaged manifest
            folder.rename(work / "old")
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            return  # two hosts offered it at once: the other's copy is used
        fsync_folder(folder.parent)


def _find_manifest(root: Root, digest: str) -> Optional[bytes]:
    """Returns an offered manifest or a release's manifest by digest; None if it is unknown."""
    # any app's release: the name of a release ends with its manifest's digest
    releases = sorted(root.folder.glob("apps/*/releases/*-{}".format(digest[:12])))
    for folder in (root.folder / "incoming" / digest, *releases):
        manifest = _read(folder / MANIFEST)
        if manifest is not None and hashlib.sha256(manifest).hexdigest() == digest:
            return manifest
    return None


def _read(path: Path) -> Optional[bytes]:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
