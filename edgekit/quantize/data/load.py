"""The user's own calibration data: NumPy files, folders of images, and Python functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError
from edgekit.network.source import is_function
from edgekit.quantize.data.arrays import ARRAY_SUFFIXES, Arrays
from edgekit.quantize.data.functions import Callables
from edgekit.quantize.data.images import (
    CHANNELS,
    IMAGE_OPTIONS,
    IMAGE_SUFFIXES,
    ImageOptions,
    Images,
    Preprocess,
    channels_last,
    files_in,
)
from edgekit.quantize.data.lists import images_at, is_list
from edgekit.quantize.data.rows import CalibrationSamples, RowLayout, path_text, row_layout
from edgekit.text import counted

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network.model import Model


_OPTIONS = IMAGE_OPTIONS | {"data", "count", "pick"}


def load_data(
    spec: str | Path | Mapping[str, object],
    model: Model,
    *,
    folders: Sequence[Path] = (),
    whole: bool = False,
    skip: int = 0,
    beside: Collection[str] = (),
) -> CalibrationSamples:
    """Opens calibration data for ``model``.

    The data are

    - an ``.npz`` with one array per input, or an ``.npy`` for a model with one input: one sample,
      or samples along the first axis;
    - a folder of images, or of such files (read in the order of their names);
    - a data.yaml of Ultralytics, for the images that it names (``lists``);
    - ``python:module:function``: ``function()`` returns an iterable of arrays or dicts of arrays.
      This runs the user's code. Only a ``str`` is read in this way, never a ``Path``.

    Args:
        spec: The data, or a mapping with ``data`` and options: ``count`` (at most this many
            samples, of one row of the batch each), ``pick`` ("first" or "spread"), and for images
            ``preset``, ``resize``, ``crop``, ``pad``, ``interpolation``, ``color``, ``scale``,
            ``mean``, ``std``, ``layout``, ``skip_broken``; see ``docs/calibration.md``.
        model: The model whose inputs the samples must fit.
        folders: Folders searched for modules, before Python's path.
        skip: Number of batch rows to leave out at the beginning; ``count`` includes them.
        beside: Names of further arrays that a file may have, which are not read.
        whole: Refuse arrays whose last sample would not fill the model's batch.

    Raises:
        DataError: The data, an option or an array does not fit. Broken images, NaN and infinities
            are found while iterating.
    """
    options: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"data": spec}
    # null and false turn an option off, as if it were not given
    options = {key: v for key, v in options.items() if v is not None and v is not False}
    unknown = sorted(set(options) - _OPTIONS)
    if unknown or "data" not in options:
        raise DataError(
            f"unknown data options: {', '.join(unknown)}" if unknown else "no data path given",
            code="data.options",
            hint=f"the options are {', '.join(sorted(_OPTIONS))}",
        )
    limit, spread = _check_amount(options.get("count"), options.get("pick", "first"))
    of_images = {key: value for key, value in options.items() if key in IMAGE_OPTIONS}
    rows = row_layout(model)
    data = options["data"]
    notes = []
    source: Arrays | Images | Callables
    if isinstance(data, str) and is_function(data):
        if spread:
            raise DataError(
                "pick is spread, but the number of samples of a function is unknown",
                code="data.options",
                hint="let the function choose the samples",
            )
        source = Callables(data, rows, folders or [Path()])
    else:
        path = Path(data)
        images = images_at(path)
        arrays = [] if is_list(path) else _array_files(path)
        if images:
            source = _open_images(path, images, ImageOptions(**of_images), rows)
            if arrays:
                notes.append(f"the folder has {len(arrays)} .npy or .npz files, which are not read")
        else:
            # spread rows need the number of all rows; the first rows need no further headers
            enough = None if spread else limit
            source = Arrays(arrays, rows, enough=enough, beside=beside)
            # inference returns a result for each row: no row may be repeated to fill the batch
            if whole and (source.size or 0) % rows.batch:
                name = next(iter(rows.specs))
                raise DataError(
                    f"the arrays contain {counted(source.size or 0, 'sample')}",
                    code="data.shape",
                    where=path_text(path),
                    hint=f"one inference needs {rows.batch}: {list(rows.specs[name][1])}",
                )
    if not isinstance(source, Images):
        unused = sorted(of_images)
        if unused:
            notes.append(f"{', '.join(unused)}: only for images, but the data are not images")
    return CalibrationSamples(
        source,
        rows,
        limit=limit,
        skip=skip,
        spread=spread,
        notes=notes,
        images=isinstance(source, Images),
    )


def check_path(path: Path) -> None:
    """Refuses a path without calibration data, before a model is loaded.

    Raises:
        DataError: "data.path" or "data.empty".
    """
    if not images_at(path):
        _array_files(path)


def _check_amount(limit: Any, pick: Any) -> tuple[int | None, bool]:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise DataError(f"count is {limit}", code="data.options", hint="give a whole number from 1")
    if pick not in ("first", "spread"):
        raise DataError(f"pick is {pick}", code="data.options", hint="use first or spread")
    return limit, pick == "spread"


def _array_files(path: Path) -> list[Path]:
    """Returns the NumPy file ``path``, or the NumPy files in this folder.

    Raises:
        DataError: ``path`` does not exist, or is neither.
    """
    if path.is_dir():
        found = files_in(path, ARRAY_SUFFIXES)
        if not found and not files_in(path, IMAGE_SUFFIXES):
            raise DataError(
                "the folder contains no images and no .npy or .npz files",
                code="data.empty",
                where=path_text(path),
                hint=f"known endings: {', '.join(sorted(IMAGE_SUFFIXES | ARRAY_SUFFIXES))}",
            )
        return found
    if path.suffix.lower() in ARRAY_SUFFIXES and path.is_file():
        return [path]
    raise DataError(
        "the file or folder does not exist" if not path.exists() else "unknown kind of data",
        code="data.path",
        where=path_text(path),
        hint="give an .npz or .npy file, a folder of such files or of images, a data.yaml, or "
        "python:module:function",
    )


def choose_preprocess(
    specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]], options: ImageOptions, where: Path
) -> tuple[str, Preprocess]:
    """Returns the input that takes images, and the preprocessing from an image to a row.

    Args:
        specs: NumPy type and shape by input.
        options: The user's image options.
        where: Path of the images, for errors.

    Raises:
        DataError: "data.images": no input, or several, may take images; "data.options".
    """
    shapes = ", ".join(f"{name} {list(shape)}" for name, (_, shape) in specs.items())
    name, (dtype, shape) = next(iter(specs.items()))
    layout = options.layout
    if len(specs) != 1 or len(shape) != 4 or layout not in (None, "NCHW", "NHWC"):
        raise DataError(
            "images need a model with a single input of four dimensions, NCHW or NHWC",
            code="data.images",
            where=path_text(where),
            hint=f"give an .npz file instead; the inputs are {shapes}",
        )
    if layout is None:
        layout = "NHWC" if channels_last(shape) else "NCHW"
    first = layout == "NCHW"
    height, width, channels = (shape[2], shape[3], shape[1]) if first else shape[1:]
    if channels not in CHANNELS:
        raise DataError(
            f"the input has {channels} channels, but an image has 1 or 3",
            code="data.images",
            where=path_text(where),
            hint=f"check the layout ({layout}); the input is {list(shape)}",
        )
    return name, Preprocess.of(options, (height, width, channels), first, dtype)


def _open_images(folder: Path, files: list[Path], options: ImageOptions, rows: RowLayout) -> Images:
    name, prepare = choose_preprocess(rows.specs, options, folder)
    skip = False if options.skip_broken is None else options.skip_broken
    if not isinstance(skip, bool):
        raise DataError(f"skip_broken is {skip}", code="data.options", hint="use true or false")
    return Images(files, name, prepare, batch=rows.batch, skip=skip)
