"""Users and passwords for mirrors: from a file on the board, never from a command line.

The file is ROOT/registries.json in the form of Docker's ``config.json`` ("auths" by host).
"""

from __future__ import annotations

import base64
import os
import re
import stat
from pathlib import Path
from typing import Mapping, Optional, Tuple

from ._checks import parse_json
from ._errors import DeviceError, map_os_errors

__all__ = ["Credentials", "is_loopback"]

_MAX_FILE = 1 << 20


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
                    raise _bad(path, "others may read the file", "chmod 600 it")
                data = file.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise _bad(path, "the file is too long", "keep only the hosts that are needed")
        document = parse_json(data, str(path), "source.credentials")
        auths = document.get("auths") if isinstance(document, dict) else None
        if not isinstance(auths, dict):
            raise _bad(path, 'expected {"auths": {HOST: {"auth": ...}}}', "see docs/fleet.md")
        return cls({_host(name): _pair(path, name, entry) for name, entry in auths.items()})

    def basic(self, netloc: str) -> Optional[str]:
        """The value of an Authorization header for a host, or None."""
        found = self._by_host.get(netloc.lower())
        if found is None:
            return None
        return "Basic " + base64.b64encode(":".join(found).encode("utf-8")).decode("ascii")


def is_loopback(host: Optional[str]) -> bool:
    """Whether a host is this machine, so that nobody listens on the way."""
    return host is not None and (
        host in ("localhost", "::1") or re.match(r"127(?:\.\d{1,3}){3}\Z", host) is not None
    )


def _host(name: str) -> str:
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
        raise _bad(path, "{} has no user and password".format(name[:80]), "see docs/fleet.md")
    return user, password


def _bad(path: Path, message: str, hint: str) -> DeviceError:
    return DeviceError(message, code="source.credentials", where=str(path), hint=hint)
