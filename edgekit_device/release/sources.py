"""Where a bundle comes from: a path on the board or a mirror's ``http(s)://``. Sources are tried
in their order; the signature decides before anything of a manifest is read.
Start with ``open_sources`` and ``find_bundle``.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Sequence, Tuple, Union

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import map_file
from edgekit_device.protocol.codec import is_app_name, is_digest
from edgekit_device.protocol.manifest import MAX_MANIFEST
from edgekit_device.release.mirrors import (
    Credentials,
    Web,
    bad_answer,
    check_address,
    retrying,
    url_text,
)
from edgekit_device.store.root import Root
from edgekit_device.trust.bundle import (
    MANIFEST,
    SIGNATURE,
    BundleFiles,
    Checked,
    check_bundle,
    need_app,
    open_bundle,
)
from edgekit_device.trust.signature import MAX_SIGNATURE

_MOST = 12  # apps that an error lists
_RELEASE_NAME = re.compile(r"(?P<base>.*/)(?P<app>[^/]+)/(?P<digest>[0-9a-f]{64})/\Z")
Offer = Tuple[bytes, Optional[bytes]]

CREDENTIALS = "registries.json"
AUTHORITIES = "mirror-ca.pem"
_KINDS = "a path, or http(s)://HOST/PATH/ of a mirror (edgekit bundle push writes one)"

Locations = Union[str, Sequence[str]]
"""One source, or several (in one text: a line each) in the order in which they are asked."""


class LocalSource:
    """A path. Blobs may be absent where the board's store has them already."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._path = path.expanduser()
        self._files: Optional[BundleFiles] = None

    def close(self) -> None:
        """Closes the files."""
        self._files = None

    def offer(self, app: Optional[str]) -> Tuple[bytes, Optional[bytes]]:
        """Manifest and signature, neither checked: the caller does that before all else."""
        files = self._files = self._open(app)
        return files.manifest, files.signature

    def blob(self, digest: str) -> memoryview:
        """A blob's bytes, mapped and not hashed.

        Raises:
            DeviceError: "blob.missing".
        """
        mirrored = _mirrored(self._path, digest)
        if mirrored is not None:
            return map_file(mirrored)
        if self._files is None:
            try:
                self._files = self._open(None)
            except DeviceError as error:
                if error.code != "bundle.not-found":
                    raise
                # a mirror's folder, which has other blobs: the next source may have this one
                raise DeviceError(
                    "the source does not have it",
                    code="blob.missing",
                    where=digest,
                    hint="push the bundle there again",
                ) from error
        return self._files.blobs.read(digest)

    def _open(self, app: Optional[str]) -> BundleFiles:
        path = self._path
        if app is not None and (path / "blobs").is_dir() and not (path / MANIFEST).exists():
            self._need(app)
        latest = None if app is None else path / app / "latest"
        if latest is not None and latest.is_file():
            with map_os_errors(str(latest)), latest.open("rb") as file:
                digest = file.read(128).decode("ascii", "replace").strip()
            if not is_digest(digest):
                raise DeviceError(
                    "not a SHA-256",
                    code="source.bad-answer",
                    where=str(latest),
                    hint="push the bundle there again",
                )
            path = path / str(app) / digest
        files = open_bundle(path)
        return BundleFiles(files.where, files.manifest, files.signature, files.blobs)

    def _need(self, app: str) -> None:
        """Raises DeviceError "source.not-found" where this mirror's folder lacks the app."""
        if (self._path / app / "latest").is_file():
            return
        with map_os_errors(self.where):
            found = sorted(
                name for name in os.listdir(str(self._path))
                if is_app_name(name) and (self._path / name / "latest").is_file()
            )  # fmt: skip
        more = " and {} more".format(len(found) - _MOST) if len(found) > _MOST else ""
        raise DeviceError(
            "the mirror has no app {}".format(app),
            code="source.not-found",
            where=self.where,
            hint="its apps: {}{}".format(", ".join(found[:_MOST]) or "none", more),
        )


def _mirrored(path: Path, digest: str) -> Optional[Path]:
    """The blob's file where ``path`` is a mirror's folder, or a bundle's folder in one."""
    for base in (path, path.parent.parent):
        found = base / "blobs" / digest[:2] / digest
        if found.is_file():
            return found
    return None


