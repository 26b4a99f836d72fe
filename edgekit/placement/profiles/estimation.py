"""The cost model of a profile. If a profile times every layer once, its times are used directly; a
table of ``edgekit tune`` has overlapping sums, from which each layer's time is estimated (a
Gaussian posterior over logarithms, linearised).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edgekit.errors import DataError
from edgekit.network.model import Layer, Network, Tensor
from edgekit.placement.costs.constants import layer_kinds
from edgekit.placement.costs.kernel_costs import Layout
from edgekit.placement.costs.model import CostModel
from edgekit.placement.kernels import LayerKernel, fuse
from edgekit.placement.profiles.measured import (
    Matched,
    MeasuredCosts,
    ProfileCosts,
    check_origin,
    divide_time,
    match_rows,
)
from edgekit.placement.profiles.profile import (
    FramePart,
    FrameRow,
    LayerRow,
    Profile,
    ProfileTable,
)

CLASSES = ("GPU", "DLA")
EXTRA = ("frame", "transition", "transfer", "launch")
"""Unknowns that belong to no layer: microseconds of each frame and of each device change, and
factors of predicted transfers and launches."""
DEVICE_ERROR, NEW_DEVICE_ERROR = 0.5, 1.2
"""Deviations of logarithms shared by a device's layers: with, and without measurements there."""
KIND_ERROR, LAYER_ERROR, EXTRA_ERROR = 0.7, 0.5, 1.5
SYSTEMATIC_ERROR = 0.01
"""Relative deviation of a sum, independent of its number of measurements: caches, fusions."""
LEAST = 1e-3
STEPS = 50
LEAST_PART = 1e-4
"""Minimum share of a step in the line search."""
PRECISE, ROUGH = 1e-9, 1e-2
"""Decreases of the misfit, in squared standard deviations, that end the search for the likeliest
times, and for a sample."""


@dataclass(frozen=True)
class FittedCosts(ProfileCosts):
    """Predicted times, corrected by factors that are fitted to all measured sums.

    Attributes:
        factors: By "GPU" or "DLA", the factor of each layer's predicted time.
        extra: The unknowns of :data:`EXTRA`.
        rows: Each measured sum's device and layers.
    """

    factors: Mapping[str, Sequence[float]] = field(compare=False, repr=False)
    extra: Mapping[str, float] = field(compare=False)
    rows: tuple[tuple[str, frozenset[str]], ...] = field(compare=False, repr=False)

    @classmethod
    def over(
        cls,
        model: CostModel,
        profile: Profile,
        network: Network,
        able: Mapping[str, bool] | None = None,
    ) -> FittedCosts:
        """Fits the factors to a profile of kind "table"; errors as in :func:`measured_model`."""
        check_origin(profile, model)
        # overlapping sums are what the estimate is made from
        matched = match_rows(profile, network, able, join=False)
        unknown = set(matched.unmatched)
        if not matched.groups or len(unknown) > len(profile.rows) / 2:
            missing = next((r.layers for r in profile.rows if r.name in unknown), ())
            raise DataError(
                f"{len(profile.rows) - len(unknown)} of the profile's {len(profile.rows)} rows are "
                "layers of this model",
                code="profile.model",
                where=profile.path,
                hint=f"the first unknown ones are {list(missing[:2])}; use the profile of a tuning "
                "of this model",
            )
        able = able or {}
        prior = _predict_times(model, network, able)
        known = {layer.name: i for i, layer in enumerate(network.layers)}
        evidence = table_evidence(profile.table, known, model.launch_us())
        times = estimate(network, prior, evidence).times()
        factors = {name: _factors(times[name], prior[name]) for name in CLASSES}
        extra = dict(zip(EXTRA, map(float, times["extra"]), strict=True))
        rows = tuple(
            (g.device, frozenset(network.layers[i].name for i in g.layers)) for g in matched.groups
        )
        matched = Matched(matched.groups, matched.unmatched, len(profile.rows))
        return cls(network, profile, matched, factors, extra, rows)

    def kernel_us(
        self,
        model: CostModel,
        network: Network,
        kernel: LayerKernel,
        device: str,
        format: str | None,
    ) -> float:
        """Returns a kernel's time, predicted and corrected."""
        us = model.predicted_us(network, kernel, device, format)
        own = self.factors["GPU" if device == "GPU" else "DLA"]
        part = divide_time(network, kernel.layers, 1.0)
        return us * sum(part[i] * own[i] for i in kernel.layers)

    def reformat_us(self, model: CostModel, tensor: Tensor, source: Layout, goal: Layout) -> float:
        """Returns a conversion's predicted time, corrected by the factor of measured plans."""
        return model.predicted_reformat_us(tensor, source, goal) * self.extra["transfer"]

    def dla_io_us(
        self, model: CostModel, tensor: Tensor, format: str, precision: str, direction: str
    ) -> float:
        """Returns the extra time of a format at a loadable's border, corrected likewise."""
        predicted = model.predicted_io_us(tensor, format, precision, direction)
        return predicted * self.extra["transfer"]

    def launch_us(self, predicted: float) -> float:
        """Returns the launch time of a loadable, including entry and exit."""
        return predicted * self.extra["launch"] + 2 * self.extra["transition"] if predicted else 0.0

    def has_kernel(self, kernel: LayerKernel, device: str) -> bool:
        """Returns True if a sum of exactly this kernel was measured."""
        names = frozenset(self.network.layers[i].name for i in kernel.layers)
        return ("GPU" if device == "GPU" else "DLA", names) in self.rows

    def layers_measured(self, device_of: Mapping[str, str]) -> set[str]:
        """Returns the layers of measured sums that the placement keeps whole."""
        found: set[str] = set()
        for name, layers in self.rows:
            places = {device_of.get(layer, "") for layer in layers}
            on_dla = name == "DLA" and len(places) == 1 and "GPU" not in places
            if (places == {"GPU"} and name == "GPU") or on_dla:
                found |= layers
        return found


