"""The paths in a configuration, and the same configuration for a file in another folder."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.network import PYTHON

if TYPE_CHECKING:
    from pydantic import BaseModel

    from edgekit.config._load import Config

__all__ = ["paths_in", "rebased"]

Place = tuple[str | int, ...]


def paths_in(file: BaseModel, at: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yields the keys of a configuration that the schema marks as paths, with their values.

    A Python function in the place of calibration data is one of them.
    """
    from pydantic import BaseModel

    from edgekit.config._section import IsPath

    for name, field in type(file).model_fields.items():
        value = getattr(file, name)
        if value is not None and any(isinstance(mark, IsPath) for mark in field.metadata):
            yield (*at, name), value
        elif isinstance(value, BaseModel):
            yield from paths_in(value, (*at, name))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from paths_in(item, (*at, name, number))


def rebased(config: Config, folder: Path) -> dict[str, Any]:
    """Returns the values of a configuration as a file in ``folder`` has to say them.

    Absolute paths and those of a home folder stay as they are; ``${ENV}`` is not expanded.

    Raises:
        UsageError: "config.module": a Python function, whose module is looked for beside the file.
    """
    values: dict[str, Any] = copy.deepcopy(config.document.value)
    old, new = config.folder.resolve(), folder.resolve()
    if old == new:
        return values
    for place, path in paths_in(config.file):
        if path.startswith(PYTHON):
            raise UsageError(
                f"{path} is a module beside the configuration, and another folder has none",
                code="config.module",
                where=str(folder),
                hint=f"write the file into {config.folder}, or name data in a file",
            )
        if path.startswith("~") or Path(path).is_absolute():
            continue
        inner: Any = values
        for key in place[:-1]:
            inner = inner[key]
        # as it is written, which may have ${ENV}
        moved = os.path.join(os.path.relpath(old, new), inner[place[-1]])
        inner[place[-1]] = moved if "${" in moved else os.path.normpath(moved)
    return values