# A mirror is a folder of plain files:
#
#     APP/latest                      the newest bundle's digest, one line
#     APP/DIGEST/manifest.json(.sig)  DIGEST is the manifest's SHA-256
#     blobs/XX/SHA256                 XX is the first byte of SHA256, as in the board's own store
class Mirror:
    """Plain files on an HTTP server, with connections for each thread.

    Args:
        url: Of the mirror, or of one bundle in it.
        credentials: Users and passwords by host.
        ca: Certificates that are trusted in addition to the system's.

    Raises:
        DeviceError: "source.bad-address".
    """

    def __init__(self, url: str, credentials: Credentials, ca: Optional[Path]) -> None:
        self.where = url_text(url)
        parts = check_address(url)
        if parts.query or parts.fragment:
            raise bad_answer(url, "a mirror's address must not contain ? or #")
        base = url if url.endswith("/") else url + "/"
        found = _RELEASE_NAME.match(base)
        self.base = found.group("base") if found else base
        self._release = (found.group("app"), found.group("digest")) if found else None
        self._credentials = credentials
        self._ca = None if ca is None else str(ca)
        self._local = threading.local()
        self._webs: List[Web] = []

    def web(self) -> Web:
        """This thread's connections."""
        found: Optional[Web] = getattr(self._local, "web", None)
        if found is None:
            found = self._local.web = Web(self._credentials, self._ca)
            self._webs.append(found)
        return found

    def close(self) -> None:
        """Closes every thread's connections."""
        for web in self._webs:
            web.close()

    def blob_url(self, digest: str) -> str:
        """The address of a blob."""
        return "{}blobs/{}/{}".format(self.base, digest[:2], digest)

    def open(self, digest: str, start: int) -> http.client.HTTPResponse:
        """Requests a blob from byte ``start`` on.

        Raises:
            Trouble: It may pass.
            DeviceError: It will not.
        """
        headers = {"Range": "bytes={}-".format(start)} if start else {}
        return self.web().request(self.blob_url(digest), headers)

    def offer(self, app: Optional[str]) -> Offer:
        """Manifest and signature of the bundle that the address names, or of the app's newest.

        Neither is checked: the caller does that before all else.
        """
        name, digest = self._release or (app, None)
        if name is None or not is_app_name(name):
            raise DeviceError(
                "the address does not name the app",
                code="source.no-app",
                where=self.where,
                hint="give --app, or add /APP/DIGEST/ to the address",
            )
        if digest is None:
            try:
                text = self._read("{}{}/latest".format(self.base, name), 128)
            except DeviceError as error:
                if error.code != "source.not-found":
                    raise
                raise DeviceError(
                    "the mirror has no app {}".format(name),
                    code=error.code,
                    where=self.where,
                    hint="push its bundle there, or check the name and the address",
                ) from error
            digest = text.decode("ascii", "replace").strip()
            if not is_digest(digest):
                raise bad_answer(self.where, "{}/latest is not a SHA-256".format(name))
        folder = "{}{}/{}/".format(self.base, name, digest)
        manifest = self._read(folder + MANIFEST, MAX_MANIFEST)
        _check_name(self.where, manifest, digest)
        try:
            return manifest, self._read(folder + SIGNATURE, MAX_SIGNATURE)
        except DeviceError as error:
            if error.code != "source.not-found":
                raise
            return manifest, None

    def _read(self, url: str, most: int) -> bytes:
        return retrying(url, lambda: self.web().read(url, most))


def _check_name(where: str, data: bytes, digest: str) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        raise DeviceError(
            "the server sent wrong bytes for {}".format(digest),
            code="source.wrong-bytes",
            where=where,
            hint="the mirror is damaged or not to be trusted; push the bundle there again",
        )


# A source is a path on the board or a mirror's ``http(s)://``. Sources are tried in their order;
# one that fails or gives wrong bytes is named in the answer and the next one is tried. Whatever a
# source says, the signature decides before anything of a manifest is read, and a blob has its
# name's SHA-256 before it is in the store.
Source = Union[LocalSource, Mirror]


@dataclass
class Fetched:
    """What ``fetch_from`` brought into the store.

    Attributes:
        blobs: Blobs that were missing.
        bytes: Their bytes that came now (without those of an earlier try).
        notes: What went wrong with a source that another made good.
    """

    blobs: int = 0
    bytes: int = 0
    notes: List[str] = field(default_factory=list)


class Sources:
    """Opened sources; no request was sent to them yet."""

    def __init__(self, all: Sequence[Source]) -> None:
        self.all = list(all)
        self.notes: List[str] = []


@contextmanager
def open_sources(root: Root, where: Locations) -> Iterator[Sources]:
    """Opens sources by their addresses; no connection is made yet.

    Raises:
        DeviceError: "source.bad-address", "source.credentials".
    """
    texts = where.splitlines() if isinstance(where, str) else list(where)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise DeviceError(
            "no source was given",
            code="source.bad-address",
            hint=_KINDS,
        )
    found = Sources([_open(root, text) for text in texts])
    try:
        yield found
    finally:
        for source in found.all:
            source.close()


def find_bundle(
    root: Root,
    sources: Sources,
    *,
    app: Optional[str] = None,
    trust_unsigned: bool = False,
    accept: Callable[[Checked], None] = lambda checked: None,
) -> Checked:
    """Takes manifest and signature from the first source that has good ones.

    Its blobs are to come from the root's store: ``fetch_from`` puts there what is missing.

    Args:
        root: The installation.
        sources: Where to look, in this order.
        app: Whose bundle is meant; a source that offers another application's has none.
        trust_unsigned: As of ``check_bundle``.
        accept: Raises DeviceError for a bundle that is good, and not wanted.

    Raises:
        DeviceError: The last source's: "source.*", "bundle.*" or "manifest.*", or what ``accept``
            raises.
    """
    store = root.store

    def take(source: Source) -> Checked:
        manifest, signature = source.offer(app)
        files = BundleFiles(source.where, manifest, signature, store)
        checked = check_bundle(files, root.allowed_signers, trust_unsigned)
        if app is not None:
            need_app(checked, app)
        accept(checked)
        return checked

    failed: Optional[DeviceError] = None
    for source in sources.all:
        try:
            return take(source)
        except DeviceError as error:
            failed = error
            sources.notes.append(_note(source, error))
    assert failed is not None
    if len(sources.all) > 1:
        failed.hint = "; ".join([*sources.notes, failed.hint])
    raise failed


def _open(root: Root, text: str) -> Source:
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if not scheme:
        return LocalSource(Path(text))
    if scheme not in ("http", "https"):
        raise DeviceError(
            "sources of this kind are not supported: {!r}".format(scheme[:40]),
            code="source.bad-address",
            hint=_KINDS,
        )
    authorities = root.folder / AUTHORITIES
    return Mirror(
        text,
        Credentials.read(root.folder / CREDENTIALS),
        authorities if authorities.is_file() else None,
    )


def _note(source: Source, error: DeviceError) -> str:
    return "{}: {}".format(source.where, error.message)
