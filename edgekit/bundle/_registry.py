"""Bundles into a registry, by OCI's distribution specification 1.1 ("Push").

Connections, tokens and the rules for redirects are the board's (``edgekit_device``): one
implementation reads and writes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from edgekit.bundle._mirror import Pushed, stripped
from edgekit.bundle._oci import image_manifest, image_parts
from edgekit.bundle._types import blob_view
from edgekit.errors import BundleError

if TYPE_CHECKING:
    from edgekit.bundle._types import Bundle
    from edgekit_device._source_auth import Credentials
    from edgekit_device._source_web import Registry

__all__ = ["push_registry"]

_THREADS = 4
_HELPER_S = 60
_LOGIN = "log in with `docker login HOST` (or oras, podman): its config.json is read here"


def push_registry(bundle: Bundle, url: str) -> Pushed:
    """Pushes a bundle; blobs that the repository has stay there and do not travel.

    Users and passwords are those of Docker's ``config.json`` and its credential helpers.

    Args:
        bundle: With its signature.
        url: ``oci://REGISTRY/REPOSITORY:TAG``.

    Raises:
        BundleError: "bundle.incomplete", "bundle.too-many-blobs", or what the registry says:
            "source.*".
    """
    from edgekit_device._errors import DeviceError
    from edgekit_device._source_web import IMAGE, Registry

    host = urlsplit(url).netloc
    try:
        registry = Registry(url, _credentials(host), _authorities())
        if registry.reference.startswith("sha256:"):
            raise BundleError(
                "a bundle is pushed under a tag", where=url, hint="oci://REGISTRY/REPOSITORY:TAG"
            )
        try:
            data = image_manifest(bundle)
            sizes, have = image_parts(bundle)
            with ThreadPoolExecutor(_THREADS) as pool:
                there = dict(zip(sizes, pool.map(lambda d: _has(registry, d), sizes), strict=True))
                absent = [digest for digest in sizes if not there[digest]]
                lacking = [digest for digest in absent if digest not in have]
                if lacking:
                    raise stripped(len(lacking), url)
                list(pool.map(lambda d: _upload(registry, d, bytes(blob_view(have[d]))), absent))
            target = f"{registry.base}manifests/{registry.reference}"
            _ask(registry, "PUT", target, (201,), data, {"Content-Type": IMAGE})
        finally:
            registry.close()
    except DeviceError as error:
        login = error.code in ("source.refused", "source.credentials")
        raise BundleError(
            error.message,
            code=error.code,
            where=error.where or url,
            hint=_LOGIN if login else error.hint,
        ) from error
    count = sum(sizes[digest] for digest in absent)
    return Pushed(url, bundle.digest, len(absent), count, len(sizes) - len(absent))


def _has(registry: Registry, digest: str) -> bool:
    return _ask(registry, "HEAD", registry.blob_url(digest), (200, 404))[0] == 200


def _upload(registry: Registry, digest: str, data: bytes) -> None:
    start = registry.base + "blobs/uploads/"
    _, location = _ask(registry, "POST", start, (202,), b"")
    target = urljoin(start, location)
    target += ("&" if urlsplit(target).query else "?") + f"digest=sha256:{digest}"
    _ask(registry, "PUT", target, (201,), data, {"Content-Type": "application/octet-stream"})


def _ask(
    registry: Registry,
    method: str,
    url: str,
    good: tuple[int, ...],
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Returns the status and the Location of an answer."""
    from edgekit_device._source_rules import check_redirect, retrying

    def once() -> tuple[int, str]:
        # a registry that answers with another server's address may not lead away from HTTPS
        check_redirect(registry.base, url)
        reply = registry.web().request(method, url, headers, body, good)
        reply.read()
        return reply.status, reply.getheader("Location") or ""

    return retrying(url, once)


def _authorities() -> Path | None:
    chosen = os.environ.get("SSL_CERT_FILE")
    return Path(chosen) if chosen else None


def _credentials(host: str) -> Credentials:
    from edgekit_device._source_auth import Credentials

    folder = os.environ.get("DOCKER_CONFIG")
    path = Path(folder) if folder else Path.home() / ".docker"
    path /= "config.json"
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return Credentials()
    helper = (document.get("credHelpers") or {}).get(host) or document.get("credsStore")
    if helper:
        return _helped(str(helper), host)
    if not (document.get("auths") or {}).get(host):
        return Credentials()
    return Credentials.read(path)


def _helped(helper: str, host: str) -> Credentials:
    """Asks a credential helper (docker-credential-helpers, "get")."""
    from edgekit_device._source_auth import Credentials

    program = shutil.which(f"docker-credential-{helper}")
    if program is None:
        return Credentials()
    try:
        done = subprocess.run(
            [program, "get"], input=host.encode(), capture_output=True, timeout=_HELPER_S,
            check=False,
        )  # fmt: skip
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
        return Credentials({host: (answer["Username"], answer["Secret"])})
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return Credentials()
