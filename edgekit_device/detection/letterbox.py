"""The position of a picture on a network's input, and the way back for found objects.
``letterbox``, ``stretch``, ``cover`` and ``crop_resized`` place it as the configuration's
``calibration.resize`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable, List, Tuple

from edgekit_device.detection.results import Array, Found

#: Height and width in pixels.
Size = Tuple[int, int]


@dataclass(frozen=True)
class Placing:
    """A picture on an input: pixel (x, y) is placed at (x * scale_x + left, y * scale_y + top).

    Attributes:
        picture: The picture's size.
        size: The input's size.
        resized: Height and width of the picture's resized copy; the input may show only a part.
        left: Position of its left edge, in pixels of the input; negative if it is cut off.
        top: Position of its upper edge.
    """

    picture: Size
    size: Size
    resized: Tuple[float, float]
    left: float = 0.0
    top: float = 0.0

    @property
    def scale_x(self) -> float:
        """Pixels of the input for a pixel of the picture's width."""
        return self.resized[1] / self.picture[1]

    @property
    def scale_y(self) -> float:
        """Pixels of the input for a pixel of the picture's height."""
        return self.resized[0] / self.picture[0]

    def forth(self, x: float, y: float) -> Tuple[float, float]:
        """Returns the input's point for a point of the picture."""
        return x * self.scale_x + self.left, y * self.scale_y + self.top

    def point_back(self, x: float, y: float) -> Tuple[float, float]:
        """Returns the picture's point for a point of the input, or the edge's nearest point."""
        height, width = self.picture
        found_x, found_y = (x - self.left) / self.scale_x, (y - self.top) / self.scale_y
        return min(max(found_x, 0.0), float(width)), min(max(found_y, 0.0), float(height))

    def back(self, objects: Iterable[Found]) -> List[Found]:
        """Returns objects in pixels of the picture, without those completely outside.

        Args:
            objects: Objects in pixels of the input.
        """
        found = []
        for detected in objects:
            left, top = self.point_back(*detected.box[:2])
            right, bottom = self.point_back(*detected.box[2:])
            # a box in the bars: its corners meet at the picture's edge
            if right <= left or bottom <= top:
                continue
            points = tuple((*self.point_back(*point[:2]), *point[2:]) for point in detected.points)
            mask = None if detected.mask is None else self.mask_back(detected.mask)
            found.append(
                replace(detected, box=(left, top, right, bottom), points=points, mask=mask)
            )
        return found

    def mask_back(self, mask: Array) -> Array:
        """Returns a mask over the picture [height, width] for a mask over the input."""
        import numpy as np

        picked, inside = [], []
        sides = zip(self.picture, self.size, (self.scale_y, self.scale_x), (self.top, self.left))  # noqa: B905 (Python 3.8)
        for pixels, size, scale, start in sides:
            # the input's pixel that contains the centre of the picture's pixel
            place = np.floor((np.arange(pixels) + 0.5) * scale + start).astype(np.int64)
            inside.append((place >= 0) & (place < size))
            picked.append(place.clip(0, size - 1))
        shown: Array = mask[np.ix_(*picked)] & inside[0][:, None] & inside[1][None]
        return shown


def letterbox(picture: Size, size: Size) -> Placing:
    """Places the whole picture in the middle, with bars beside or above and below it.

    As Ultralytics' LetterBox does: an odd row or column of the bars is below or to the right.
    """
    factor = min(size[0] / picture[0], size[1] / picture[1])
    high = min(size[0], max(1, round(picture[0] * factor)))
    wide = min(size[1], max(1, round(picture[1] * factor)))
    return Placing(picture, size, (high, wide), (size[1] - wide) // 2, (size[0] - high) // 2)


def stretch(picture: Size, size: Size) -> Placing:
    """Places the whole picture, with each side as long as the input's."""
    return Placing(picture, size, size)


def cover(picture: Size, size: Size) -> Placing:
    """Places the middle of a picture, so that it fills the input."""
    factor = max(size[0] / picture[0], size[1] / picture[1])
    high, wide = picture[0] * factor, picture[1] * factor
    return Placing(picture, size, (high, wide), (size[1] - wide) / 2, (size[0] - high) / 2)


def crop_resized(picture: Size, size: Size, resized: Size) -> Placing:
    """Places the middle of a picture that was resized first."""
    left, top = round((resized[1] - size[1]) / 2.0), round((resized[0] - size[0]) / 2.0)
    return Placing(picture, size, resized, -left, -top)