def table_evidence(
    table: ProfileTable | None, index: Mapping[str, int], launch_us: float
) -> list[TimingEvidence]:
    """Returns a table's sums, without rows whose layers are not in the network.

    Args:
        table: An ``edgekit.profile/1``.
        index: Each layer's index in the network.
        launch_us: A loadable's predicted launch, which its time includes.
    """
    found = []
    for row in table.rows if table else ():
        extra = {"launch": launch_us} if row.device == "DLA" else {}
        part = FramePart(share=1.0, layers={row.device: row.layers}, extra=extra)
        found += _evidence([part], row, index)
    for frame in table.frames if table else ():
        found += _evidence(frame.parts, frame, index)
    return found


def _evidence(
    parts: Sequence[FramePart], row: LayerRow | FrameRow, index: Mapping[str, int]
) -> list[TimingEvidence]:
    layers: list[tuple[str, int, float]] = []
    extra = dict.fromkeys(EXTRA, 0.0)
    for part in parts:
        for name, some in part.layers.items():
            if any(layer not in index for layer in some):
                return []
            layers += [(name, index[layer], part.share) for layer in some]
        for key in EXTRA:
            extra[key] += part.share * part.extra.get(key, 0.0)
    return [TimingEvidence(tuple(layers), row.us, row.sd_us, extra)] if layers else []


def _factors(times: np.ndarray, prior: np.ndarray) -> list[float]:
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = times / prior
    return [float(r) for r in np.where(np.isfinite(ratio), ratio, 1.0)]


def _predict_times(
    model: CostModel, network: Network, able: Mapping[str, bool]
) -> dict[str, np.ndarray]:
    """Returns each layer's part of its kernel's predicted time, on each device."""
    rules = layer_kinds().fusion
    found = {}
    for name, device in zip(CLASSES, ("GPU", "DLA0"), strict=True):
        found[name] = np.full(len(network.layers), np.nan)
        if name == "DLA" and not model.target.dla.cores:
            continue

        def key(layer: Layer, dla: bool = name == "DLA") -> bool:
            return not dla or able.get(layer.name, True)

        for kernel in fuse(network, rules.heads, rules.tails, key):
            if all(key(network.layers[i]) for i in kernel.layers):
                us = model.kernel_us(network, kernel, device)
                for i, part in divide_time(network, kernel.layers, us).items():
                    found[name][i] = part
    return found


