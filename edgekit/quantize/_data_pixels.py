"""From an image to what a network takes: size, channels, values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError
from edgekit.quantize._data_options import (
    INTERPOLATIONS,
    LEVELS,
    bad,
    choice,
    number,
    per_channel,
    sizes,
    whole,
    with_preset,
)

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

__all__ = ["Preprocess"]


@dataclass(frozen=True, eq=False, slots=True)
class Preprocess:
    """How an image becomes a row of the input.

    Attributes:
        height: Rows of pixels that the input takes.
        width: Columns.
        channels: 1 or 3.
        first: Whether channels come before rows and columns.
        dtype: Type of the input.
        resize: "cover", "letterbox", "stretch", the shorter side, or (height, width).
        crop: Share of the sides that is kept, 1 for all.
        pad: Colour of the bars of a letterbox, 0 to 255.
        interpolation: Name of Pillow's filter, "area" being its box.
        color: "RGB", "BGR" or "gray".
        scale: Factor of the pixels 0 to 255; None for 1/255 (1 where the input takes integers).
        mean: By channel, subtracted after the factor.
        std: By channel, divided by at last.
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
        cls, given: Mapping[str, Any], size: tuple[int, int, int], first: bool, dtype: np.dtype
    ) -> Preprocess:
        """Checks the options for an input of ``size`` (height, width, channels).

        Raises:
            DataError: An option makes no sense, or does not go with the input.
        """
        height, width, channels = size
        options = with_preset(given, channels)
        color = choice(options, "color", ("RGB", "BGR", "gray"), "RGB" if channels > 1 else "gray")
        if channels == 1 and color != "gray":
            raise bad("color", color, "the input has one channel: leave it out, or say gray")
        resize, crop = sizes(options, height, width)
        pad = options.get("pad")
        bars = (114,) if pad is None else tuple(pad) if isinstance(pad, list | tuple) else (pad,)
        if len(bars) not in (1, channels) or not all(whole(v, 0, LEVELS) for v in bars):
            raise bad("pad", pad, f"give a value from 0 to {LEVELS}, or one per channel")
        scale = options.get("scale")
        if scale is not None and not (number(scale) and scale > 0):
            raise bad("scale", scale, "pixels 0 to 255 are multiplied by it; 1/255 when absent")
        return cls(
            height, width, channels, first, dtype, resize, crop, bars,
            choice(options, "interpolation", INTERPOLATIONS, "bilinear"), color,
            1.0 if scale is None and dtype.kind in "iu" else scale,
            per_channel(options.get("mean"), channels, 0.0, "mean"),
            per_channel(options.get("std"), channels, 1.0, "std"),
        )  # fmt: skip

    def __call__(self, image: Image.Image) -> tuple[np.ndarray, bool]:
        """Returns the row, and whether the image shows one colour only.

        Args:
            image: In mode L where ``color`` is gray, in RGB otherwise.

        Raises:
            DataError: "data.options": resized it is smaller than what is cut out of it, or its
                values do not fit the input's type.
        """
        import numpy as np

        codes = np.asarray(self._fitted(image))
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
                    f"the pixels go from {normal.min():g} to {normal.max():g}",
                    code="data.options",
                    hint=f"the input takes {self.dtype}: look at scale, mean and std",
                )
        return np.ascontiguousarray(normal, self.dtype), constant

    def _fitted(self, image: Image.Image) -> Image.Image:
        from PIL import Image, ImageOps

        name = "box" if self.interpolation == "area" else self.interpolation
        how = Image.Resampling[name.upper()]
        size = (self.width, self.height)
        if self.resize == "stretch":
            return image.resize(size, how)
        if self.resize == "letterbox":
            return self._letterbox(image, how)
        if self.resize == "cover" and self.crop == 1:
            return ImageOps.fit(image, size, how)
        if isinstance(self.resize, tuple):
            grown = self.resize
        elif isinstance(self.resize, int):
            grown = _kept_ratio(image, self.resize / min(image.size))
        else:
            # as torchvision's Resize to the size over the share, and CenterCrop to the size
            factor = max(round(self.width / self.crop) / image.width,
                         round(self.height / self.crop) / image.height)  # fmt: skip
            grown = _kept_ratio(image, factor)
        high, wide = grown
        if high < self.height or wide < self.width:
            raise bad(
                "resize",
                f"{self.resize}, which makes an image {high}x{wide}",
                f"the input, {self.height}x{self.width}, is cut from it: give more",
            )
        image = image if image.size == (wide, high) else image.resize((wide, high), how)
        top, left = round((high - self.height) / 2.0), round((wide - self.width) / 2.0)
        return image.crop((left, top, left + self.width, top + self.height))

    def _letterbox(self, image: Image.Image, how: Image.Resampling) -> Image.Image:
        from PIL import Image

        # as ultralytics' LetterBox places it: an odd row or column goes below and to the right
        factor = min(self.height / image.height, self.width / image.width)
        wide = min(self.width, max(1, round(image.width * factor)))
        high = min(self.height, max(1, round(image.height * factor)))
        if image.size != (wide, high):
            image = image.resize((wide, high), how)
        bands = len(image.getbands())
        bars = self.pad if len(self.pad) == bands else self.pad[:1] * bands
        # what is stored is RGB; bars are given in the input's order
        bars = bars[::-1] if self.color == "BGR" else bars
        sheet = Image.new(image.mode, (self.width, self.height), bars if bands > 1 else bars[0])
        sheet.paste(image, ((self.width - wide) // 2, (self.height - high) // 2))
        return sheet


def _kept_ratio(image: Image.Image, factor: float) -> tuple[int, int]:
    # the tiny addition undoes the rounding of 256 / 3 * 3
    sides = [max(1, math.floor(side * factor + 1e-6)) for side in image.size]
    return sides[1], sides[0]
