"""Where a picture lies on a network's input, in numbers: forth when it is prepared, and back for
what was found. ``letterbox``, ``stretch``, ``cover`` and ``cropped`` place it as the
configuration's ``calibration.resize`` of that name does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, List, Tuple

from edgekit_device.detection.results import Array, Found

#: Height and width in pixels.
Size = Tuple[int, int]


@dataclass(frozen=True)
class Placing:
    """A picture on an input: the pixel at (x, y) comes to (x * scale_x + left, y * scale_y + top).

    Attributes:
        picture: The picture's size.
        size: The input's.
        resized: Height and width of the picture's copy, of which the input may show a part.
        left: Where its left edge is, in pixels of the input; negative where it is cut off.
        top: Where its upper edge is.
    """

    picture: Size
    size: Size
    resized: Tuple[float, float]
    left: float = 0.0
    top: float = 0.0

    @property
    def scale_x(self) -> float:
        """Pixels of the input for one of the picture's width."""
        return self.resized[1] / self.picture[1]

    @property
    def scale_y(self) -> float:
        """The same of its height."""
        return self.resized[0] / self.picture[0]

    def forth(self, x: float, y: float) -> Tuple[float, float]:
        """Returns where a point of the picture comes to."""
        return x * self.scale_x + self.left, y * self.scale_y + self.top

    def point_back(self, x: float, y: float) -> Tuple[float, float]:
        """Returns the point of the picture that comes there, or the nearest one of its edge."""
        height, width = self.picture
        found_x, found_y = (x - self.left) / self.scale_x, (y - self.top) / self.scale_y
        return min(max(found_x, 0.0), float(width)), min(max(found_y, 0.0), float(height))

    def back(self, objects: Iterable[Found]) -> List[Found]:
        """Returns objects in pixels of the picture; those that are wholly beside it are left out.

        Args:
            objects: In pixels of the input.
        """
        found = []
        for one in objects:
            left, top = self.point_back(*one.box[:2])
            right, bottom = self.point_back(*one.box[2:])
            if right <= left or bottom <= top:
                continue
            points = tuple((*self.point_back(*point[:2]), *point[2:]) for point in one.points)
            mask = None if one.mask is None else self.mask_back(one.mask)
            found.append(replace(one, box=(left, top, right, bottom), points=points, mask=mask))
        return found

    def mask_back(self, mask: Array) -> Array:
        """Returns a mask over the picture [height, width] of one over the input."""
        import numpy as np

        picked, inside = [], []
        sides = zip(self.picture, self.size, (self.scale_y, self.scale_x), (self.top, self.left))  # noqa: B905 (Python 3.8)
        for pixels, size, scale, start in sides:
            place = np.floor((np.arange(pixels) + 0.5) * scale + start).astype(np.int64)
            inside.append((place >= 0) & (place < size))
            picked.append(place.clip(0, size - 1))
        shown: Array = mask[np.ix_(*picked)] & inside[0][:, None] & inside[1][None]
        return shown


def letterbox(picture: Size, size: Size) -> Placing:
    """Places a picture whole, in the middle, with bars beside or above and below it.

    As Ultralytics' LetterBox does: an odd row or column of the bars is below or to the right.
    """
    factor = min(size[0] / picture[0], size[1] / picture[1])
    high = min(size[0], max(1, round(picture[0] * factor)))
    wide = min(size[1], max(1, round(picture[1] * factor)))
    return Placing(picture, size, (high, wide), (size[1] - wide) // 2, (size[0] - high) // 2)


def stretch(picture: Size, size: Size) -> Placing:
    """Places a picture whole, with each side as long as the input's."""
    return Placing(picture, size, size)


def cover(picture: Size, size: Size) -> Placing:
    """Places the middle of a picture, so that it fills the input."""
    factor = max(size[0] / picture[0], size[1] / picture[1])
    high, wide = picture[0] * factor, picture[1] * factor
    return Placing(picture, size, (high, wide), (size[1] - wide) / 2, (size[0] - high) / 2)


def cropped(picture: Size, size: Size, resized: Size) -> Placing:
    """Places the middle of a picture that was resized first."""
    left, top = round((resized[1] - size[1]) / 2.0), round((resized[0] - size[0]) / 2.0)
    return Placing(picture, size, resized, -left, -top)
