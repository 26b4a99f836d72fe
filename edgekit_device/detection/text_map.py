"""Quadrilaterals of text from a map of probabilities, the output of PaddleOCR's DB detector.

Connected pixels above the threshold are a region, and the smallest rectangle around a region is a
text. It grows by area * ratio / perimeter, because DB learns texts shrunk by that ("Real-time Scene
Text Detection with Differentiable Binarization", 2019). As in PaddleOCR a pixel is a point.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

import numpy as np

from edgekit_device.detection.arrays import on_host, sigmoid
from edgekit_device.detection.head import TextMapHead
from edgekit_device.detection.results import Array, Candidates

PROBABILITY = "probability"
"""The tensor that ``decode`` returns: [batch, 1, height, width]."""

# PaddleOCR's limits: a region's shorter side in pixels, and the number of regions
_LEAST_SIDE = 3.0
_MOST = 1000


def decode(part: TextMapHead, maps: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns the probability of text for each pixel."""
    value = maps[part.map]
    return {PROBABILITY: sigmoid(value) if part.sigmoid else value}


def candidates(part: TextMapHead, tensors: Mapping[str, Array]) -> List[Candidates]:
    """Returns texts with their corners; the score is the mean probability of a region's pixels.

    Corners are clockwise, beginning with the corner nearest to the picture's top left.
    """
    return [_texts(part, frame[0]) for frame in on_host(tensors[PROBABILITY])]


def regions(mask: Array) -> Tuple[Array, Array, Array, Array]:
    """Returns the runs of a mask and the region of each; pixels touch at sides and corners.

    Args:
        mask: [height, width] of bool.

    Returns:
        Row, first column, last column and region of each run, in the order of rows. Regions are
        numbered from 0.
    """
    height, width = mask.shape
    padded = np.zeros((height, width + 2), np.int8)
    padded[:, 1:-1] = mask
    # columns of zeros on both sides: a run begins at +1 and ends at -1, at the border too
    steps = np.diff(padded, axis=1)
    rows, first = np.nonzero(steps > 0)
    end = np.nonzero(steps < 0)[1]
    # runs of the next row that touch a run are adjacent; a place's key has the row first
    key = width + 2
    # ``end`` is one after the last column, so runs that touch only at a corner are included
    low = np.searchsorted(rows * key + end, (rows + 1) * key + first)
    high = np.searchsorted(rows * key + first, (rows + 1) * key + end, side="right")
    count = np.maximum(high - low, 0)
    above = np.repeat(np.arange(len(rows)), count)
    # the numbers low to high - 1 of each run, joined
    below = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - low, count)
    return rows, first, end - 1, _union_sets(len(rows), above, below)


def _union_sets(count: int, first: Array, second: Array) -> Array:
    """Returns each item's set: union-find of all pairs at once, with the smallest root of each."""
    root = np.arange(count)
    while True:
        a, b = root[first], root[second]
        apart = a != b
        if not apart.any():
            return np.unique(root, return_inverse=True)[1]
        least = np.minimum(a, b)[apart]
        # .at: an index may occur several times, and an assignment would keep only the last value
        np.minimum.at(root, a[apart], least)
        np.minimum.at(root, b[apart], least)
        # shortens the paths, so that each item names its root for the next comparison
        while (root[root] != root).any():
            root = root[root]


def _texts(part: TextMapHead, probability: Array) -> Candidates:
    height, width = probability.shape
    rows, first, last, region = regions(probability > part.threshold)
    # a prefix sum over all pixels: the sum of any run is one subtraction
    sums = np.concatenate([[0.0], np.cumsum(probability, dtype=np.float64)])
    inside = sums[rows * width + last + 1] - sums[rows * width + first]
    pixels = np.bincount(region, last - first + 1)
    scores = np.bincount(region, inside) / pixels
    order = np.argsort(region, kind="stable")
    ends = np.cumsum(np.bincount(region))
    found, kept = [], []
    for number in np.argsort(-pixels, kind="stable")[:_MOST]:
        runs = order[ends[number - 1] if number else 0 : ends[number]]
        corners = _grow_box(_outline(rows[runs], first[runs], last[runs]), part.grow)
        if corners is not None:
            found.append(np.clip(corners, 0, (width, height)))
            kept.append(number)
    quads = np.array(found, np.float32).reshape(-1, 4, 2)
    return Candidates(
        np.concatenate([quads.min(axis=1), quads.max(axis=1)], axis=1),
        scores[np.array(kept, np.int64)].astype(np.float32)[:, None],
        extra=quads,
        suppress=False,
    )


def _outline(rows: Array, first: Array, last: Array) -> Array:
    """Returns the convex hull [n, 2] of runs as x, y: Andrew's chain, once down and once up."""
    # only a row's first and last pixel can be a corner of the hull; runs are sorted by row
    at = np.nonzero(np.diff(rows, prepend=-1))[0]
    rows, left = rows[at].tolist(), np.minimum.reduceat(first, at).tolist()
    right = np.maximum.reduceat(last, at).tolist()
    chains = []
    for points in (list(zip(left, rows)), list(zip(right, rows))[::-1]):  # noqa: B905 (Python 3.8)
        chain: List[Tuple[int, int]] = []
        for x, y in points:
            while len(chain) > 1:
                (x0, y0), (x1, y1) = chain[-2:]
                # the cross product: points on a straight line are dropped, too
                if (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) < 0:
                    break
                chain.pop()
            chain.append((x, y))
        chains += chain
    return np.array(chains, np.float64)


def _grow_box(hull: Array, ratio: float) -> Array:
    """Returns the corners [4, 2] of the smallest rectangle around a hull, grown; None if it is
    too thin. A side of the smallest rectangle is on a side of the hull.
    """
    sides = np.roll(hull, -1, axis=0) - hull
    length = np.hypot(sides[:, 0], sides[:, 1])
    if not length.any():
        return None
    along = sides[length > 0] / length[length > 0, None]
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    axes = np.stack([along, across])
    places = axes @ hull.T
    # the extent of the hull along and across each of its sides
    low, high = places.min(axis=2), places.max(axis=2)
    best = int(np.prod(high - low, axis=0).argmin())
    low, high, axes = low[:, best], high[:, best], axes[:, best]
    size = high - low
    if size.min() < _LEAST_SIDE:
        return None
    by = size.prod() * ratio / (2 * size.sum())
    low, high = low - by, high + by
    corners = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    corners = corners @ axes
    # the smallest x + y is nearest to the top left
    return np.roll(corners, -int(corners.sum(axis=1).argmin()), axis=0)
