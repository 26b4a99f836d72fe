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


def class_colour(number: int) -> Colour:
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
    # masks first, so that boxes and labels are above all masks
    for found in reversed(objects):
        if found.mask is not None:
            inside = np.asarray(found.mask, bool)
            mixed = (1 - _MASK) * pixels[inside] + _MASK * np.array(class_colour(found.number))
            pixels[inside] = mixed.round().astype(np.uint8)
    factor = math.ceil(_LEAST / max(image.size))
    drawn = Image.fromarray(pixels.repeat(factor, axis=0).repeat(factor, axis=1))
    pen = ImageDraw.Draw(drawn)
    width = max(2, round(sum(drawn.size) / 2 * _LINE))
    for each in reversed(objects):
        found = _enlarge(each, factor)
        colour = class_colour(found.number)
        if polygons and found.points:
            corners = [(point[0], point[1]) for point in found.points]
            pen.line([*corners, corners[0]], fill=colour, width=width, joint="curve")
        else:
            left, top, right, bottom = found.box
            # the outermost pixels of the box, which ends at the next pixel's beginning
            right, bottom = max(left, right - 1), max(top, bottom - 1)
            pen.rectangle((left, top, right, bottom), outline=colour, width=width)
            for point in found.points:
                _draw_dot(pen, point, colour, width)
        _draw_label(pen, found, colour, width, drawn.size)
    return drawn


def _enlarge(found: Found, factor: int) -> Found:
    left, top, right, bottom = (factor * side for side in found.box)
    points = tuple((factor * x, factor * y, *rest) for x, y, *rest in found.points)
    return replace(found, box=(left, top, right, bottom), points=points)


def _draw_dot(pen: ImageDraw.ImageDraw, point: Sequence[float], colour: Colour, width: int) -> None:
    if len(point) >= _WITH_VISIBILITY and point[2] < _VISIBLE:
        return
    x, y = point[0], point[1]
    pen.ellipse((x - width, y - width, x + width, y + width), fill=colour, outline=(255, 255, 255))


def _draw_label(
    pen: ImageDraw.ImageDraw, found: Found, colour: Colour, width: int, size: tuple[int, int]
) -> None:
    from PIL import ImageFont

    text = f"{found.text or found.name or f'class {found.number}'} {found.score:.2f}"
    font = ImageFont.load_default(max(10, 6 * width))
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    wide, high = right - left + 2 * width, bottom - top + 2 * width
    # above the box, or inside at the picture's edge
    x = max(0.0, min(found.box[0], size[0] - wide))
    y = found.box[1] - high if found.box[1] >= high else found.box[1]
    pen.rectangle((x, y, x + wide, y + high), fill=colour)
    light = sum(colour) / len(colour) < _BRIGHT
    ink = (255, 255, 255) if light else (0, 0, 0)
    pen.text((x + width - left, y + width - top), text, fill=ink, font=font)