@dataclass(frozen=True)
class TimingEvidence:
    """A measured sum.

    Every layer has an unknown time on each device. Logarithms of these times are normal around the
    prediction. Their error has three parts: shared by all layers of a device, shared by all layers
    of a kind there, and each layer's own. So a few rows with many layers also correct other layers.
    A row is a sum of unknown times. The likeliest times are found by Gauss-Newton; a sample is the
    likeliest solution for a draw of the prior and of the measurements' errors, so that every sample
    keeps the measured sums (randomize-then-optimize: Bardsley et al., SIAM J. Sci. Comput. 36,
    2014).

    Attributes:
        layers: Unknown layers as (class, layer's index, multiplicity).
        extra: Its multiples of :data:`EXTRA`.
        us: Microseconds.
        sd_us: Its standard deviation.
    """

    layers: tuple[tuple[str, int, float], ...]
    us: float
    sd_us: float = 0.0
    extra: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Estimate:
    """The posterior.

    Attributes:
        prior_us: By class, predicted microseconds of each layer (NaN if it cannot run there).
        scale: By class, the common error factor of the device's predictions.
        mean: Likeliest logarithms of the unknowns: the classes in order, then :data:`EXTRA`.
    """

    network: Network
    prior_us: Mapping[str, np.ndarray]
    scale: Mapping[str, float]
    mean: np.ndarray
    _prior: np.ndarray
    _shared: np.ndarray
    _rows: np.ndarray
    _measured: np.ndarray
    _noise: np.ndarray

    def times(self, logs: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Returns microseconds by class and layer, and the extras; of a sample if ``logs``."""
        # no overflow for an extreme sample
        each = np.exp(np.minimum(self.mean if logs is None else logs, 40.0))
        count = len(self.network.layers)
        found = {name: each[i * count : (i + 1) * count] for i, name in enumerate(CLASSES)}
        return {**found, "extra": each[2 * count :]}

    def row(
        self, layers: Sequence[tuple[str, int]], extra: Mapping[str, float] | None = None
    ) -> np.ndarray:
        """Returns the multiples of the unknowns in a sum."""
        each = [(name, index, 1.0) for name, index in layers]
        return _row(len(self.network.layers), each, extra)

    def sample(self, random: np.random.Generator, doubt: float = 1.0) -> np.ndarray:
        """Returns a sample of the unknowns' logarithms that reproduces all measured sums.

        Args:
            random: The random generator.
            doubt: Factor of the prior's deviations.
        """
        noise = random.standard_normal
        drawn = LAYER_ERROR * noise(len(self._prior))
        drawn += self._shared @ noise(self._shared.shape[1])
        drawn = self._prior + doubt * drawn
        measured = self._measured + np.sqrt(self._noise) * noise(len(self._measured))
        return posterior(drawn, self._shared, self._rows, measured, self._noise, ROUGH)


def estimate(
    network: Network,
    prior_us: Mapping[str, np.ndarray],
    evidence: Sequence[TimingEvidence],
    *,
    absolute: bool = True,
    like: Mapping[str, float] | None = None,
) -> Estimate:
    """Returns the posterior for the evidence.

    Args:
        network: The network of the layers.
        prior_us: By class, each layer's predicted microseconds; NaN if it cannot run there.
        evidence: Measured sums.
        absolute: True if predictions and measurements are of the same device; otherwise (a CPU)
            only the proportions of predictions are used.
        like: By class, the error factor of another network's times on these devices, for classes
            without evidence.
    """
    count = len(network.layers)
    scale, known = _class_ratios(prior_us, evidence, like or {}, absolute=absolute)
    typical = float(np.mean([e.us for e in evidence])) if evidence else 1.0
    # a prediction of 0 has no logarithm
    minimum = {name: LEAST * _finite_mean(prior_us[name]) for name in CLASSES}
    logs = [
        np.log(np.maximum(np.nan_to_num(prior_us[name], nan=1.0), minimum[name]) * scale[name])
        for name in CLASSES
    ]
    # slower kernels than predicted are no evidence for slower hand-overs
    factor = 1.0 if absolute else scale["GPU"]
    # EXTRA in order: microseconds of a frame and of a device change (assumed), and two factors
    logs.append(np.log([0.003 * typical, 0.003 * typical, factor, factor]))
    prior = np.concatenate(logs)
    kinds: dict[tuple[str, str], int] = {}
    kind_of = [
        kinds.setdefault((name, layer.kind), len(kinds))
        for name in CLASSES
        for layer in network.layers
    ]
    # a column for each device, each kind on a device, and each of EXTRA, which are devices and
    # kinds of their own
    devices = [DEVICE_ERROR if name in known else NEW_DEVICE_ERROR for name in CLASSES]
    shared = np.concatenate(
        [
            _columns([0] * count + [1] * count, [*devices, *[EXTRA_ERROR] * len(EXTRA)]),
            _columns(kind_of, [KIND_ERROR] * (len(kinds) + len(EXTRA))),
        ],
        axis=1,
    )
    rows = np.array([_row(count, e.layers, e.extra) for e in evidence]).reshape(-1, len(prior))
    measured = np.array([e.us for e in evidence])
    noise = np.array([(SYSTEMATIC_ERROR * e.us) ** 2 + e.sd_us**2 for e in evidence])
    mean = posterior(prior, shared, rows, measured, noise)
    return Estimate(network, prior_us, scale, mean, prior, shared, rows, measured, noise)


def _columns(group_of: Sequence[int], errors: Sequence[float]) -> np.ndarray:
    """Returns the effect of one deviation of each group on the unknowns; EXTRA are last."""
    groups = [*group_of, *range(len(errors) - len(EXTRA), len(errors))]
    columns: np.ndarray = np.eye(len(errors))[groups] * np.array(errors)
    return columns


def _row(
    count: int, layers: Sequence[tuple[str, int, float]], extra: Mapping[str, float] | None
) -> np.ndarray:
    row = np.zeros(2 * count + len(EXTRA))
    for name, index, times in layers:
        row[CLASSES.index(name) * count + index] += times
    for key, many in (extra or {}).items():
        row[2 * count + EXTRA.index(key)] += many
    return row


def _finite_mean(values: np.ndarray) -> float:
    good = values[np.isfinite(values)]
    return float(good.mean()) if good.size and good.mean() > 0 else 1.0


def _class_ratios(
    prior_us: Mapping[str, np.ndarray],
    evidence: Sequence[TimingEvidence],
    like: Mapping[str, float],
    *,
    absolute: bool,
) -> tuple[dict[str, float], set[str]]:
    """Returns, by class, the ratio of measured to predicted in its rows, and classes with rows."""
    sums = {name: [0.0, 0.0] for name in CLASSES}
    for timing in evidence:
        names = {name for name, _, _ in timing.layers}
        # a sum over both devices leaves open which device is off
        if len(names) == 1 and timing.us > 0:
            name = names.pop()
            predicted = float(np.nansum([prior_us[name][i] * n for _, i, n in timing.layers]))
            if predicted > 0:
                sums[name][0] += timing.us
                sums[name][1] += predicted
    own = {**like, **{name: a / b for name, (a, b) in sums.items() if a and b}}
    every = float(np.exp(np.mean(np.log(list(own.values()))))) if own else 1.0
    # a board's devices are predicted separately; a CPU's speed is the same for both
    other = 1.0 if absolute else every
    return {name: own.get(name, other) for name in CLASSES}, set(own)


def posterior(
    prior: np.ndarray,
    shared: np.ndarray,
    rows: np.ndarray,
    measured: np.ndarray,
    noise: np.ndarray,
    precise: float = PRECISE,
) -> np.ndarray:
    """Returns the likeliest logarithms.

    Gauss-Newton with a line search: without it, exponentials make the iteration oscillate. The
    prior's covariance, ``LAYER_ERROR**2 * I + shared @ shared.T``, is never formed.
    """
    mean, weights = prior.copy(), np.zeros(len(prior))  # mean - prior is covariance times weights

    def misfit(mean: np.ndarray, weights: np.ndarray) -> float:
        missed = measured - rows @ np.exp(mean)
        return float(weights @ (mean - prior) + np.sum(missed**2 / noise))

    now = misfit(mean, weights)
    for _ in range(STEPS if len(rows) else 0):
        slopes = rows * np.exp(mean)
        # as large as the rows, which are few, and not as the layers squared
        spread = LAYER_ERROR**2 * slopes.T + shared @ (shared.T @ slopes.T)
        both = slopes @ spread
        # for extreme draws, sums exceed the noise so much that rounding would decide
        gain = np.linalg.inv(both + np.diag(noise + 1e-12 * both.diagonal().max()))
        error = measured - slopes.sum(axis=1) + slopes @ (mean - prior)
        goal = gain @ error
        step, turn = prior + spread @ goal - mean, slopes.T @ goal - weights
        # at most a factor of e in a step: the linearisation holds no further
        part = 1.0 / max(1.0, float(np.abs(step).max()))
        after = misfit(mean + part * step, weights + part * turn)
        while after > now and part > LEAST_PART:
            part /= 2
            after = misfit(mean + part * step, weights + part * turn)
        mean, weights = mean + part * step, weights + part * turn
        before, now = now, after
        if before - now < precise:
            break
    return mean


def measured_model(
    model: CostModel,
    profile: Profile | None,
    network: Network,
    able: Mapping[str, bool] | None = None,
) -> CostModel:
    """Returns the model with a profile's times; the model itself without a profile.

    Args:
        model: Predicts times that were not measured.
        profile: From ``read_profile``.
        network: The planned network.
        able: By layer, True if a DLA core can run it.

    Raises:
        DataError: The profile belongs to another board (``profile.board``), precision
            (``profile.precision``) or model (``profile.model``).
    """
    if profile is None:
        return model
    costs = FittedCosts if profile.kind == "table" else MeasuredCosts
    return replace(model, measured=costs.over(model, profile, network, able))
