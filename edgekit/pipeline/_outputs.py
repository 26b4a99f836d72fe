"""Whether results may go where they are asked to, before anything is computed for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from edgekit.errors import ModelError, UsageError

__all__ = ["may_write"]


def may_write(model: Path | None, outputs: Mapping[str, Path | None]) -> None:
    """Refuses files that cannot be written, and those that would replace what is read.

    Args:
        model: The file that is read; None where there is none.
        outputs: Files by what goes there; None for what goes nowhere.

    Raises:
        UsageError: "output.same": a file is the model's, or asked for twice.
        ModelError: "model.unwritable": its folder is missing or read-only, or it is no file.
    """
    taken = {} if model is None else {model.resolve(): "the model"}
    for what, path in outputs.items():
        if path is None:
            continue
        real = path.resolve()
        if real in taken:
            raise UsageError(
                f"{what} would replace {taken[real]}",
                code="output.same",
                where=str(path),
                hint="give another file",
            )
        taken[real] = what
        if real.exists() and not real.is_file():
            raise _unwritable(path, "it is no regular file", "give the name of a file")
        folder = real.parent
        if not folder.is_dir():
            raise _unwritable(path, "its folder is missing", f"make it first: mkdir -p {folder}")
        if not os.access(folder, os.W_OK):
            raise _unwritable(path, "its folder cannot be written", "choose another folder")


def _unwritable(path: Path, reason: str, hint: str) -> ModelError:
    return ModelError(
        f"the file cannot be written: {reason}",
        code="model.unwritable",
        where=str(path),
        hint=hint,
    )
