"""The last layer: from features to 1000 classes, so that inputs of every kind are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["readout"]

Array = np.ndarray[Any, Any]

# variance, as a share of the images' mean, from which on directions are evened out
_RIDGE = 0.05
# where the logits pass a ReLU before they are averaged: their mean in standard deviations
_CLEAR = 1.5


def readout(
    start: Array, features: Sequence[Array], kinds: Sequence[str], *, spread: float, clipped: bool
) -> tuple[Array, Array]:
    """Shapes random class weights after the features that the batch shows.

    What only tells the kinds of input apart is taken out, and the few directions in which images
    vary most are damped until the others count as well: otherwise all inputs of a kind, and all
    images that share a colour, would get the same answer.

    Args:
        start: Random class weights [classes, features].
        features: What the layer reads, one array [1, features, ...] an input.
        kinds: The kind of each input; one is "image".
        spread: Standard deviation that an unseen image's logits shall have; two softmax vectors
            of independent normal logits with standard deviation s have a cosine of exp(-s^2).
        clipped: Whether a ReLU follows.

    Returns:
        Weights float32 [classes, features] and bias float32 [classes].
    """
    pooled = np.stack(
        [v[0].reshape(v.shape[1], -1).mean(axis=1, dtype=np.float64) for v in features]
    )
    label = np.array(kinds)
    means = {kind: pooled[label == kind].mean(axis=0) for kind in dict.fromkeys(kinds)}
    centre = np.mean(list(means.values()), axis=0)
    common = np.linalg.qr(np.stack([m - centre for m in means.values()])[:-1].T)[0]

    images = _scaled(pooled[label == "image"] - means["image"], common, 0.0)
    weights = _evened(_scaled(start, common, 0.0), images)
    weights *= spread / _unseen(images)
    bias = -(weights @ centre)
    if clipped:
        bias += _CLEAR * np.std([np.tensordot(weights, v[0], 1) for v in features])
    return weights.astype(np.float32), bias.astype(np.float32)


def _scaled(rows: Array, basis: Array, gains: Array | float) -> Array:
    """Multiplies the rows' parts along the basis (orthonormal columns) by ``gains``."""
    return np.asarray(rows + ((rows @ basis) * (gains - 1)) @ basis.T)


def _evened(rows: Array, images: Array) -> Array:
    """Damps the rows' parts in the directions in which the images vary most."""
    values, basis = np.linalg.svd(images, full_matrices=False)[1:]
    variance = values**2 / len(images)
    floor = _RIDGE * variance.mean()
    return _scaled(rows, basis.T, np.sqrt(floor / (variance + floor)))


def _unseen(images: Array) -> float:
    """Length that an image outside the batch has after evening: each is left out in turn."""
    total = 0.0
    for index in range(len(images)):
        others = np.delete(images, index, axis=0)
        mean = others.mean(axis=0)
        row = _evened((images[index] - mean)[None], others - mean)
        total += float((row**2).sum()) * len(others) / len(images)
    return float(np.sqrt(total / len(images)))
