"""HTTP for bundle sources: kept-alive connections, bounded redirects, retries, tokens.

``urllib.request`` opens a connection for each request; a network has hundreds of small tensors, so
this stands on ``http.client`` and keeps them open. One ``Web`` belongs to one thread.
"""

from __future__ import annotations

import base64
import http.client
import re
import ssl
from contextlib import suppress
from typing import Any, Dict, Mapping, Optional, Tuple
from urllib.parse import SplitResult, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from ._checks import parse_json
from ._errors import DeviceError
from ._source_auth import Credentials, read_challenge
from ._source_rules import (
    Trouble,
    bad_answer,
    check_redirect,
    check_secret,
    led_to,
    said,
    shown,
    status_error,
)

__all__ = ["Tokens", "Web"]

TIMEOUT_S = 30.0
_REDIRECTS = 5
_MAX_TOKEN = 1 << 20
_AGENT = "edgekit-device"
_REPOSITORY = re.compile(r"/v2/(.+)/(?:blobs|manifests)/")
# a server may close a connection that lay idle, just as it is asked again
_IDLE = (ConnectionError, http.client.BadStatusLine)

Tokens = Dict[Tuple[str, str, str], str]
"""Bearer tokens by origin and repository, shared by the threads of one source."""


class Web:
    """Connections of one thread to whatever one source leads to."""

    def __init__(self, credentials: Credentials, tokens: Tokens, ca: Optional[str] = None) -> None:
        self._credentials = credentials
        self._tokens = tokens
        self._ca = ca
        self._open: Dict[Tuple[str, str], http.client.HTTPConnection] = {}

    def close(self) -> None:
        """Closes every connection."""
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()

    def read(self, url: str, most: int, accept: str = "") -> bytes:
        """Reads a small document, at most ``most`` bytes.

        Raises:
            Trouble: It may pass.
            DeviceError: "source.not-found", "source.refused", "source.bad-answer", ...
        """
        reply = self.request("GET", url, {"Accept": accept} if accept else {})
        try:
            data = reply.read(most + 1)
        except (OSError, http.client.HTTPException) as error:
            reply.close()
            self.close()
            raise Trouble(said(error)) from error
        if len(data) > most:
            reply.close()
            self.close()
            raise bad_answer(url, "more than {} bytes".format(most))
        return data

    def request(
        self,
        method: str,
        url: str,
        headers: Optional[Mapping[str, str]] = None,
        body: Any = None,
        good: Tuple[int, ...] = (200, 206),
    ) -> http.client.HTTPResponse:
        """Asks, follows redirects and answers a registry's 401; the answer's body is unread.

        Raises:
            Trouble: It may pass.
            DeviceError: It will not.
        """
        first, tried = url, False
        for _ in range(_REDIRECTS + 2):
            reply = self._once(method, url, dict(headers or {}), body)
            if reply.status in good:
                return reply
            if reply.status == 401 and not tried and self._answer(url, reply):
                tried = True
                continue
            if reply.status in (301, 302, 303, 307, 308) and method in ("GET", "HEAD"):
                self._drop(reply, url)
                url = led_to(url, reply.getheader("Location") or "")
                continue
            self._drop(reply, url)
            raise status_error(reply.status, url)
        raise DeviceError(
            "more than {} redirects".format(_REDIRECTS), code="source.redirect", where=shown(first)
        )

    def _once(
        self, method: str, url: str, headers: Dict[str, str], body: Any
    ) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        token = self._token(parts)
        headers.setdefault("User-Agent", _AGENT)
        # a compressed blob would have another SHA-256 than its name
        headers.setdefault("Accept-Encoding", "identity")
        if token:
            headers["Authorization"] = token
        origin = (parts.scheme, parts.netloc)
        kept = origin in self._open
        try:
            connection = self._open.get(origin) or self._connect(parts)
            self._open[origin] = connection
            target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
            if getattr(connection, "whole_target", False):
                target = urlunsplit(parts._replace(fragment=""))
                headers.update(getattr(connection, "proxy_headers", {}))
            connection.request(method, target, body=body, headers=headers)
            # another thread may have closed all in between; then this one was opened anew
            self._open[origin] = connection
            return connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            self._close(origin)
            raise DeviceError(
                "the server's certificate is not good: {}".format(error.verify_message),
                code="source.certificate",
                where=shown(url),
                hint="put the authority's certificate into mirror-ca.pem in the board's folder",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self._close(origin)
            if kept and body is None and isinstance(error, _IDLE):
                return self._once(method, url, headers, body)
            raise Trouble(said(error)) from error

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        host, port = parts.hostname or "", parts.port
        address = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
        proxy = urlsplit(address if "://" in address else "http://" + address) if address else None
        login = {} if proxy is None else _proxy_login(proxy)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            if self._ca is not None:
                context.load_verify_locations(self._ca)
            if proxy is None:
                return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
            tunnel = http.client.HTTPSConnection(
                proxy.hostname or "", proxy.port, timeout=TIMEOUT_S, context=context
            )
            tunnel.set_tunnel(host, port, login)
            return tunnel
        if proxy is None:
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        plain = http.client.HTTPConnection(proxy.hostname or "", proxy.port, timeout=TIMEOUT_S)
        plain.whole_target = True  # type: ignore[attr-defined]
        plain.proxy_headers = login  # type: ignore[attr-defined]
        return plain

    def _token(self, parts: SplitResult) -> Optional[str]:
        return self._tokens.get((parts.scheme, parts.netloc, _repository(parts.path)))

    def _answer(self, url: str, reply: http.client.HTTPResponse) -> bool:
        """Gets what a 401 asks for; False when there is nothing to get it with."""
        parts = urlsplit(url)
        challenge = read_challenge(reply.getheader("WWW-Authenticate") or "")
        self._drop(reply, url)
        basic = self._credentials.basic(parts.netloc)
        if challenge is None or (challenge.scheme == "basic" and basic is None):
            return False
        key = (parts.scheme, parts.netloc, _repository(parts.path))
        if challenge.scheme == "basic" and basic is not None:
            check_secret(parts)
            self._tokens[key] = basic
            return True
        realm = challenge.parameters.get("realm", "")
        if challenge.scheme != "bearer" or not realm:
            return False
        check_redirect(url, realm)
        asked = {k: challenge.parameters[k] for k in ("service", "scope") if k in
                 challenge.parameters}  # fmt: skip
        where = urlsplit(realm)
        address = realm + ("&" if where.query else "?") + urlencode(asked)
        headers = {}
        if basic is not None:
            check_secret(where)
            headers["Authorization"] = basic
        found = self._once("GET", address, headers, None)
        try:
            data = found.read(_MAX_TOKEN) if found.status == 200 else b""
        except (OSError, http.client.HTTPException) as error:
            self._close((where.scheme, where.netloc))
            raise Trouble(said(error)) from error
        self._drop(found, address)
        if not data:
            return False
        document = parse_json(data, shown(realm), "source.bad-answer")
        fields = document if isinstance(document, dict) else {}
        token = fields.get("token") or fields.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise bad_answer(realm, "no token")
        self._tokens[key] = "Bearer " + token
        return True

    def _drop(self, reply: http.client.HTTPResponse, url: str) -> None:
        """Leaves an answer's body unread; its connection is of no use then unless it is short."""
        parts = urlsplit(url)
        with suppress(OSError, http.client.HTTPException):
            reply.read(4096)
        if not reply.isclosed():
            reply.close()
            self._close((parts.scheme, parts.netloc))

    def _close(self, origin: Tuple[str, str]) -> None:
        connection = self._open.pop(origin, None)
        if connection is not None:
            connection.close()


def _repository(path: str) -> str:
    found = _REPOSITORY.match(path)
    return found.group(1) if found else ""


def _proxy_login(proxy: SplitResult) -> Dict[str, str]:
    if not proxy.username:
        return {}
    login = "{}:{}".format(unquote(proxy.username), unquote(proxy.password or ""))
    value = base64.b64encode(login.encode("utf-8")).decode("ascii")
    return {"Proxy-Authorization": "Basic " + value}
