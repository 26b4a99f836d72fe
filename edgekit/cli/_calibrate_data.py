"""``edgekit calibrate --data``: the options that say what is measured on."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.errors import UsageError
from edgekit.network import PYTHON

__all__ = ["options"]


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--{option} {text!r} is not a list of numbers", hint=f"--{option} 0.485,0.456,0.406"
        ) from None


def _size(_option: str, text: str) -> Any:
    """A size, HEIGHTxWIDTH, a share, or a word, which the configuration's schema knows."""
    for parse in (int, lambda t: [int(side) for side in t.lower().split("x")], float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text


def _colour(option: str, text: str) -> Any:
    found = [int(v) if v.is_integer() else v for v in _numbers(option, text)]
    return found if len(found) > 1 else found[0]


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "resize": _size, "crop": _size, "pad": _colour, "mean": _numbers, "std": _numbers,
}  # fmt: skip

_OPTIONS = o.all_of(
    click.option(
        "--data",
        help="Folder of images, .npz, .npy, folder of these, or python:module:function; "
        "synthetic when absent.",
    ),
    click.option("--count", type=int, help="At most this many samples (16)."),
    click.option("--pick", help="Which of more: first (the default) or spread."),
    click.option("--preset", help="Images as for imagenet, yolo, tf or caffe."),
    click.option(
        "--resize", help="cover (the default), letterbox, stretch, a size, or HEIGHTxWIDTH."
    ),
    click.option("--crop", help="The middle that is kept: 0.875, a size, or HEIGHTxWIDTH."),
    click.option("--pad", help="Colour of a letterbox's bars (114)."),
    click.option("--interpolation", help="nearest, bilinear, bicubic, lanczos or area."),
    click.option("--color", help="RGB, BGR or gray."),
    click.option("--scale", type=float, help="Factor of the pixels 0 to 255 (1/255)."),
    click.option("--mean", help="By channel, after --scale: 0.485,0.456,0.406."),
    click.option("--std", help="By channel, likewise."),
    click.option("--layout", help="NCHW or NHWC."),
    click.option(
        "--skip-broken", is_flag=True, default=None, help="Leave out images that cannot be read."
    ),
)
_KEYS = (
    "data", "count", "pick", "preset", "resize", "crop", "pad", "interpolation", "color", "scale",
    "mean", "std", "layout", "skip_broken",
)  # fmt: skip


def options(function: Any) -> Any:
    """Gives a command the calibration data, as ``inputs``: keys of "calibration"."""

    @wraps(function)
    def with_inputs(**given: Any) -> Any:
        inputs = {key: given.pop(key) for key in _KEYS}
        for key, parse in _PARSERS.items():
            if inputs[key] is not None:
                inputs[key] = parse(key, inputs[key])
        if inputs["data"] and not inputs["data"].startswith(PYTHON):
            # in the configuration a path would be relative to its file
            inputs["data"] = os.path.realpath(inputs["data"])
        return function(inputs=inputs, **given)

    return _OPTIONS(with_inputs)
