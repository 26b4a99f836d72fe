"""The user's own calibration data: NumPy files and folders of images."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError
from edgekit.quantize._feeds import input_specs

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["IMAGE_SUFFIXES", "Samples", "load_data"]

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_OPTIONS = frozenset({"data", "count", "mean", "std", "layout"})


class Samples:
    """A sized iterable of inputs that reads each sample when it is asked for, every time anew."""

    def __init__(self, count: int, read: Callable[[int], dict[str, np.ndarray]]) -> None:
        self._count = count
        self._read = read

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return (self._read(index) for index in range(self._count))


def load_data(spec: str | Path | Mapping[str, Any], model: Model) -> Samples:
    """Opens calibration data for ``model``.

    Args:
        spec: A path, or a mapping with ``data`` (the path) and, optionally, ``count`` (at most
            this many samples) and for images ``mean``, ``std`` (per channel, of pixels scaled
            to 0..1) and ``layout`` ("NCHW" or "NHWC"). The path is an ``.npz`` with one array
            per input, an ``.npy`` for a model with one input (arrays hold one sample, or
            samples along the first axis) or a folder of images (shorter side resized,
            centre cropped, RGB).
        model: The model whose inputs the samples must fit.

    Raises:
        DataError: The path, an option or an array does not fit. Broken images are found while
            iterating.
    """
    options: dict[str, Any] = dict(spec) if isinstance(spec, Mapping) else {"data": spec}
    unknown = sorted(set(options) - _OPTIONS)
    if unknown or "data" not in options:
        raise DataError(
            f"unknown data options: {', '.join(unknown)}" if unknown else "no data path given",
            code="data.options",
            hint=f"the options are {', '.join(sorted(_OPTIONS))}",
        )
    path = Path(options["data"])
    if path.is_dir():
        samples = _images(path, options, model)
    elif path.suffix.lower() in (".npz", ".npy") and path.is_file():
        samples = _arrays(path, model)
    else:
        raise DataError(
            "there is no such file or folder" if not path.exists() else "unknown kind of data",
            code="data.path",
            where=str(path),
            hint="give an .npz or .npy file or a folder of images",
        )
    count = options.get("count")
    return samples if count is None else Samples(min(int(count), len(samples)), samples._read)


def _arrays(path: Path, model: Model) -> Samples:
    import numpy as np

    specs = input_specs(model)
    try:
        arrays = _read_arrays(path, next(iter(specs)))
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"cannot read the arrays: {str(error).splitlines()[0]}",
            code="data.unreadable",
            where=str(path),
            hint="write it with numpy.savez or numpy.save, without object arrays",
        ) from error
    if set(arrays) != set(specs) or (path.suffix.lower() == ".npy" and len(specs) > 1):
        raise DataError(
            f"the file has {', '.join(map(repr, arrays))}",
            code="data.inputs",
            where=str(path),
            hint=f"the model's inputs are {', '.join(map(repr, specs))}; use .npz to name them",
        )
    counts = {
        name: _samples_in(array.shape, specs[name][1], f"{path}:{name}")
        for name, array in arrays.items()
    }
    if len(set(counts.values())) > 1:
        raise DataError(
            f"the arrays hold different numbers of samples: {counts}",
            code="data.shape",
            where=str(path),
            hint="every input needs the same number",
        )

    def read(index: int) -> dict[str, np.ndarray]:
        sample = {}
        for name, array in arrays.items():
            shape = specs[name][1]
            if array.shape == shape:
                sample[name] = np.asarray(array)
            elif array.ndim == len(shape):
                sample[name] = np.asarray(array[index * shape[0] : (index + 1) * shape[0]])
            else:
                sample[name] = np.asarray(array[index]).reshape(shape)
        return sample

    return Samples(min(counts.values()), read)


def _read_arrays(path: Path, first_input: str) -> dict[str, np.ndarray]:
    """Reads the arrays by name; never with pickle, a data file must not run code."""
    import numpy as np

    if path.suffix.lower() == ".npy":
        return {first_input: np.load(path, allow_pickle=False, mmap_mode="r")}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return dict(archive)


def _samples_in(found: tuple[int, ...], shape: tuple[int, ...], where: str) -> int:
    if found == shape:
        return 1
    if len(found) == len(shape) and found[1:] == shape[1:] and found[0] % shape[0] == 0:
        return found[0] // shape[0]
    if found[1:] in (shape, shape[1:] if shape and shape[0] == 1 else shape):
        return found[0]
    raise DataError(
        f"the array has shape {list(found)}",
        code="data.shape",
        where=where,
        hint=f"one sample is {list(shape)}; put samples along the first axis",
    )


def _images(folder: Path, options: Mapping[str, Any], model: Model) -> Samples:
    specs = input_specs(model)
    layout = options.get("layout") or "NCHW"
    name, (dtype, shape) = next(iter(specs.items()))
    if len(specs) != 1 or len(shape) != 4 or layout not in ("NCHW", "NHWC"):
        raise DataError(
            "images need a model with one input of four dimensions, NCHW or NHWC",
            code="data.images",
            where=str(folder),
            hint=f"inputs are {', '.join(f'{n} {list(s)}' for n, (_, s) in specs.items())}; "
            "give an .npz file instead",
        )
    channels_first = layout == "NCHW"
    channels, height, width = shape[1:] if channels_first else (shape[3], shape[1], shape[2])
    if channels not in (1, 3):
        raise DataError(
            f"the input has {channels} channels, an image has 1 or 3",
            code="data.images",
            where=str(folder),
            hint=f"the input is {list(shape)}; is the layout {layout}?",
        )
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise DataError(
            "the folder has no images",
            code="data.empty",
            where=str(folder),
            hint=f"known endings: {', '.join(sorted(IMAGE_SUFFIXES))}",
        )
    mean = _per_channel(options.get("mean"), channels, 0.0, "mean")
    std = _per_channel(options.get("std"), channels, 1.0, "std")
    batch = shape[0]

    def read(index: int) -> dict[str, np.ndarray]:
        import numpy as np

        # the last batch is filled up from the beginning
        chosen = [files[(index * batch + i) % len(files)] for i in range(batch)]
        pixels = np.stack([_pixels(path, channels, height, width) for path in chosen])
        normal = (pixels - mean) / std
        if channels_first:
            normal = normal.transpose(0, 3, 1, 2)
        return {name: np.ascontiguousarray(normal, dtype)}

    return Samples(-(-len(files) // batch), read)


def _per_channel(
    values: Sequence[float] | float | None, channels: int, default: float, option: str
) -> np.ndarray:
    import numpy as np

    array = np.atleast_1d(np.asarray(default if values is None else values, np.float32))
    if array.shape not in ((1,), (channels,)) or (option == "std" and (array == 0).any()):
        raise DataError(
            f"{option} is {array.tolist()}",
            code="data.options",
            hint=f"give one number or {channels}, one per channel; std may not be 0",
        )
    return array


def _pixels(path: Path, channels: int, height: int, width: int) -> np.ndarray:
    """Returns float32 [height, width, channels] in 0..1: shorter side resized, centre cropped."""
    import numpy as np
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            converted = image.convert("L" if channels == 1 else "RGB")
            fitted = ImageOps.fit(converted, (width, height), Image.Resampling.BILINEAR)
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(
            "cannot read the image",
            code="data.image",
            where=str(path),
            hint=f"{type(error).__name__}: remove or replace the file",
        ) from error
    return np.asarray(fitted, np.float32).reshape(height, width, channels) / 255.0
