"""The options of image data: presets, and checks of each value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.errors import DataError

#: What known training pipelines do; a key that is given with a preset wins.
PRESETS: dict[str, dict[str, Any]] = {
    # torchvision's presets.ClassificationPresetEval: 256, then 224 of it
    "imagenet": {
        "resize": "cover", "crop": 0.875, "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    },
    # ultralytics' LetterBox: grey bars of 114, pixels from 0 to 1
    "yolo": {"resize": "letterbox", "pad": 114},
    # keras.applications.imagenet_utils.preprocess_input, modes "tf" and "caffe"
    "tf": {"resize": "stretch", "mean": [0.5], "std": [0.5]},
    "caffe": {"color": "BGR", "scale": 1.0, "mean": [103.939, 116.779, 123.68]},
}  # fmt: skip

IMAGE_OPTIONS = frozenset({
    "preset", "resize", "crop", "pad", "interpolation", "color", "scale", "mean", "std", "layout",
    "skip_broken",
})  # fmt: skip

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
_RESIZES = ("cover", "letterbox", "stretch")
LEVELS = 255


def with_preset(given: Mapping[str, Any], channels: int) -> dict[str, Any]:
    """Returns the options that are given, and those of their preset."""
    own = {key: value for key, value in given.items() if value is not None}
    name = own.pop("preset", None)
    if name is None:
        return own
    if name not in PRESETS:
        raise bad("preset", name, f"use one of {', '.join(PRESETS)}")
    preset = PRESETS[name]
    if channels == 1 and any(len(preset.get(key, ())) > 1 for key in ("mean", "std")):
        raise bad("preset", name, "it is for three channels, and the input has one")
    if "resize" in own and own["resize"] != "cover":
        # a share of the sides goes with a covering size only
        preset = {key: value for key, value in preset.items() if key != "crop"}
    return {**preset, **own}


def sizes(
    options: Mapping[str, Any], height: int, width: int
) -> tuple[str | int | tuple[int, int], float]:
    """Checks ``resize`` and ``crop`` for an input; returns the first and the share that is kept."""
    resize, crop = options.get("resize", "cover"), options.get("crop")
    pair = _pair(resize)
    if not (resize in _RESIZES or whole(resize, 1) or pair):
        raise bad(
            "resize", resize, f"use {', '.join(_RESIZES)}, the shorter side, or [height, width]"
        )
    found: str | int | tuple[int, int] = pair or resize
    small = isinstance(found, int) and found < min(height, width)
    if small or (pair and (pair[0] < height or pair[1] < width)):
        raise bad("resize", resize, f"the input, {height}x{width}, is cut from it: give more")
    if crop is None:
        return found, 1.0
    if isinstance(crop, float) and 0 < crop <= 1:
        if found != "cover":
            raise bad("crop", crop, "a share of the sides goes with resize: cover")
        return found, crop
    cut = (crop, crop) if whole(crop, 1) else _pair(crop)
    if cut is None:
        raise bad("crop", crop, "give a size, [height, width], or a share such as 0.875")
    if cut != (height, width):
        raise bad("crop", crop, f"the input takes {height}x{width}, and the crop is what it gets")
    if isinstance(found, str):
        raise bad("crop", crop, f"with resize: {found} nothing is cut; give resize a size")
    return found, 1.0


def _pair(value: Any) -> tuple[int, int] | None:
    fits = isinstance(value, list | tuple) and len(value) == 2 and all(whole(v, 1) for v in value)
    return (value[0], value[1]) if fits else None


def whole(value: Any, low: int, high: int = 1 << 16) -> bool:
    """Says whether a value is a whole number within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def number(value: Any) -> bool:
    """Says whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def choice(options: Mapping[str, Any], key: str, known: tuple[str, ...], default: str) -> str:
    """Returns an option that is one of several words."""
    value = options.get(key, default)
    if value not in known:
        raise bad(key, value, f"use one of {', '.join(known)}")
    return str(value)


def per_channel(values: Any, channels: int, default: float, option: str) -> np.ndarray:
    """Returns an option with one number, or one per channel, as float32."""
    every = (
        [default] if values is None else values if isinstance(values, list | tuple) else [values]
    )
    right = len(every) in (1, channels) and all(number(value) for value in every)
    if not right or (option == "std" and 0 in every):
        raise bad(
            option, values, f"give one number or {channels}, one per channel; std may not be 0"
        )
    return np.asarray(every, np.float32)


def bad(option: str, value: Any, hint: str) -> DataError:
    """Returns the error for an option."""
    return DataError(f"{option} is {value}", code="data.options", hint=hint)
