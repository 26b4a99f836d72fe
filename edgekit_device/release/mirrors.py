"""HTTP for mirrors: connections that are used again, bounded redirects, passwords from a file on
the board, and the rules for addresses, failures and tries.

Passwords are in ROOT/registries.json, in the form of Docker's ``config.json`` ("auths" by host).
"""

from __future__ import annotations

import base64
import http.client
import os
import random
import re
import ssl
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, Mapping, Optional, Tuple, TypeVar
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.protocol.codec import parse_json

_MAX_FILE = 1 << 20
TRIES = 4
FIRST_WAIT_S = 0.5
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
Result = TypeVar("Result")

TIMEOUT_S = 30.0
_REDIRECTS = 5
_AGENT = "edgekit-device"

# a server may close an idle connection just as the next request goes out
_IDLE = (ConnectionError, http.client.BadStatusLine)


class Credentials:
    """Users and passwords by host, as ``HOST`` or ``HOST:PORT``."""

    def __init__(self, by_host: Optional[Mapping[str, Tuple[str, str]]] = None) -> None:
        self._by_host = dict(by_host or {})

    @classmethod
    def read(cls, path: Path) -> "Credentials":
        """Reads the file; there are none where it is not there.

        Raises:
            DeviceError: "source.credentials"; others may read it, or it is something else.
        """
        with map_os_errors(str(path)):
            try:
                handle = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return cls()
            with os.fdopen(handle, "rb") as file:
                facts = os.fstat(file.fileno())
                if stat.S_IMODE(facts.st_mode) & 0o077:
                    raise _bad_credentials(
                        path, "other accounts can read the file", "run chmod 600 on it"
                    )
                data = file.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise _bad_credentials(
                path, "the file is too long", "keep only the hosts that are needed"
            )
        document = parse_json(data, str(path), "source.credentials")
        auths = document.get("auths") if isinstance(document, dict) else None
        if not isinstance(auths, dict):
            raise _bad_credentials(
                path, 'expected {"auths": {HOST: {"auth": ...}}}', "see docs/fleet.md"
            )
        return cls({_host_of_line(name): _pair(path, name, entry) for name, entry in auths.items()})

    def basic(self, netloc: str) -> Optional[str]:
        """The value of an Authorization header for a host, or None."""
        found = self._by_host.get(netloc.lower())
        if found is None:
            return None
        return "Basic " + base64.b64encode(":".join(found).encode("utf-8")).decode("ascii")


def is_loopback(host: Optional[str]) -> bool:
    """Whether a host is this machine: then the traffic cannot be intercepted."""
    return host is not None and (
        host in ("localhost", "::1") or re.match(r"127(?:\.\d{1,3}){3}\Z", host) is not None
    )


def _host_of_line(name: str) -> str:
    # Docker's own files have whole addresses for some hosts
    return re.sub(r"\Ahttps?://", "", name).split("/")[0].lower()


def _pair(path: Path, name: str, entry: object) -> Tuple[str, str]:
    fields = entry if isinstance(entry, dict) else {}
    user, password = fields.get("username"), fields.get("password")
    if isinstance(user, str) and isinstance(password, str):
        return user, password
    try:
        text = base64.b64decode(str(fields.get("auth") or ""), validate=True).decode("utf-8")
    except ValueError:
        text = ""
    user, colon, password = text.partition(":")
    if not colon:
        raise _bad_credentials(
            path, "{} has no user and password".format(name[:80]), "see docs/fleet.md"
        )
    return user, password


def _bad_credentials(path: Path, message: str, hint: str) -> DeviceError:
    return DeviceError(message, code="source.credentials", where=str(path), hint=hint)


class Trouble(Exception):
    """A connection or a server failed in a way that may pass; ``retrying`` tries again."""


def retrying(where: str, act: Callable[[], Result]) -> Result:
    """Does ``act`` again after Trouble, each time later, four times in all.

    Args:
        where: The address, for the error.
        act: What to do.

    Raises:
        DeviceError: "source.unreachable".
    """
    for left in reversed(range(TRIES)):
        try:
            return act()
        except Trouble as error:
            if not left:
                raise unreachable(where, error) from error
        pause(TRIES - left)
    raise AssertionError


def pause(number: int) -> None:
    """Waits before try ``number`` + 1, for a random time, so that a fleet's boards spread out."""
    time.sleep(FIRST_WAIT_S * 2 ** (number - 1) * random.uniform(0.5, 1.5))


def unreachable(where: str, error: Trouble) -> DeviceError:
    """The error of an address whose last try failed."""
    return DeviceError(
        "no answer after {} tries: {}".format(TRIES, error),
        code="source.unreachable",
        where=url_text(where),
        hint="check the address and the board's network, or give another mirror",
    )


