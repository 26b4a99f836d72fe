"""What the commands' parsers are made of; of many commands only the one asked for is made.

A command's module is imported when it is called: from a zip each import is a compilation, and hosts
ask many small things.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Dict,
    Iterable,
    NoReturn,
    Optional,
    Union,
    cast,
)

from ._command_options import count, folder
from ._errors import DeviceError

if TYPE_CHECKING:
    from ._root import Root
    from ._store import Buffer

__all__ = ["Answer", "Commands", "Parser"]

Answer = Union[Dict[str, Any], bytes, "Iterable[Buffer]"]
"""One JSON document, or bytes as they are."""

_Command = Callable[["Root", argparse.Namespace, BinaryIO], Answer]


class Parser(argparse.ArgumentParser):
    """Raises what is wrong with a command line as DeviceError "usage"."""

    def error(self, message: str) -> NoReturn:
        """Raises."""
        raise DeviceError(message, code="usage", where=self.prog, hint=self.format_usage().strip())


class Commands:
    """Adds commands to a parser, each with the options that all of its kind have.

    Args:
        parser: Where to.
        only: The one command to add; None for all.
    """

    def __init__(self, parser: argparse.ArgumentParser, only: Optional[str]) -> None:
        self._all = parser.add_subparsers(dest="command", parser_class=Parser)
        self._all.required = True
        self._only = only

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._all.choices)

    def add(self, name: str, command: str, help: str, app: str = "") -> argparse.ArgumentParser:
        """Adds one that looks or moves things; ``command`` is its "_module.function"."""
        if self._only not in (None, name):
            return cast(argparse.ArgumentParser, _Nobody())
        one = self._all.add_parser(name, help=help, description=help)
        one.set_defaults(call=_later(command))
        one.add_argument("--root", type=folder, default=None, help="default: ~/.edgekit")
        one.add_argument("--debug", action="store_true", help="tracebacks on stderr")
        if app:
            one.add_argument("--app", required=app == "required", default=None)
        return one

    def add_run(self, name: str, command: str, help: str) -> argparse.ArgumentParser:
        """Adds one that runs a release."""
        one = self.add(name, command, help, "required")
        one.add_argument("--release", default=None, help="default: the current one")
        one.add_argument("--threads", type=count, default=0, help="of each engine; 0: all cores")
        one.add_argument(
            "--watch-stdin",
            type=count,
            default=None,
            metavar="BYTES",
            help="input is this long; stop when stdin ends after it",
        )
        return one

    def add_job(self, name: str, command: str, help: str) -> argparse.ArgumentParser:
        """Adds one about a job."""
        one = self.add(name, command, help)
        one.add_argument("--job", required=True, help="its id")
        return one


class _Nobody:
    """Stands for the parser of a command that is not asked for: takes what parsers do, and itself
    stands for what they return."""

    def __getattr__(self, name: str) -> Any:
        return lambda *names, **options: self


def _later(home: str) -> _Command:
    """The function "_module.name" of this package, imported when it is called."""
    module, _, name = home.rpartition(".")

    def call(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Answer:
        command: _Command = getattr(import_module("." + module, __package__), name)
        return command(root, arguments, stdin)

    return call
