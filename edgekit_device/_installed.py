"""Which version of a package is installed, by the record that its installer left.

As ``importlib.metadata`` finds it, whose import alone takes as long as a small command: a folder
``NAME-VERSION.dist-info`` with a file METADATA, or ``NAME-VERSION[-pyX.Y].egg-info``, itself a file
or a folder with PKG-INFO (packaging.python.org, "Recording installed projects").
"""

from __future__ import annotations

import os
import re
import sys
from typing import Iterator, Optional

__all__ = ["recorded_version"]

_MOST = 64 << 10
_VERSION = re.compile(rb"^version:[ \t]*(\S+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_SEPARATORS = re.compile(r"[-_.]+")


def recorded_version(name: str) -> Optional[str]:
    """The version of the distribution ``name``; None where no record of it is found."""
    wanted = _SEPARATORS.sub("_", name).lower()
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            stem, end = os.path.splitext(entry)
            if end not in (".dist-info", ".egg-info"):
                continue
            if _SEPARATORS.sub("_", stem.partition("-")[0]).lower() != wanted:
                continue
            for path in _records(os.path.join(folder, entry)):
                version = _read(path)
                if version is not None:
                    return version
    return None


def _records(path: str) -> Iterator[str]:
    yield os.path.join(path, "METADATA")
    yield os.path.join(path, "PKG-INFO")
    yield path


def _read(path: str) -> Optional[str]:
    try:
        with open(path, "rb") as file:
            # headers end with an empty line; a description may follow
            headers = file.read(_MOST).replace(b"\r\n", b"\n").partition(b"\n\n")[0]
    except OSError:
        return None
    found = _VERSION.search(headers)
    return found.group(1).decode("utf-8", "replace") if found else None
