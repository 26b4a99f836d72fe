"""Draws a detector's objects: boxes with classes and scores, masks, keypoints, text."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from edgekit_device.detection.results import Found

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

Colour = tuple[int, int, int]

# the golden ratio's fraction spreads any number of hues
_HUE = 0.618034
_MASK = 0.45  # share of the colour
_LINE = 0.003  # width as fraction of the picture's sides
_LEAST = 480  # pixels of the longer side, so that boxes and their labels can be read
_VISIBLE = 0.5
_WITH_VISIBILITY = 3
_BRIGHT = 140


def colour_of(number: int) -> Colour:
    """Returns the colour of a class: red, green and blue, 0 to 255."""
    red, green, blue = colorsys.hsv_to_rgb(number * _HUE % 1.0, 0.9, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw(image: Image.Image, objects: Sequence[Found], *, polygons: bool = False) -> Image.Image:
    """Returns a picture with the objects drawn on it; a small picture is enlarged.

    Args:
        image: The picture, in mode RGB; it is not changed.
        objects: Objects in pixels of the picture; the first is drawn last, above the others.
        polygons: True if an object's points are the corners of its outline instead of keypoints.
    """
    from PIL import Image, ImageDraw

    pixels = np.array(image)
    for one in reversed(objects):
        if one.mask is not None:
            inside = np.asarray(one.mask, bool)
            mixed = (1 - _MASK) * pixels[inside] + _MASK * np.array(colour_of(one.number))
            pixels[inside] = mixed.round().astype(np.uint8)
    factor = math.ceil(_LEAST / max(image.size))
    drawn = Image.fromarray(pixels.repeat(factor, axis=0).repeat(factor, axis=1))
    pen = ImageDraw.Draw(drawn)
    width = max(2, round(sum(drawn.size) / 2 * _LINE))
    for one in (_enlarged(found, factor) for found in reversed(objects)):
        colour = colour_of(one.number)
        if polygons and one.points:
            corners = [(point[0], point[1]) for point in one.points]
            pen.line([*corners, corners[0]], fill=colour, width=width, joint="curve")
        else:
            left, top, right, bottom = one.box
            # the outermost pixels of the box, which ends at the next pixel's beginning
            right, bottom = max(left, right - 1), max(top, bottom - 1)
            pen.rectangle((left, top, right, bottom), outline=colour, width=width)
            for point in one.points:
                _dot(pen, point, colour, width)
        _label(pen, one, colour, width, drawn.size)
    return drawn


def _enlarged(one: Found, factor: int) -> Found:
    left, top, right, bottom = (factor * side for side in one.box)
    points = tuple((factor * x, factor * y, *rest) for x, y, *rest in one.points)
    return replace(one, box=(left, top, right, bottom), points=points)


def _dot(pen: ImageDraw.ImageDraw, point: Sequence[float], colour: Colour, width: int) -> None:
    if len(point) >= _WITH_VISIBILITY and point[2] < _VISIBLE:
        return
    x, y = point[0], point[1]
    pen.ellipse((x - width, y - width, x + width, y + width), fill=colour, outline=(255, 255, 255))


def _label(
    pen: ImageDraw.ImageDraw, one: Found, colour: Colour, width: int, size: tuple[int, int]
) -> None:
    from PIL import ImageFont

    text = f"{one.text or one.name or f'class {one.number}'} {one.score:.2f}"
    font = ImageFont.load_default(max(10, 6 * width))
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    wide, high = right - left + 2 * width, bottom - top + 2 * width
    # above the box, or inside at the picture's edge
    x = max(0.0, min(one.box[0], size[0] - wide))
    y = one.box[1] - high if one.box[1] >= high else one.box[1]
    pen.rectangle((x, y, x + wide, y + high), fill=colour)
    light = sum(colour) / len(colour) < _BRIGHT
    ink = (255, 255, 255) if light else (0, 0, 0)
    pen.text((x + width - left, y + width - top), text, fill=ink, font=font)
