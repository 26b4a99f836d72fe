"""Calibration data in folders of images: decoded ahead of the network, and converted to its size,
channels and values according to options and presets.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import DataError
from edgekit.files import regular_file
from edgekit.quantize.data.rows import DataRow, path_text, read_ahead
from edgekit.text import first_line
from edgekit_device.detection.letterbox import Placing, cover, crop_resized, letterbox, stretch

if TYPE_CHECKING:
    from PIL import Image


IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
#: Possible numbers of channels of an image.
CHANNELS = (1, 3)
_BROKEN = "data.image"
_WORKERS = min(4, os.cpu_count() or 1)
# divisor from 16-bit to 8-bit codes
_STEP = 257
# EXIF's tag, and its first value of an image whose width is its height
_ORIENTATION = 0x0112
_FIRST_TURNED = 5
# warnings.catch_warnings changes the whole process
_OPENING = threading.Lock()
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
_RESIZES = ("cover", "letterbox", "stretch")
LEVELS = 255


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """The user's options for images, see docs/calibration.md; None: not given.

    The values are unchecked: ``Preprocess.of`` checks them and refuses invalid values.
    """

    preset: Any = None
    resize: Any = None
    crop: Any = None
    pad: Any = None
    interpolation: Any = None
    color: Any = None
    scale: Any = None
    mean: Any = None
    std: Any = None
    layout: Any = None
    skip_broken: Any = None


#: Preprocessing of known training pipelines; a key that is given with a preset wins.
PRESETS: dict[str, ImageOptions] = {
    # torchvision's presets.ClassificationPresetEval: resized to 256, then cropped to 224
    "imagenet": ImageOptions(
        resize="cover", crop=0.875, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]
    ),
    # ultralytics' LetterBox: grey bars of 114, pixels from 0 to 1
    "yolo": ImageOptions(resize="letterbox", pad=114),
    # keras.applications.imagenet_utils.preprocess_input, modes "tf" and "caffe"
    "tf": ImageOptions(resize="stretch", mean=[0.5], std=[0.5]),
    "caffe": ImageOptions(color="BGR", scale=1.0, mean=[103.939, 116.779, 123.68]),
}
IMAGE_OPTIONS = frozenset(item.name for item in fields(ImageOptions))


@dataclass(frozen=True, eq=False, slots=True)
class Preprocess:
    """The preprocessing from an image to a row of the input.

    Attributes:
        height: Rows of pixels that the input takes.
        width: Columns.
        channels: 1 or 3.
        first: True if channels come before rows and columns.
        dtype: Type of the input.
        resize: "cover", "letterbox", "stretch", the shorter side, or (height, width).
        crop: Share of the sides that is kept, 1 for all.
        pad: Colour of the bars of a letterbox, 0 to 255.
        interpolation: Name of Pillow's filter; "area" is its box filter.
        color: "RGB", "BGR" or "gray".
        scale: Factor of the pixels 0 to 255; None for 1/255 (1 if the input takes integers).
        mean: By channel, subtracted after the factor.
        std: By channel, divisor after the subtraction.
    """

    height: int
    width: int
    channels: int
    first: bool
    dtype: np.dtype
    resize: str | int | tuple[int, int]
    crop: float
    pad: tuple[int, ...]
    interpolation: str
    color: str
    scale: float | None
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(
        cls, given: ImageOptions, size: tuple[int, int, int], first: bool, dtype: np.dtype
    ) -> Preprocess:
        """Checks the options for an input of ``size`` (height, width, channels).

        Raises:
            DataError: An option is invalid, or does not fit the input.
        """
        height, width, channels = size
        options = with_preset(given, channels)
        color = choice(
            "color", options.color, ("RGB", "BGR", "gray"), "RGB" if channels > 1 else "gray"
        )
        if channels == 1 and color != "gray":
            raise bad_option("color", color, "the input has one channel: remove it, or use gray")
        resize, crop = check_sizes(options, height, width)
        pad = options.pad
        bars = (114,) if pad is None else tuple(pad) if isinstance(pad, list | tuple) else (pad,)
        if len(bars) not in (1, channels) or not all(is_whole_number(v, 0, LEVELS) for v in bars):
            raise bad_option("pad", pad, f"give a value from 0 to {LEVELS}, or one per channel")
        scale = options.scale
        if scale is not None and not (is_finite_number(scale) and scale > 0):
            raise bad_option("scale", scale, "give the factor for pixels 0 to 255 (default: 1/255)")
        return cls(
            height,
            width,
            channels,
            first,
            dtype,
            resize,
            crop,
            bars,
            choice("interpolation", options.interpolation, INTERPOLATIONS, "bilinear"),
            color,
            1.0 if scale is None and dtype.kind in "iu" else scale,
            per_channel(options.mean, channels, 0.0, "mean"),
            per_channel(options.std, channels, 1.0, "std"),
        )

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, bool]:
        """Returns the row, and True if the image has a single colour.

        Args:
            image: The image, in ``mode``.

        Raises:
            DataError: "data.options": the resized image is smaller than the crop, or its values do
                not fit the input's type.
        """
        codes = np.asarray(self._resize(image))
        codes = codes.reshape(self.height, self.width, -1)
        constant = bool((codes == codes[0, 0]).all())
        if self.color == "BGR":
            codes = codes[:, :, ::-1]
        pixels = codes.astype(np.float32)
        pixels = pixels / 255.0 if self.scale is None else pixels * np.float32(self.scale)
        normal = (pixels - self.mean) / self.std
        if normal.shape[2] < self.channels:
            normal = np.broadcast_to(normal, (self.height, self.width, self.channels))
        if self.first:
            normal = normal.transpose(2, 0, 1)
        if self.dtype.kind in "iu":
            normal = np.rint(normal)
            limits = np.iinfo(self.dtype)
            if normal.min() < limits.min or normal.max() > limits.max:
                raise DataError(
                    f"the pixels are from {normal.min():g} to {normal.max():g}",
                    code="data.options",
                    hint=f"check scale, mean and std; the input takes {self.dtype}",
                )
        return np.ascontiguousarray(normal, self.dtype), constant

    @property
    def mode(self) -> str:
        """Pillow's mode of the input images."""
        return "L" if self.color == "gray" else "RGB"

    def row_image(self, row: np.ndarray) -> Image.Image:
        """Returns a row of the input as an image in mode RGB, as the network sees it."""
        from PIL import Image

        pixels = row.transpose(1, 2, 0) if self.first else row
        codes = pixels.astype(np.float32) * self.std + self.mean
        codes = codes * 255.0 if self.scale is None else codes / np.float32(self.scale)
        if self.color == "BGR":
            codes = codes[:, :, ::-1]
        codes = np.broadcast_to(np.rint(codes).clip(0, LEVELS), (self.height, self.width, 3))
        return Image.fromarray(codes.astype(np.uint8))

    def placing(self, height: int, width: int) -> Placing:
        """Returns the placing of an image of this size on the input.

        Raises:
            DataError: "data.options": the resized image is smaller than the crop.
        """
        picture, size = (height, width), (self.height, self.width)
        if self.resize == "stretch":
            return stretch(picture, size)
        if self.resize == "letterbox":
            return letterbox(picture, size)
        if self.resize == "cover" and self.crop == 1:
            return cover(picture, size)
        if isinstance(self.resize, tuple):
            grown = self.resize
        elif isinstance(self.resize, int):
            grown = _size_at_ratio(picture, self.resize / min(picture))
        else:
            # as torchvision's Resize to the size divided by the share, and CenterCrop to the size
            factor = max(
                round(self.width / self.crop) / width, round(self.height / self.crop) / height
            )
            grown = _size_at_ratio(picture, factor)
        high, wide = grown
        if high < self.height or wide < self.width:
            raise bad_option(
                "resize",
                f"{self.resize}, which gives an image of {high}x{wide}",
                f"give a larger size; the input of {self.height}x{self.width} is cut from it",
            )
        return crop_resized(picture, size, grown)

    def _resize(self, image: Image.Image) -> Image.Image:
        from PIL import Image, ImageOps

        name = "box" if self.interpolation == "area" else self.interpolation
        how = Image.Resampling[name.upper()]
        size = (self.width, self.height)
        if self.resize == "cover" and self.crop == 1:
            return ImageOps.fit(image, size, how)
        placing = self.placing(image.height, image.width)
        high, wide = map(int, placing.resized)
        left, top = int(placing.left), int(placing.top)
        if image.size != (wide, high):
            image = image.resize((wide, high), how)
        if self.resize != "letterbox":
            return image.crop((-left, -top, self.width - left, self.height - top))
        bands = len(image.getbands())
        bars = self.pad if len(self.pad) == bands else self.pad[:1] * bands
        # stored pixels are RGB; bars are given in the input's order
        bars = bars[::-1] if self.color == "BGR" else bars
        sheet = Image.new(image.mode, size, bars if bands > 1 else bars[0])
        sheet.paste(image, (left, top))
        return sheet


