"""What measurements teach about times that were not measured themselves.

Every layer has an unknown time on each device. Logarithms of these times are normal around the
prediction, with an error that all layers of a device share, one that all of a kind share there, and
one of each layer's own; so a few rows that hold many layers correct the others, too. A row is a sum
of unknown times. The sums are linearised where they are (Gauss-Newton); means, deviations of sums
and samples are those of the linearised posterior (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, 2.2; samples by Matheron's rule).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.placement._trial_posterior import covariance, posterior

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Network

__all__ = ["CLASSES", "EXTRA", "Evidence", "Learnt", "learn"]

CLASSES = ("GPU", "DLA")
EXTRA = ("frame", "transition", "transfer", "launch")
"""Unknowns that are no layer's: microseconds of each frame and of each change of devices, and
factors on predicted transfers and launches."""
DEVICE_ERROR, NEW_DEVICE_ERROR = 0.5, 1.2
"""Deviations of logarithms: what a device's layers share, measured there or not."""
KIND_ERROR, LAYER_ERROR, EXTRA_ERROR = 0.7, 0.5, 1.5
SURE = 0.01
"""Relative deviation of a sum that holds however often it was measured: caches, fusions."""
LEAST = 1e-3


@dataclass(frozen=True)
class Evidence:
    """A measured sum.

    Attributes:
        layers: Unknown layers as (class, layer's index, how many times).
        extra: Multiples of :data:`EXTRA` in it.
        us: Microseconds.
        sd_us: Its standard deviation.
    """

    layers: tuple[tuple[str, int, float], ...]
    us: float
    sd_us: float = 0.0
    extra: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Learnt:
    """The posterior.

    Attributes:
        prior_us: By class, predicted microseconds of each layer (NaN where it cannot run).
        scale: By class, what the device's predictions are wrong by together.
        mean: Logarithms of the unknowns, classes one after the other, then :data:`EXTRA`.
    """

    network: Network
    prior_us: Mapping[str, np.ndarray]
    scale: Mapping[str, float]
    mean: np.ndarray
    _prior: np.ndarray
    _groups: Mapping[str, np.ndarray]
    _sd: Mapping[str, Any]
    _rows: np.ndarray
    _gain: np.ndarray

    def times(self, logs: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Returns microseconds by class and layer, and the extras; of a sample where given."""
        import numpy as np

        each = np.exp(np.minimum(self.mean if logs is None else logs, 40.0))
        count = len(self.network.layers)
        found = {name: each[i * count : (i + 1) * count] for i, name in enumerate(CLASSES)}
        return {**found, "extra": each[2 * count :]}

    def row(
        self, layers: Sequence[tuple[str, int]], extra: Mapping[str, float] | None = None
    ) -> np.ndarray:
        """Returns a sum's multiples of the unknowns."""
        each = [(name, index, 1.0) for name, index in layers]
        return _row(len(self.network.layers), each, extra)

    def value(self, row: np.ndarray) -> tuple[float, float]:
        """Returns mean and standard deviation of a sum, microseconds."""
        import numpy as np

        slope = row * np.exp(self.mean)
        spread = self._cov(slope[:, None])[:, 0]
        var = float(slope @ spread)
        if len(self._rows):
            cross = self._rows @ spread
            var -= float(cross @ self._gain @ cross)
        return float(slope.sum()), max(var, 0.0) ** 0.5

    def sample(self, random: np.random.Generator) -> np.ndarray:
        """Returns a sample of the unknowns' logarithms."""
        noise = random.standard_normal
        deviation: np.ndarray = self._sd["own"] * noise(len(self.mean))
        for name in ("device", "kind"):
            group = self._groups[name]
            shared = noise(int(group.max()) + 1)
            deviation += (
                self._sd[name] * shared[group]
                if name == "kind" else self._device_sd() * shared[group]
            )  # fmt: skip
        if len(self._rows):
            back = self._gain @ (self._rows @ deviation)
            deviation = deviation - self._cov((self._rows.T @ back)[:, None])[:, 0]
        found: np.ndarray = self.mean + deviation
        return found

    def _device_sd(self) -> np.ndarray:
        import numpy as np

        found: np.ndarray = np.asarray(self._sd["devices"])[self._groups["device"]]
        return found

    def _cov(self, matrix: np.ndarray) -> np.ndarray:
        return covariance(self._groups, self._sd, matrix)


def learn(
    network: Network,
    prior_us: Mapping[str, np.ndarray],
    evidence: Sequence[Evidence],
    *,
    absolute: bool = True,
    like: Mapping[str, float] | None = None,
) -> Learnt:
    """Returns what the evidence says.

    Args:
        network: Whose layers they are.
        prior_us: By class, each layer's predicted microseconds; NaN where it cannot run.
        evidence: Measured sums.
        absolute: Whether predictions are of the clock that measured; otherwise (a CPU) only their
            proportions are taken.
        like: By class, what another network's times on these devices were off by; of classes that
            the evidence does not tell.
    """
    import numpy as np

    count = len(network.layers)
    scale, known = _scales(prior_us, evidence, like or {}, absolute=absolute)
    typical = float(np.mean([e.us for e in evidence])) if evidence else 1.0
    floor = {name: LEAST * _mean(prior_us[name]) for name in CLASSES}
    logs = [
        np.log(np.maximum(np.nan_to_num(prior_us[name], nan=1.0), floor[name]) * scale[name])
        for name in CLASSES
    ]
    factor = scale["GPU"]
    logs.append(np.log([0.003 * typical, 0.003 * typical, factor, factor]))
    prior = np.concatenate(logs)
    kinds: dict[tuple[str, str], int] = {}
    kind_of = [
        kinds.setdefault((name, layer.kind), len(kinds))
        for name in CLASSES
        for layer in network.layers
    ]
    extras = range(len(EXTRA))
    groups = {
        "device": np.array([*[0] * count, *[1] * count, *(2 + i for i in extras)]),
        "kind": np.array([*kind_of, *(len(kinds) + i for i in extras)]),
    }
    devices = [DEVICE_ERROR if name in known else NEW_DEVICE_ERROR for name in CLASSES]
    sd: dict[str, Any] = {
        "own": LAYER_ERROR, "kind": KIND_ERROR, "devices": [*devices, *[EXTRA_ERROR] * len(extras)],
    }  # fmt: skip
    rows = np.array([_row(count, e.layers, e.extra) for e in evidence]).reshape(-1, len(prior))
    measured = np.array([e.us for e in evidence])
    noise = np.array([(SURE * e.us) ** 2 + e.sd_us**2 for e in evidence])
    mean, slopes, gain = posterior(prior, groups, sd, rows, measured, noise)
    return Learnt(network, prior_us, scale, mean, prior, groups, sd, slopes, gain)


def _row(
    count: int, layers: Sequence[tuple[str, int, float]], extra: Mapping[str, float] | None
) -> np.ndarray:
    import numpy as np

    row = np.zeros(2 * count + len(EXTRA))
    for name, index, times in layers:
        row[CLASSES.index(name) * count + index] += times
    for key, many in (extra or {}).items():
        row[2 * count + EXTRA.index(key)] += many
    return row


def _mean(values: np.ndarray) -> float:
    import numpy as np

    good = values[np.isfinite(values)]
    return float(good.mean()) if good.size and good.mean() > 0 else 1.0


def _scales(
    prior_us: Mapping[str, np.ndarray], evidence: Sequence[Evidence], like: Mapping[str, float],
    *, absolute: bool,
) -> tuple[dict[str, float], set[str]]:  # fmt: skip
    """Returns by class measured over predicted of its own rows, and where there are any."""
    import numpy as np

    sums = {name: [0.0, 0.0] for name in CLASSES}
    for one in evidence:
        names = {name for name, _, _ in one.layers}
        if len(names) == 1 and one.us > 0:
            name = names.pop()
            predicted = float(np.nansum([prior_us[name][i] * n for _, i, n in one.layers]))
            if predicted > 0:
                sums[name][0] += one.us
                sums[name][1] += predicted
    own = {**like, **{name: a / b for name, (a, b) in sums.items() if a and b}}
    every = float(np.exp(np.mean(np.log(list(own.values()))))) if own else 1.0
    # a board's other device is predicted in its own right; a CPU's clock runs alike for both
    other = 1.0 if absolute else every
    return {name: own.get(name, other) for name in CLASSES}, set(own)
