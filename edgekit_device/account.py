"""The account that a process runs as."""

from __future__ import annotations

import getpass
import os


def account_name() -> str:
    """Returns the account's name; its number if it has none, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
