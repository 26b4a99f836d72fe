"""Checks that results can be written before anything is computed: no input is overwritten, two
outputs are not the same file, and the folder can be written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edgekit.config.loader import Config, paths_in
from edgekit.errors import ModelError, UsageError
from edgekit.files import write_error
from edgekit.network.source import is_function

# named by their last key, which is a section's; others are named by all their keys
_USUAL = 2
_SOME = 1 << 16  # bytes for a test of free disk space
_NAMES: Mapping[str | int, str] = {
    "onnx": "the model",
    "data": "the calibration data",
    "cache": "the calibration cache",
    "profile": "the profile",
    "layer_info": "the layer information",
    "sign_with": "the signing key",
}


def check_config_outputs(
    config: Config,
    outputs: Mapping[str, Path | None],
    others: Mapping[str, Path | None] = MappingProxyType({}),
    *,
    makes_folders: bool = False,
) -> None:
    """Refuses files that would replace the configuration or a file that it reads.

    Args:
        config: The configuration.
        outputs: As for :func:`check_outputs`.
        others: Further input files, by their description.
        makes_folders: As for :func:`check_outputs`.

    Raises:
        UsageError: "output.same".
        ModelError: "model.unwritable".
    """
    taken = {what: config.resolve(path) for what, path in _config_inputs(config.file)}
    taken |= {what: path for what, path in others.items() if path is not None}
    if config.document.name and Path(config.document.name).is_file():
        taken.setdefault("the configuration", Path(config.document.name))
    check_outputs(taken, outputs, makes_folders=makes_folders)


def _config_inputs(file: Any) -> Iterator[tuple[str, str]]:
    """Yields the files that a configuration names, with their descriptions."""
    for place, path in paths_in(file):
        if not is_function(path):
            every = f"the file at {'.'.join(map(str, place))}"
            # each of several networks has its own model
            yield _NAMES.get(place[-1], every) if len(place) == _USUAL else every, path


def check_outputs(
    inputs: Path | Mapping[str, Path] | None,
    outputs: Mapping[str, Path | None],
    *,
    makes_folders: bool = False,
) -> None:
    """Refuses files that cannot be written, and those that would replace an input.

    Args:
        inputs: The model's file, or input files by description; None for no file. No file of an
            input folder may be replaced.
        outputs: Output files by description; None for an output that is not written.
        makes_folders: True if missing folders are created when they are written.

    Raises:
        UsageError: "output.same": a file is an input, or is named twice.
        ModelError: "model.unwritable": its folder is missing or read-only, or it is no file.
    """
    read: Mapping[str, Path] = {"the model": inputs} if isinstance(inputs, Path) else inputs or {}
    taken: dict[Path, str] = {}
    for what, given in read.items():
        # Path.resolve() fails on a link that leads to itself
        taken.setdefault(Path(os.path.realpath(given)), what)
    folders = {path: what for path, what in taken.items() if path.is_dir()}
    for what, path in outputs.items():
        if path is None:
            continue
        real = Path(os.path.realpath(path))
        inside = next((f for f in folders if real.is_file() and f in real.parents), None)
        replaced = taken.get(real) or (inside and f"a file of {folders[inside]}")
        if replaced:
            raise UsageError(
                f"{what} would overwrite {replaced}",
                code="output.same",
                where=str(path),
                hint="give another file",
            )
        taken[real] = what
        if real.exists() and not real.is_file():
            raise _unwritable_error(path, "it is not a regular file", "give the name of a file")
        folder = real.parent
        if not makes_folders and not folder.is_dir():
            raise _unwritable_error(
                path, "its folder does not exist", f"create it first: mkdir -p {folder}"
            )
        try:
            _probe_folder(folder)
        except OSError as error:
            reason = error.strerror or str(error)
            raise _unwritable_error(
                path, f"its folder cannot be written ({reason})", "choose another folder"
            ) from error


def check_output_folder(folder: Path) -> None:
    """Refuses a folder for results that cannot be created or written, before minutes of work.

    Raises:
        EnvironmentLack: "file.write".
    """
    try:
        _probe_folder(Path(os.path.realpath(folder)))
    except OSError as error:
        raise write_error(folder, "the folder for results cannot be written", error) from error


def _probe_folder(folder: Path) -> None:
    """Writes a little in the folder, or where it would be created, and removes it."""
    while not folder.exists():
        folder = folder.parent
    # permissions do not show a read-only or a full disk
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(_SOME))


def _unwritable_error(path: Path, reason: str, hint: str) -> ModelError:
    return ModelError(
        f"the file cannot be written: {reason}",
        code="model.unwritable",
        where=str(path),
        hint=hint,
    )
