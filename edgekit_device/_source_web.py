"""Bundle sources on a network: a folder behind any HTTP server, and a registry (OCI).

A mirror is plain files, written by ``edgekit bundle push``::

    APP/latest                      the newest bundle's digest, one line
    APP/DIGEST/manifest.json(.sig)  DIGEST is the manifest's SHA-256
    blobs/XX/SHA256                 XX is the first byte of SHA256, as in the board's own store

In a registry a bundle is one image manifest (OCI image specification 1.1) whose layers are the
bundle's manifest, its signature and its blobs; read by OCI's distribution specification 1.1.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from ._bundle import MANIFEST, SIGNATURE
from ._checks import is_app_name, is_digest, parse_json
from ._errors import DeviceError
from ._manifest import MAX_MANIFEST
from ._signature import MAX_SIGNATURE
from ._source_auth import Credentials, is_loopback
from ._source_http import Tokens, Web
from ._source_rules import bad_answer, check_address, retrying, shown

__all__ = ["IMAGE", "MANIFEST_TYPE", "SIGNATURE_TYPE", "Mirror", "Registry", "WebSource"]

IMAGE = "application/vnd.oci.image.manifest.v1+json"
MANIFEST_TYPE = "application/vnd.edgekit.bundle.manifest.v1+json"
SIGNATURE_TYPE = "application/vnd.edgekit.bundle.signature.v1"
# registries take image manifests of at least 4 MiB (OCI distribution specification, "Pushing
# Manifests"); larger ones are not portable
MAX_IMAGE = 4 << 20
_RELEASE = re.compile(r"(?P<base>.*/)(?P<app>[^/]+)/(?P<digest>[0-9a-f]{64})/\Z")
_IMAGE_NAME = re.compile(
    r"/(?P<repository>[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(?:@sha256:(?P<digest>[0-9a-f]{64})|:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))\Z"
)

Offer = Tuple[bytes, Optional[bytes]]


class WebSource:
    """What mirrors and registries share: one ``Web`` for each thread."""

    def __init__(self, where: str, credentials: Credentials, ca: Optional[Path]) -> None:
        self.where = shown(where)
        self._credentials = credentials
        self._ca = None if ca is None else str(ca)
        self._tokens: Tokens = {}
        self._local = threading.local()
        self._webs: List[Web] = []

    def web(self) -> Web:
        """This thread's connections."""
        found: Optional[Web] = getattr(self._local, "web", None)
        if found is None:
            found = self._local.web = Web(self._credentials, self._tokens, self._ca)
            self._webs.append(found)
        return found

    def close(self) -> None:
        """Closes every thread's connections."""
        for web in self._webs:
            web.close()

    def offer(self, app: Optional[str]) -> Offer:
        """Manifest and signature, neither checked: the caller does that before all else."""
        raise NotImplementedError

    def blob_url(self, digest: str) -> str:
        """Where a blob lies."""
        raise NotImplementedError

    def open(self, digest: str, start: int) -> http.client.HTTPResponse:
        """Asks for a blob from byte ``start`` on.

        Raises:
            Trouble: It may pass.
            DeviceError: It will not.
        """
        headers = {"Range": "bytes={}-".format(start)} if start else {}
        return self.web().request("GET", self.blob_url(digest), headers)

    def _read(self, url: str, most: int, accept: str = "") -> bytes:
        return retrying(url, lambda: self.web().read(url, most, accept))


class Mirror(WebSource):
    """Plain files behind an HTTP server."""

    def __init__(self, url: str, credentials: Credentials, ca: Optional[Path]) -> None:
        super().__init__(url, credentials, ca)
        parts = check_address(url)
        if parts.query or parts.fragment:
            raise bad_answer(url, "a mirror's address has no ? and no #")
        base = url if url.endswith("/") else url + "/"
        found = _RELEASE.match(base)
        self.base = found.group("base") if found else base
        self._release = (found.group("app"), found.group("digest")) if found else None

    def blob_url(self, digest: str) -> str:
        """Where a blob lies."""
        return "{}blobs/{}/{}".format(self.base, digest[:2], digest)

    def offer(self, app: Optional[str]) -> Offer:
        """The bundle that the address names, or the app's newest."""
        name, digest = self._release or (app, None)
        if name is None or not is_app_name(name):
            raise DeviceError(
                "the address does not say which app's bundle is meant",
                code="source.no-app",
                where=self.where,
                hint="give --app, or add /APP/DIGEST/ to the address",
            )
        if digest is None:
            text = self._read("{}{}/latest".format(self.base, name), 128)
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


class Registry(WebSource):
    """A repository of a registry that speaks OCI's distribution API."""

    def __init__(self, url: str, credentials: Credentials, ca: Optional[Path]) -> None:
        super().__init__(url, credentials, ca)
        parts = check_address(url)
        found = _IMAGE_NAME.match(parts.path)
        if found is None or parts.query or parts.fragment:
            raise DeviceError(
                "not an image's name",
                code="source.bad-address",
                where=self.where,
                hint="oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST",
            )
        # the rule of Docker and containerd: HTTP only to this machine; else where it is asked for
        plain = parts.scheme == "oci+http" or is_loopback(parts.hostname)
        scheme = "http" if plain else "https"
        self.base = "{}://{}/v2/{}/".format(scheme, parts.netloc, found.group("repository"))
        self.reference = (
            found.group("tag") if found.group("tag") else "sha256:" + found.group("digest")
        )
        self._digest = found.group("digest")

    def blob_url(self, digest: str) -> str:
        """Where a blob lies."""
        return "{}blobs/sha256:{}".format(self.base, digest)

    def offer(self, app: Optional[str]) -> Offer:
        """The bundle that the image is."""
        url = self.base + "manifests/" + self.reference
        data = self._read(url, MAX_IMAGE, IMAGE)
        if self._digest is not None:
            _check_name(self.where, data, self._digest)
        layers = _layers(url, data)
        manifest = self._layer(layers, MANIFEST_TYPE, MAX_MANIFEST)
        if manifest is None:
            raise bad_answer(self.where, "the image is no bundle of edgekit's")
        return manifest, self._layer(layers, SIGNATURE_TYPE, MAX_SIGNATURE)

    def _layer(self, layers: Dict[str, str], kind: str, most: int) -> Optional[bytes]:
        digest = layers.get(kind)
        if digest is None:
            return None
        data = self._read(self.blob_url(digest), most)
        _check_name(self.where, data, digest)
        return data


def _layers(url: str, data: bytes) -> Dict[str, str]:
    """Digests of the layers that are one of a kind, by media type.

    The image manifest is not signed; it only says where manifest and signature lie, and these are
    judged by themselves.
    """
    document: Any = parse_json(data, shown(url), "source.bad-answer")
    layers = document.get("layers") if isinstance(document, dict) else None
    if not isinstance(layers, list) or document.get("schemaVersion") != 2:
        raise bad_answer(url, "not an image manifest")
    found: Dict[str, str] = {}
    for layer in layers:
        kind = layer.get("mediaType") if isinstance(layer, dict) else None
        if kind in (MANIFEST_TYPE, SIGNATURE_TYPE):
            digest = str(layer.get("digest"))
            if not digest.startswith("sha256:") or not is_digest(digest[7:]) or kind in found:
                raise bad_answer(url, "its layers are not those of a bundle")
            found[kind] = digest[7:]
    return found


def _check_name(where: str, data: bytes, digest: str) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        raise DeviceError(
            "the server gave other bytes than {}".format(digest),
            code="source.wrong-bytes",
            where=where,
            hint="the mirror is damaged or not to be trusted; push the bundle there again",
        )
