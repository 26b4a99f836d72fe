"""The command ``offer``: a bundle is announced, and the board answers which of its blobs it lacks.

First the host sends the digest alone: for a bundle that the board has, the answer comes at once.
Otherwise it sends the manifest, as a difference to one that is here (``protocol.delta``). An
offered manifest waits in ``incoming/<digest>/`` until a deployment makes a release of it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

from edgekit_device.board.identity import HelloThread
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import fsync_folder, workspace, write_durably
from edgekit_device.protocol.codec import is_app_name, is_digest, protocol_error, read_json
from edgekit_device.protocol.delta import prints, unpack
from edgekit_device.protocol.manifest import Manifest
from edgekit_device.release.changed import changed_of
from edgekit_device.release.journal import read_journal, taken_back
from edgekit_device.release.releases import is_ready
from edgekit_device.store.partial import received_bytes
from edgekit_device.store.root import App, Root
from edgekit_device.trust.bundle import MANIFEST, SIGNATURE, BundleFiles, Checked, check_bundle

# a manifest's text in JSON, or less: packed ones are smaller
_MAX_ENVELOPE = 6 * (64 << 20) + (1 << 20)
_FIELDS = {"app", "base", "bytes", "digest", "grain", "manifest", "packed", "signature"}


def do_offer(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Keeps a manifest whose signature is good, and answers what is missing of its blobs.

    Raises:
        DeviceError: As ``stage`` for a signature or a manifest that is refused ("bundle.*",
            "manifest.*"), "protocol.invalid", or "offer.invalid" for one that is packed wrongly.
    """
    document = read_json(stdin, _MAX_ENVELOPE)
    if not isinstance(document, dict) or not set(document) <= _FIELDS:
        raise protocol_error('expected {"digest" or "manifest", "signature", ...}')
    signature = _bytes(document.get("signature"), "signature")
    with root.lock(shared=True), map_os_errors(str(root.folder)):
        manifest = _manifest(root, document)
        if manifest is None:
            return {
                "known": False,
                "digest": document["digest"],
                "base": _base(root, document.get("app")),
            }
        hello = None
        if arguments.hello:
            hello = HelloThread(root.folder)
        try:
            answer = _answer(root, manifest, signature, arguments.trust_unsigned)
        finally:
            if hello is not None:
                hello.join()
    if hello is not None:
        answer["hello"] = hello.facts()
    return answer


def take_offer(
    root: Root, manifest: bytes, signature: Optional[bytes], trust_unsigned: bool = False
) -> Dict[str, Any]:
    """Keeps a manifest that this board found itself; raises and answers as ``offer``."""
    with root.lock(shared=True), map_os_errors(str(root.folder)):
        return _answer(root, manifest, signature, trust_unsigned)


def read_incoming(root: Root, digest: str) -> Optional[Tuple[bytes, Optional[bytes]]]:
    """The offered manifest of that digest and its signature; None when there is none."""
    if not is_digest(digest):
        raise DeviceError("not a SHA-256", code="offer.invalid", where=repr(digest)[:80])
    manifest = _read(root.folder / "incoming" / digest / MANIFEST)
    if manifest is None or hashlib.sha256(manifest).hexdigest() != digest:
        return None
    return manifest, _read(root.folder / "incoming" / digest / SIGNATURE)


def incoming(root: Root) -> List[Path]:
    """The folders of all offered manifests; their names are the digests."""
    folder = root.folder / "incoming"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if is_digest(path.name)]


def drop_incoming(root: Root, digest: str) -> None:
    """Forgets an offered manifest."""
    folder = root.folder / "incoming" / digest
    with map_os_errors(str(folder)), workspace(root.folder) as work:
        try:
            folder.rename(work / digest)
        except FileNotFoundError:
            return
        fsync_folder(folder.parent)


