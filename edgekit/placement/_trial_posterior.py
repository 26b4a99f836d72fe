"""A posterior over sums of exponentials of normal unknowns, linearised where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = ["covariance", "posterior"]

STEPS = 25


def posterior(
    prior: np.ndarray, groups: Mapping[str, np.ndarray], sd: Mapping[str, Any],
    rows: np.ndarray, measured: np.ndarray, noise: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    import numpy as np

    mean = prior.copy()
    slopes, gain = np.zeros((0, len(prior))), np.zeros((0, 0))
    if not len(rows):
        return mean, slopes, gain
    for _ in range(STEPS):
        slopes = rows * np.exp(mean)
        spread = covariance(groups, sd, slopes.T)
        gain = np.linalg.inv(slopes @ spread + np.diag(noise))
        error = measured - slopes.sum(axis=1) + slopes @ (mean - prior)
        step = prior + spread @ (gain @ error) - mean
        largest = float(np.abs(step).max())
        mean = mean + step * min(1.0, 1.0 / largest if largest else 1.0)
        if largest < 1e-6:
            break
    slopes = rows * np.exp(mean)
    gain = np.linalg.inv(slopes @ covariance(groups, sd, slopes.T) + np.diag(noise))
    return mean, slopes, gain


def covariance(
    groups: Mapping[str, np.ndarray], sd: Mapping[str, Any], matrix: np.ndarray
) -> np.ndarray:
    """Multiplies the prior covariance, which is never written down, with columns."""
    import numpy as np

    found: np.ndarray = sd["own"] ** 2 * matrix
    for name in ("device", "kind"):
        group = groups[name]
        sums = np.zeros((int(group.max()) + 1, matrix.shape[1]))
        np.add.at(sums, group, matrix)
        weight = sd["kind"] ** 2 if name == "kind" else np.square(sd["devices"])[group][:, None]
        found = found + weight * sums[group]
    return found
