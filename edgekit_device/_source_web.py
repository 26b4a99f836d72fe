"""Bundles behind any HTTP server: a folder of plain files, written by ``edgekit bundle push``.

::

    APP/latest                      the newest bundle's digest, one line
    APP/DIGEST/manifest.json(.sig)  DIGEST is the manifest's SHA-256
    blobs/XX/SHA256                 XX is the first byte of SHA256, as in the board's own store
"""

from __future__ import annotations

import hashlib
import http.client
import re
import threading
from pathlib import Path
from typing import List, Optional, Tuple

from ._bundle import MANIFEST, SIGNATURE
from ._checks import is_app_name, is_digest
from ._errors import DeviceError
from ._manifest import MAX_MANIFEST
from ._signature import MAX_SIGNATURE
from ._source_auth import Credentials
from ._source_http import Web
from ._source_rules import bad_answer, check_address, retrying, shown

__all__ = ["Mirror"]

_RELEASE = re.compile(r"(?P<base>.*/)(?P<app>[^/]+)/(?P<digest>[0-9a-f]{64})/\Z")

Offer = Tuple[bytes, Optional[bytes]]


class Mirror:
    """Plain files behind an HTTP server, with connections for each thread that asks.

    Args:
        url: Of the mirror, or of one bundle in it.
        credentials: Users and passwords by host.
        ca: Certificates that are trusted beside the system's.

    Raises:
        DeviceError: "source.bad-address".
    """

    def __init__(self, url: str, credentials: Credentials, ca: Optional[Path]) -> None:
        self.where = shown(url)
        parts = check_address(url)
        if parts.query or parts.fragment:
            raise bad_answer(url, "a mirror's address has no ? and no #")
        base = url if url.endswith("/") else url + "/"
        found = _RELEASE.match(base)
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
        """Where a blob lies."""
        return "{}blobs/{}/{}".format(self.base, digest[:2], digest)

    def open(self, digest: str, start: int) -> http.client.HTTPResponse:
        """Asks for a blob from byte ``start`` on.

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
                "the address does not say which app's bundle is meant",
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
                    hint="push its bundle there, or look at the name and the address",
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
            "the server gave other bytes than {}".format(digest),
            code="source.wrong-bytes",
            where=where,
            hint="the mirror is damaged or not to be trusted; push the bundle there again",
        )