def _answer(
    root: Root, manifest: bytes, signature: Optional[bytes], trust_unsigned: bool
) -> Dict[str, Any]:
    store = root.store
    files = BundleFiles("the offered bundle", manifest, signature, store.read, store.has)
    checked = check_bundle(files, root.allowed_signers, trust_unsigned)
    app = root.app(checked.manifest.name)
    lacking = _missing(root, checked.manifest)
    serving = None if lacking else serves(root, checked)
    if changed_of(root, app) is not None:
        serving = None  # it loads no more until it is deployed again, which tests it anew
    if serving is None:
        _keep(root, checked)
    back = taken_back(app, checked.manifest.digest) if serving is None else None
    return {
        **({"taken_back": back} if back else {}),
        "known": True,
        "digest": checked.manifest.digest,
        "app": checked.manifest.name,
        "signer": checked.signer,
        "missing": [
            [digest, min(received_bytes(root.folder, digest), size)] for digest, size in lacking
        ],
        "serving": serving,
        "deployment": None if serving is None else _deployment(app),
    }


def _missing(root: Root, manifest: Manifest) -> List[Tuple[str, int]]:
    found = []
    for digest, size in manifest.sizes().items():
        if root.store.size(digest) == size:
            root.store.renew(digest)
        else:
            found.append((digest, size))
    return found


def serves(root: Root, checked: Checked) -> Optional[str]:
    """The current release, if it is this bundle and ready."""
    app = root.app(checked.manifest.name)
    current = app.link("current")
    if current is None or not is_ready(app.releases_folder / current):
        return None
    folder = app.releases_folder / current
    same = _read(folder / MANIFEST) == checked.files.manifest
    return current if same and _read(folder / SIGNATURE) == checked.files.signature else None


def _deployment(app: App) -> Optional[Dict[str, Any]]:
    """How the release that serves came to, and what served before it; None if unknown."""
    journal = read_journal(app)
    return None if journal is None else dict(journal.facts, previous=app.link("previous"))


def _keep(root: Root, checked: Checked) -> None:
    folder = root.folder / "incoming" / checked.manifest.digest
    manifest, signature = checked.files.manifest, checked.files.signature
    if read_incoming(root, folder.name) == (manifest, signature):
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
            # the same manifest with another signature, or a damaged one
            folder.rename(work / "old")
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            return  # offered by two at once: the other's stands
        fsync_folder(folder.parent)


def _manifest(root: Root, document: Dict[str, Any]) -> Optional[bytes]:
    """The offered manifest's bytes, unchecked; None if only its digest was sent and it is new."""
    if "manifest" in document:
        return _bytes(document["manifest"], "manifest") or b""
    digest, base = document.get("digest"), document.get("base")
    if not is_digest(digest) or not (base is None or is_digest(base)):
        raise protocol_error("expected SHA-256 digests")
    if "packed" not in document:
        return _known(root, str(digest))
    found = None if base is None else _known(root, base)
    if base is not None and found is None:
        raise DeviceError(
            "the manifest that this one builds on is gone",
            code="offer.invalid",
            where=base,
            hint="offer it whole",
        )
    return unpack(document, found)


def _known(root: Root, digest: str) -> Optional[bytes]:
    """A manifest that is here, by digest: an offered one or a release's."""
    for folder in (root.folder / "incoming" / digest, *_releases(root, "*", digest[:12])):
        manifest = _read(folder / MANIFEST)
        if manifest is not None and hashlib.sha256(manifest).hexdigest() == digest:
            return manifest
    return None


def _base(root: Root, app: object) -> Optional[Dict[str, Any]]:
    """What a new manifest of ``app`` is likely to be like: its current or its newest release."""
    if not is_app_name(app):
        return None
    target = root.app(str(app))
    names = [target.link("current"), *reversed(target.releases())]
    for name in names:
        manifest = None if name is None else _read(target.releases_folder / name / MANIFEST)
        if manifest is not None:
            return prints(manifest)
    return None


def _releases(root: Root, app: str, short: str) -> List[Path]:
    return sorted(root.folder.glob("apps/{}/releases/*-{}".format(app, short)))


def _read(path: Path) -> Optional[bytes]:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _bytes(value: object, name: str) -> Optional[bytes]:
    if value is None:
        return None
    if not isinstance(value, str):
        raise protocol_error("{}: expected text".format(name))
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise protocol_error("{}: no UTF-8 text".format(name)) from error
