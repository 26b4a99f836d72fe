"""The command line: one file a command, which parses, calls and prints."""

from edgekit.cli._main import main

__all__ = ["main"]
