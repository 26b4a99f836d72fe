"""What holds for every bundle source on a network: addresses, redirects, failures, tries."""

from __future__ import annotations

import random
import time
from typing import Callable, Optional, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

from ._errors import DeviceError
from ._source_auth import is_loopback

__all__ = [
    "Trouble",
    "bad_answer",
    "check_address",
    "check_redirect",
    "check_secret",
    "led_to",
    "retrying",
    "said",
    "shown",
    "status_error",
]

TRIES = 4
FIRST_WAIT_S = 0.5
_AGAIN = (408, 425, 429, 500, 502, 503, 504)

Result = TypeVar("Result")


class Trouble(Exception):
    """A connection or a server failed in a way that may pass; ``retrying`` tries again."""


def retrying(where: str, act: Callable[[], Result], deadline: Optional[float] = None) -> Result:
    """Does ``act`` again after Trouble, each time later, four times in all.

    Args:
        where: The address, for the error.
        act: What to do.
        deadline: Of ``time.monotonic``.

    Raises:
        DeviceError: "source.unreachable", or "source.timeout" past the deadline.
    """
    for left in reversed(range(TRIES)):
        try:
            return act()
        except Trouble as error:
            check_deadline(where, deadline)
            if not left:
                raise DeviceError(
                    "no answer after {} tries: {}".format(TRIES, error),
                    code="source.unreachable",
                    where=shown(where),
                    hint="check the address and the board's network, or name another mirror",
                ) from error
        pause(TRIES - left)
    raise AssertionError


def pause(number: int) -> None:
    """Waits before try ``number`` + 1; a fleet's boards not all at one moment."""
    time.sleep(FIRST_WAIT_S * 2 ** (number - 1) * random.uniform(0.5, 1.5))


def check_deadline(where: str, deadline: Optional[float]) -> None:
    """Raises "source.timeout" past ``deadline`` (of ``time.monotonic``)."""
    if deadline is not None and time.monotonic() > deadline:
        raise DeviceError(
            "the download took longer than it may",
            code="source.timeout",
            where=shown(where),
            hint="deploy again: what arrived is kept; or allow more time",
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
        raise _bad_address(text, "there is no host in it")
    if "@" in parts.netloc:
        raise DeviceError(
            "an address must not hold a user or a password: command lines can be read",
            code="source.bad-address",
            where=shown(text),
            hint="write them to registries.json in the board's folder",
        )
    if not text.isascii() or not text.isprintable() or " " in text:
        raise _bad_address(text, "it has spaces, control or other characters beyond ASCII")
    return parts


def check_redirect(origin: str, target: str) -> None:
    """Refuses to be led elsewhere than to HTTP, and from HTTPS to HTTP.

    Raises:
        DeviceError: "source.redirect".
    """
    parts = _parts(target)
    secure = urlsplit(origin).scheme == "https"
    if parts is None or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        message = "the server leads to an address that is not HTTP: {!r}".format(target[:80])
    elif secure and parts.scheme != "https":
        message = "the server leads from HTTPS to HTTP, {}".format(shown(target))
    else:
        return
    raise DeviceError(
        message,
        code="source.redirect",
        where=shown(origin),
        hint="name the address where the bundle lies",
    )


def led_to(origin: str, location: str) -> str:
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
    """An address that can be asked, in its parts; None for what is none."""
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
            "it asks for a password over HTTP, where anybody on the way could read it",
            code="source.insecure",
            where=shown(parts.geturl()),
            hint="use https://",
        )


def status_error(status: int, url: str) -> Exception:
    """What a status that is no success means."""
    if status in _AGAIN:
        return Trouble("HTTP status {}".format(status))
    if status in (404, 410):
        return DeviceError(
            "it is not there (HTTP status {})".format(status),
            code="source.not-found",
            where=shown(url),
            hint="edgekit bundle push puts a bundle there",
        )
    if status in (401, 403, 407):
        return DeviceError(
            "the server refuses (HTTP status {})".format(status),
            code="source.refused",
            where=shown(url),
            hint="write user and password of the host to registries.json in the board's folder",
        )
    return bad_answer(url, "HTTP status {}".format(status))


def bad_answer(url: str, message: str) -> DeviceError:
    """The error of an answer that cannot be used."""
    return DeviceError(
        "the server's answer is of no use: {}".format(message),
        code="source.bad-answer",
        where=shown(url),
        hint="is this the address of a mirror?",
    )


def said(error: BaseException) -> str:
    """One line of a connection's failure."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


def shown(url: str) -> str:
    """An address for messages: without what may be secret in it, and not endless."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return repr(url[:80])
    netloc = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=netloc, query="", fragment="").geturl()[:300]


def _bad_address(text: str, message: str) -> DeviceError:
    return DeviceError(
        "not the address of a source: {}".format(message),
        code="source.bad-address",
        where=shown(text),
        hint="http(s)://HOST/PATH/ of a mirror",
    )