def _size_at_ratio(size: tuple[int, int], factor: float) -> tuple[int, int]:
    # the tiny addition corrects the rounding of 256 / 3 * 3
    high, wide = (max(1, math.floor(side * factor + 1e-6)) for side in size)
    return high, wide


def files_in(folder: Path, suffixes: Iterable[str]) -> list[Path]:
    """Returns the files with these endings, in the folders below too, in order of their paths.

    Names that begin with a dot are left out, and links to folders are not followed (they may form
    a cycle).
    """
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(place, name)
            wanted = not name.startswith(".") and path.suffix.lower() in suffixes
            # a dangling link is listed, so that reading reports it; a pipe would block
            if wanted and (os.path.isfile(path) or not os.path.exists(path)):
                found.append(path)
    return sorted(found)


class Images:
    """The images of a folder.

    At most the images of two samples (or four images, if that is more) are decoded ahead.
    """

    def __init__(
        self, files: list[Path], name: str, prepare: Preprocess, *, batch: int, skip: bool = False
    ) -> None:
        """Takes ``files`` for input ``name``; ``skip`` leaves out unreadable files."""
        self.size: int | None = len(files)
        self._files = files
        self._name = name
        self._prepare = prepare
        self._batch = batch
        self._skip = skip
        self._broken: dict[str, str] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about images that were left out."""
        if not self._broken:
            return ()
        where, why = next(iter(self._broken.items()))
        more = f", and {len(self._broken) - 1} more" if len(self._broken) > 1 else ""
        return (f"unreadable images are skipped: {where} ({why}){more}",)

    def rows(self, picks: Iterable[int]) -> Iterator[DataRow]:
        """Yields rows; see ``Source``."""
        window = 2 * max(self._batch, _WORKERS)
        for row in read_ahead(self._row, picks, workers=_WORKERS, window=window):
            if isinstance(row, DataRow):
                yield row
            elif self._skip and row.code == _BROKEN:
                self._broken[row.where] = row.message
            else:
                raise row

    def _row(self, index: int) -> DataRow | DataError:
        path = self._files[index]
        try:
            pixels, constant = self._prepare(read_image(path, self._prepare.mode))
        except DataError as error:  # the image is broken, or an option does not fit it
            where, hint = error.where or path_text(path), error.hint
            if error.code == _BROKEN:
                hint += ", or skip such files with skip_broken: true"
            return DataError(error.message, code=error.code, where=where, hint=hint)
        return DataRow({self._name: pixels}, path_text(path), constant)


def channels_last(shape: Sequence[int]) -> bool:
    """Returns True if an image input has its channels last: only its last size can be channels."""
    return shape[-1] in CHANNELS and shape[1] not in CHANNELS


def image_sizes(files: Iterable[Path]) -> list[tuple[int, int]]:
    """Returns height and width of each readable image, upright.

    Unreadable images are left out: reading their pixels reports them.
    """
    found = []
    for path in files:
        # third-party decoders raise any exception
        with contextlib.suppress(Exception), _open_image(path) as image:
            width, height = image.size
            turned = image.getexif().get(_ORIENTATION, 1) >= _FIRST_TURNED
            found.append((width, height) if turned else (height, width))
    return found


def read_image(path: Path, mode: str = "RGB") -> Image.Image:
    """Returns an image upright, with 8 bits a channel, without transparency.

    Args:
        path: The file.
        mode: "RGB" or "L".

    Raises:
        DataError: "data.image": the image cannot be read.
    """
    try:
        with _open_image(path) as image:
            return _convert(image, mode)
    except Exception as error:  # third-party decoders raise any exception
        raise _image_error(path, error) from error


def _open_image(path: Path) -> Image.Image:
    from PIL import Image

    regular_file(path)
    # Pillow only warns about images up to twice its limit against decompression bombs
    with _OPENING, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(path)


def _convert(image: Image.Image, mode: str) -> Image.Image:
    """Returns the image upright, with 8 bits a channel, without transparency.

    Alpha is dropped; the stored colour stays unchanged, as with torchvision and OpenCV.
    """
    from PIL import Image, ImageOps

    image.load()
    # broken EXIF data are ignored if the pixels are intact
    with contextlib.suppress(Exception):
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16 bits; convert() would clip to 8 bits
        codes = np.asarray(image).astype(np.int64)
        if codes.min() < 0 or codes.max() > _STEP * 255:
            raise ValueError("its pixels have more than 16 bits; give an .npy file instead")
        image = Image.fromarray(((codes + _STEP // 2) // _STEP).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("its pixels are floating-point numbers; give an .npy file instead")
    # Pillow warns about a palette with transparency that is converted to RGB directly
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    return image.convert(mode)


def _image_error(path: Path, error: Exception) -> DataError:
    name = type(error).__name__
    reason = first_line(error, name)
    if "DecompressionBomb" in name:
        reason = "it has too many pixels for a photo, like a decompression bomb"
    elif name == "UnidentifiedImageError":
        reason = "Pillow does not know the format, or the file is damaged"
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    return DataError(
        f"cannot read the image: {reason}",
        code=_BROKEN,
        where=path_text(path),
        hint="remove or replace the file",
    )


def with_preset(given: ImageOptions, channels: int) -> ImageOptions:
    """Returns the given options, completed by their preset."""
    name = given.preset
    if name is None:
        return given
    if name not in PRESETS:
        raise bad_option("preset", name, f"use one of {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if channels == 1 and any(len(values or ()) > 1 for values in (preset.mean, preset.std)):
        raise bad_option("preset", name, "it is for three channels, but the input has one")
    if given.resize not in (None, "cover"):
        # a share of the sides is valid with a covering size only
        preset = replace(preset, crop=None)
    own = {key: getattr(given, key) for key in IMAGE_OPTIONS}
    return replace(preset, **{key: value for key, value in own.items() if value is not None})


def check_sizes(
    options: ImageOptions, height: int, width: int
) -> tuple[str | int | tuple[int, int], float]:
    """Checks ``resize`` and ``crop`` for an input; returns ``resize`` and the kept share."""
    resize, crop = "cover" if options.resize is None else options.resize, options.crop
    pair = _pair(resize)
    if not (resize in _RESIZES or is_whole_number(resize, 1) or pair):
        raise bad_option(
            "resize", resize, f"use {', '.join(_RESIZES)}, the shorter side, or [height, width]"
        )
    found: str | int | tuple[int, int] = pair or resize
    small = isinstance(found, int) and found < min(height, width)
    if small or (pair and (pair[0] < height or pair[1] < width)):
        raise bad_option(
            "resize", resize, f"give a larger size; the input of {height}x{width} is cut from it"
        )
    if crop is None:
        return found, 1.0
    if isinstance(crop, float) and 0 < crop <= 1:
        if found != "cover":
            raise bad_option("crop", crop, "use resize: cover with a share of the sides")
        return found, crop
    cut = (crop, crop) if is_whole_number(crop, 1) else _pair(crop)
    if cut is None:
        raise bad_option("crop", crop, "give a size, [height, width], or a share such as 0.875")
    if cut != (height, width):
        raise bad_option("crop", crop, f"the crop must be the size of the input, {height}x{width}")
    if isinstance(found, str):
        raise bad_option("crop", crop, f"give resize a size; with resize: {found} nothing is cut")
    return found, 1.0


def _pair(value: Any) -> tuple[int, int] | None:
    fits = (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(is_whole_number(v, 1) for v in value)
    )
    return (value[0], value[1]) if fits else None


def is_whole_number(value: Any, low: int, high: int = 1 << 16) -> bool:
    """Returns True if a value is a whole number within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_finite_number(value: Any) -> bool:
    """Returns True if a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def choice(option: str, value: Any, known: tuple[str, ...], default: str) -> str:
    """Returns an option that is one of several words; the default if it is not given."""
    if value is None:
        return default
    if value not in known:
        raise bad_option(option, value, f"use one of {', '.join(known)}")
    return str(value)


def per_channel(values: Any, channels: int, default: float, option: str) -> np.ndarray:
    """Returns an option with a number, or a number per channel, as float32."""
    every = (
        [default] if values is None else values if isinstance(values, list | tuple) else [values]
    )
    right = len(every) in (1, channels) and all(is_finite_number(value) for value in every)
    if not right or (option == "std" and 0 in every):
        raise bad_option(
            option, values, f"give one number, or {channels} (one per channel); std must not be 0"
        )
    return np.asarray(every, np.float32)


def bad_option(option: str, value: Any, hint: str) -> DataError:
    """Returns the error for an option."""
    return DataError(f"{option} is {value}", code="data.options", hint=hint)


def options_without_effect(given: Collection[str]) -> list[str]:
    """Returns notes on image options among the given keys if no data are given."""
    named = sorted(IMAGE_OPTIONS.intersection(given))
    if not named:
        return []
    return [
        f"{', '.join(named)}: no effect, because no data are given and synthetic inputs are not "
        "preprocessed"
    ]