def check_address(text: str) -> SplitResult:
    """Reads the address of a source on a network.

    Raises:
        DeviceError: "source.bad-address"; it has no host, a bad port, or a password in it.
    """
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise _bad_address(text, str(error)) from error
    if not parts.hostname:
        raise _bad_address(text, "it has no host")
    if "@" in parts.netloc:
        raise DeviceError(
            "an address must not contain a user or a password: command lines are visible to others",
            code="source.bad-address",
            where=url_text(text),
            hint="put them into registries.json in the board's folder",
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise _bad_address(text, "it has spaces, control or non-ASCII characters")
    return parts


def check_redirect(origin: str, target: str) -> None:
    """Refuses redirects to anything but HTTP, and from HTTPS to HTTP.

    Raises:
        DeviceError: "source.redirect".
    """
    parts = _parts(target)
    secure = urlsplit(origin).scheme == "https"
    if parts is None or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        message = "the server redirects to an address that is not HTTP: {!r}".format(target[:80])
    elif secure and parts.scheme != "https":
        message = "the server redirects from HTTPS to HTTP: {}".format(url_text(target))
    else:
        return
    raise DeviceError(
        message,
        code="source.redirect",
        where=url_text(origin),
        hint="give the address where the bundle is stored",
    )


def redirect_target(origin: str, location: str) -> str:
    """The address that a redirect of ``origin`` means.

    Raises:
        DeviceError: "source.redirect".
    """
    try:
        target = urljoin(origin, location)
    except ValueError:
        target = location  # which is refused
    check_redirect(origin, target)
    return target


def _parts(text: str) -> Optional[SplitResult]:
    """The parts of a valid address; None if it is not one."""
    try:
        parts = urlsplit(text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # no port, or no IPv6 address
        return None
    return parts if usable and text.isascii() and text.isprintable() and " " not in text else None


def check_secret(parts: SplitResult) -> None:
    """Refuses to send a password in the clear, unless to this machine itself.

    Raises:
        DeviceError: "source.insecure".
    """
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        raise DeviceError(
            "it asks for a password over HTTP, which others on the network could read",
            code="source.insecure",
            where=url_text(parts.geturl()),
            hint="use https://",
        )


def status_error(status: int, url: str) -> Exception:
    """The error of a status that is no success."""
    if status in _AGAIN:
        return Trouble("HTTP status {}".format(status))
    if status in (404, 410):
        return DeviceError(
            "not found (HTTP status {})".format(status),
            code="source.not-found",
            where=url_text(url),
            hint="upload a bundle with edgekit bundle push",
        )
    if status in (401, 403, 407):
        return DeviceError(
            "the server refuses access (HTTP status {})".format(status),
            code="source.refused",
            where=url_text(url),
            hint="put the host's user and password into registries.json in the board's folder",
        )
    return bad_answer(url, "HTTP status {}".format(status))


def bad_answer(url: str, message: str) -> DeviceError:
    """The error of an answer that cannot be used."""
    return DeviceError(
        "the server's answer is not valid: {}".format(message),
        code="source.bad-answer",
        where=url_text(url),
        hint="check that this is the address of a mirror",
    )


def error_text(error: BaseException) -> str:
    """One line of a connection's failure."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


def url_text(url: str) -> str:
    """An address for messages: without its secrets, and shortened."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return repr(url[:80])
    netloc = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=netloc, query="", fragment="").geturl()[:300]


def _bad_address(text: str, message: str) -> DeviceError:
    return DeviceError(
        "not a valid source address: {}".format(message),
        code="source.bad-address",
        where=url_text(text),
        hint="give http(s)://HOST/PATH/ of a mirror",
    )


# ``urllib.request`` opens a connection for each request; a network has hundreds of small tensors,
# so this stands on ``http.client`` and keeps them open. One ``Web`` belongs to one thread.
class Web:
    """Connections of one thread to whatever one source leads to."""

    def __init__(self, credentials: Credentials, ca: Optional[str] = None) -> None:
        self._credentials = credentials
        self._logins: Dict[Tuple[str, str], str] = {}  # by scheme and host, once required
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
            raise Trouble(error_text(error)) from error
        if len(data) > most:
            reply.close()
            self.close()
            raise bad_answer(url, "more than {} bytes".format(most))
        return data

    def request(
        self, url: str, headers: Optional[Mapping[str, str]] = None
    ) -> http.client.HTTPResponse:
        """Sends a request, follows redirects and answers a 401; the body is left unread.

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
                url = redirect_target(url, reply.getheader("Location") or "")
                continue
            self._drop(reply, url)
            raise status_error(reply.status, url)
        raise DeviceError(
            "more than {} redirects".format(_REDIRECTS),
            code="source.redirect",
            where=url_text(first),
        )

    def _once(self, url: str, headers: Dict[str, str]) -> http.client.HTTPResponse:
        parts = urlsplit(url)
        origin = (parts.scheme, parts.netloc)
        headers.setdefault("User-Agent", _AGENT)
        # a compressed blob would have another SHA-256 than its name
        headers.setdefault("Accept-Encoding", "identity")
        if origin in self._logins:
            headers["Authorization"] = self._logins[origin]
        reused = origin in self._open
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
                "the server's certificate is not valid: {}".format(error.verify_message),
                code="source.certificate",
                where=url_text(url),
                hint="put the certificate of its authority into mirror-ca.pem in the board's "
                "folder",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self._close(origin)
            if reused and isinstance(error, _IDLE):
                return self._once(url, headers)
            raise Trouble(error_text(error)) from error

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
        """Whether a 401 can be answered: it requires Basic (RFC 7617), and there is a password."""
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
        """Discards an answer; closes its connection where the body is long."""
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
