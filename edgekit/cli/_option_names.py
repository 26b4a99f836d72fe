"""What a user typed, where an error names the configuration's key that an option set."""

from __future__ import annotations

import re
from dataclasses import replace

import click

from edgekit.errors import ConfigError, EdgekitError

__all__ = ["name_options"]

# edgekit.config says so of a value that did not come from the file
_KEY = re.compile(r"option ([\w.]+)$")


def name_options(error: EdgekitError, command: click.Command) -> None:
    """Puts ``--streams`` in the place of ``option bench.streams``, for options of this command."""
    error.where = _named(error.where, command)
    if isinstance(error, ConfigError):
        error.problems = tuple(
            replace(problem, where=_named(problem.where, command)) for problem in error.problems
        )


def _named(where: str, command: click.Command) -> str:
    match = _KEY.match(where)
    if match is None:
        return where
    options = {item.name: item for item in command.params if isinstance(item, click.Option)}
    # "model.shapes.x" is of --shape, which can be given several times
    for part in reversed(match[1].split(".")):
        found = options.get(part) or options.get(part.removesuffix("s"))
        if found is not None:
            return max(found.opts, key=len)
    return where
