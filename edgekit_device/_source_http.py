"""HTTP for mirrors: kept-alive connections, bounded redirects, passwords where they are asked for.

``urllib.request`` opens a connection for each request; a network has hundreds of small tensors, so
this stands on ``http.client`` and keeps them open. One ``Web`` belongs to one thread.
"""

from __future__ import annotations

import base64
import http.client
import ssl
from contextlib import suppress
from typing import Dict, Mapping, Optional, Tuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from ._errors import DeviceError
from ._source_auth import Credentials
from ._source_rules import (
    Trouble,
    bad_answer,
    check_secret,
    led_to,
    said,
    shown,
    status_error,
)

__all__ = ["Web"]

TIMEOUT_S = 30.0
_REDIRECTS = 5
_AGENT = "edgekit-device"
# a server may close a connection that lay idle, just as it is asked again
_IDLE = (ConnectionError, http.client.BadStatusLine)


class Web:
    """Connections of one thread to whatever one source leads to."""

    def __init__(self, credentials: Credentials, ca: Optional[str] = None) -> None:
        self._credentials = credentials
        self._logins: Dict[Tuple[str, str], str] = {}  # by scheme and host, once asked for
        self._ca = ca
        self._open: Dict[Tuple[str, str], http.client.HTTPConnection] = {}

    def close(self) -> None:
        """Closes every connection."""
        for connection in list(self._open.values()):
            connection.close()
        self._open.clear()

    def read(self, url: str, most: int) -> bytes:
        """Reads a small document, at most ``most`` bytes.

        Raises:
            Trouble: It may pass.
            DeviceError: "source.not-found", "source.refused", "source.bad-answer", ...
        """
        reply = self.request(url)
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
        self, url: str, headers: Optional[Mapping[str, str]] = None
    ) -> http.client.HTTPResponse:
        """Asks, follows redirects and answers a 401; the answer's body is unread.

        Raises:
            Trouble: It may pass.
            DeviceError: It will not.
        """
        first, tried = url, False
        for _ in range(_REDIRECTS + 2):
            reply = self._once(url, dict(headers or {}))
            if reply.status in (200, 206):
                return reply
            if reply.status == 401 and not tried and self._answer(url, reply):
                tried = True
                continue
            if reply.status in (301, 302, 303, 307, 308):
                self._drop(reply, url)
                url = led_to(url, reply.getheader("Location") or "")
                continue
            self._drop(reply, url)
            raise status_error(reply.status, url)
        raise DeviceError(
            "more than {} redirects".format(_REDIRECTS), code="source.redirect", where=shown(first)
        )

    def _once(self, url: str, headers: Dict[str, str]) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        origin = (parts.scheme, parts.netloc)
        headers.setdefault("User-Agent", _AGENT)
        # a compressed blob would have another SHA-256 than its name
        headers.setdefault("Accept-Encoding", "identity")
        if origin in self._logins:
            headers["Authorization"] = self._logins[origin]
        kept = origin in self._open
        try:
            connection = self._open.get(origin) or self._connect(parts)
            self._open[origin] = connection
            target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
            if getattr(connection, "whole_target", False):
                target = urlunsplit(parts._replace(fragment=""))
                headers.update(getattr(connection, "proxy_headers", {}))
            connection.request("GET", target, headers=headers)
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
            if kept and isinstance(error, _IDLE):
                return self._once(url, headers)
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

    def _answer(self, url: str, reply: http.client.HTTPResponse) -> bool:
        """Whether a 401 can be answered: it asks for Basic (RFC 7617), and there is a password."""
        parts = urlsplit(url)
        scheme = (reply.getheader("WWW-Authenticate") or "").split(" ")[0].lower()
        self._drop(reply, url)
        basic = self._credentials.basic(parts.netloc)
        if scheme != "basic" or basic is None:
            return False
        check_secret(parts)
        self._logins[parts.scheme, parts.netloc] = basic
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


def _proxy_login(proxy: SplitResult) -> Dict[str, str]:
    if not proxy.username:
        return {}
    login = "{}:{}".format(unquote(proxy.username), unquote(proxy.password or ""))
    value = base64.b64encode(login.encode("utf-8")).decode("ascii")
    return {"Proxy-Authorization": "Basic " + value}
