"""Deviations of outputs from their reference: cosine, signal to noise, positions of the largest.
An output with values of different ranges (boxes and scores) is also measured by groups of channels
with similar ranges.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from edgekit_device.arrays.classes import class_axis
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    document,
    flag,
    member,
    nullable,
    record,
)

if TYPE_CHECKING:
    import numpy as np


#: Cosine below which a tensor, or a group of channels, counts as destroyed.
COLLAPSED_COSINE = 0.9

#: The score above which an object counts as detected.
SCORE = 0.25

#: A tensor that varies less than this share of its root mean square counts as constant, as in dead
#: layers and untrained networks: any build is close to it, and its signal to noise is meaningless.
HARDLY = 0.02

# channels are in the same group if their sorted ranges rise by less than this: two bits of eight
_RANGE_STEP = 4.0

# an output with fewer places or fewer scores is not a detector's, or too small for shares
_PLACES = 64
_FEW = 20

# largest share of the places that may have an object
_RARE = 0.25

# a tensor that varies less than this share of its mean square is a constant with rounding: no SNR
_CONSTANT = 1e-9

# the SNR of results that are not finite, and of bit-equal results in rankings
_NOT_FINITE, _EXACT = -999.0, 999.0


@document(frozen=True)
class Measures:
    """Deviations of outputs from FP32's outputs: the worst output's figures.

    Attributes:
        cosine: Cosine similarity, the mean over the inputs.
        cosine_min: The worst input's cosine similarity.
        snr_db: Variance of the reference over mean squared error, in dB; None with ``exact`` true
            if every bit is equal, and with ``exact`` false if all differing outputs are constant.
        exact: True if every bit is equal.
        max_abs: Largest absolute difference, in the output's unit.
    """

    cosine: float = member(fields.cosine)
    cosine_min: float = member(fields.cosine)
    snr_db: Optional[float] = member(nullable(fields.difference))
    exact: bool = member(flag)
    max_abs: float = member(fields.figure)


@document(frozen=True)
class WorstChannel:
    """The channel of a group with the largest deviation; ``snr_db`` and ``exact`` as in
    ``Measures``.

    ``exact`` is None in a report without it.

    Attributes:
        channel: Its number.
        snr_db: Signal to noise in dB.
    """

    channel: int = member(fields.count)
    snr_db: Optional[float] = member(nullable(fields.difference))
    exact: Optional[bool] = member(flag, absent=None)


@document(frozen=True)
class SimilarChannels:
    """Channels of an output with similar ranges, which differ from the other channels' ranges.

    Attributes:
        channels: Pairs of first and last channel.
        range: Largest magnitude.
        snr_db: As in ``Measures``.
        exact: As in ``Measures``.
        cosine: Cosine similarity of the group.
        worst: Its worst channel.
        collapsed: True if a constant would be as close as the result, or the cosine is below 0.9.
    """

    channels: Tuple[Tuple[int, int], ...] = member(array(array(fields.count, 2, 2)))
    range: float = member(fields.figure)
    snr_db: Optional[float] = member(nullable(fields.difference))
    exact: Optional[bool] = member(flag, absent=None)
    cosine: float = member(fields.cosine)
    worst: WorstChannel = member(record(WorstChannel))
    collapsed: bool = member(flag)


class Deviation:
    """The deviation of a tensor from its reference: sums over the inputs, in double precision.

    Args:
        by_channel: Also sum by channel, for :meth:`groups` and :meth:`scores`.
    """

    def __init__(self, by_channel: bool = False) -> None:
        self._channels: Optional[_Channels] = _Channels() if by_channel else None
        self.cosines: List[float] = []
        self.squares = 0.0
        self.total = 0.0
        self.total_squares = 0.0
        self.elements = 0
        self.max_abs = 0.0
        self.agree = 0
        self.rows = 0

    def add(self, reference: np.ndarray, found: np.ndarray) -> None:
        """Adds an inference."""
        import numpy as np

        # infinities and NaN are results, too: no warnings
        with np.errstate(invalid="ignore", over="ignore"):
            # integer and boolean outputs (labels) are compared as numbers
            a = reference.reshape(-1).astype(np.float64)
            b = found.reshape(-1).astype(np.float64)
            difference = b - a
            self.squares += float(difference @ difference)
            self.total += float(a.sum())
            self.total_squares += float(a @ a)
            self.elements += a.size
            # max() could ignore a NaN
            largest = float(np.abs(difference).max(initial=0.0))
            self.max_abs = max(self.max_abs, largest if math.isfinite(largest) else math.inf)
            norms = math.sqrt(float(a @ a) * float(b @ b))
            same = not difference.any()
            # two zero vectors agree, a zero vector and another do not
            self.cosines.append(1.0 if same else float(a @ b) / norms if norms else 0.0)
            axis = class_axis(reference.shape)
            matches = reference.argmax(axis=axis) == found.argmax(axis=axis)
            # the arg max of NaN is meaningless
            self.agree += int(np.count_nonzero(matches)) if np.isfinite(b).all() else 0
            self.rows += int(np.size(matches))
            if self._channels is not None and reference.dtype.kind == "f" and reference.ndim > 2:
                self._channels.add(reference, found)

    @staticmethod
    def join_all(parts: Sequence["Deviation"]) -> "Deviation":
        """Returns the deviation over the inputs of several deviations."""
        joined = Deviation()
        for part in parts:
            # the cosine is a mean over inputs, so single values are kept; all others are sums
            joined.cosines += part.cosines
            for name in ("squares", "total", "total_squares", "elements", "agree", "rows"):
                setattr(joined, name, getattr(joined, name) + getattr(part, name))
            joined.max_abs = max(joined.max_abs, part.max_abs)
            if part._channels is not None:
                joined._channels = joined._channels or _Channels()
                joined._channels.join(part._channels)
        return joined

    def error(self, channels: Optional[Sequence[int]] = None) -> float:
        """Returns the mean squared error, of the given channels or of all."""
        if channels is None:
            return self.squares / self.elements if self.elements else 0.0
        assert self._channels is not None
        return self._channels.error(channels)

    def variance(self, channels: Optional[Sequence[int]] = None) -> float:
        """Returns the variance of the reference; its mean square if it is constant."""
        if channels is None:
            found = _variance(self.total, self.total_squares, self.elements)
            square = self.total_squares / self.elements if self.elements else 0.0
        else:
            assert self._channels is not None
            found, square = self._channels.variance(channels)
        return found if found > _CONSTANT * square else square

    def parts(self) -> List[Optional[List[int]]]:
        """Returns the parts to measure separately: each group's channels, or None for all."""
        groups = self.groups()
        if not groups:
            return [None]
        return [[i for a, b in group.channels for i in range(a, b + 1)] for group in groups]

    def groups(self) -> List[SimilarChannels]:
        """Returns groups of channels with different ranges, widest first; empty if all alike."""
        found = [] if self._channels is None else self._channels.groups()
        return found if len(found) > 1 else []

    def scores(self) -> Optional[Tuple[int, int]]:
        """Returns the number of a detector's reference scores above 0.25, and how many still are.

        None for other outputs: not anchors by channels, no channels within [0, 1], or few scores
        above 0.25.
        """
        return None if self._channels is None else self._channels.scores()

    def top1_agreement(self) -> float:
        """Returns the share of rows whose largest value is at the same place, 0 to 1."""
        return self.agree / self.rows if self.rows else 1.0

    def snr_db(self) -> Optional[float]:
        """Returns the variance of the reference over mean squared error, in dB.

        None if there is no error or the reference is constant; -999 for values that are not finite.
        """
        variance = _variance(self.total, self.total_squares, self.elements)
        square = self.total_squares / self.elements if self.elements else 0.0
        return _ratio_db(variance, square, self.error())


class _Channels:
    """The sums by channel."""

    def __init__(self) -> None:
        self.shape: Tuple[int, ...] = ()
        self.sums: Dict[str, np.ndarray] = {}

    def add(self, reference: np.ndarray, found: np.ndarray) -> None:
        import numpy as np

        self.shape = reference.shape
        axis = _channel_axis(reference.shape)
        a, b = (
            np.moveaxis(x, axis, 0).reshape(reference.shape[axis], -1).astype(np.float64)
            for x in (reference, found)
        )
        above = a > SCORE
        new = {
            "squares": ((b - a) ** 2).sum(1),
            "total": a.sum(1),
            "total_squares": (a * a).sum(1),
            "found_squares": (b * b).sum(1),
            "products": (a * b).sum(1),
            "elements": np.full(len(a), a.shape[1]),
            "above": above.sum(1),
            "kept": (above & (b > SCORE)).sum(1),
        }
        low, high = a.min(1, initial=math.inf), a.max(1, initial=-math.inf)
        self._add(dict(new, low=low, high=high))

    def join(self, other: "_Channels") -> None:
        self.shape = other.shape
        self._add(other.sums)

    def _add(self, new: Dict[str, np.ndarray]) -> None:
        import numpy as np

        combine = {"low": np.minimum, "high": np.maximum}
        mine = self.sums
        self.sums = {k: combine.get(k, np.add)(mine[k], v) if mine else v for k, v in new.items()}

    def error(self, channels: Sequence[int]) -> float:
        part = list(channels)
        return float(self.sums["squares"][part].sum() / self.sums["elements"][part].sum())

    def variance(self, channels: Sequence[int]) -> Tuple[float, float]:
        """Returns variance and mean square of the reference."""
        part = list(channels)
        total, squares, elements = (
            float(self.sums[key][part].sum()) for key in ("total", "total_squares", "elements")
        )
        return _variance(total, squares, elements), squares / elements

    def groups(self) -> List[SimilarChannels]:
        import numpy as np

        if not self.sums:
            return []
        ranges = np.maximum(np.abs(self.sums["low"]), np.abs(self.sums["high"]))
        # channels without any value have no range to compare
        order = [int(at) for at in np.argsort(-ranges, kind="stable") if ranges[at] > 0]
        parts: List[List[int]] = []
        for at in order:
            if parts and ranges[parts[-1][-1]] <= _RANGE_STEP * ranges[at]:
                parts[-1].append(at)
            else:
                parts.append([at])
        return [self._group(sorted(part), float(ranges[part].max())) for part in parts]

    def _group(self, part: List[int], largest: float) -> SimilarChannels:
        sums = {key: value[part] for key, value in self.sums.items()}
        noise = sums["squares"] / sums["elements"]
        mean = sums["total"] / sums["elements"]
        signal = sums["total_squares"] / sums["elements"] - mean * mean
        power = sums["total_squares"] / sums["elements"]
        each = [_ratio_db(*map(float, channel)) for channel in zip(signal, power, noise)]  # noqa: B905 (3.8)
        ranks = [math.inf if ratio is None else ratio for ratio in each]
        worst = ranks.index(min(ranks))
        variance, square = self.variance(part)
        snr = _ratio_db(variance, square, self.error(part))
        varies = variance > HARDLY * HARDLY * square
        norms = math.sqrt(float(sums["total_squares"].sum()) * float(sums["found_squares"].sum()))
        exact = not sums["squares"].any()
        cosine = 1.0 if exact else float(sums["products"].sum()) / norms if norms else 0.0
        cosine = _finite(cosine, 0.0)
        return SimilarChannels(
            channels=_spans(part),
            range=largest,
            snr_db=snr,
            exact=exact,
            cosine=cosine,
            worst=WorstChannel(part[worst], each[worst], bool(noise[worst] == 0.0)),
            # if it varies, a negative SNR means that a constant would be as close
            collapsed=cosine < COLLAPSED_COSINE or (varies and snr is not None and snr < 0.0),
        )

    def scores(self) -> Optional[Tuple[int, int]]:
        if len(self.shape) != 3 or not self.sums:
            return None
        places = self.shape[1] * self.shape[2] // self.shape[_channel_axis(self.shape)]
        mine = (self.sums["low"] >= 0) & (self.sums["high"] <= 1)
        # most scores above it: a background, or classes of places without an object
        mine &= self.sums["above"] <= _RARE * self.sums["elements"]
        above, left = (int(self.sums[key][mine].sum()) for key in ("above", "kept"))
        return (above, left) if places >= _PLACES and above >= _FEW else None


def _variance(total: float, squares: float, elements: float) -> float:
    mean = total / elements if elements else 0.0
    return squares / elements - mean * mean if elements else 0.0


def _ratio_db(signal: float, square: float, noise: float) -> Optional[float]:
    """Returns a variance over an error in dB; None if the error is 0 or the signal constant."""
    if not math.isfinite(noise):
        return _NOT_FINITE
    if noise == 0.0 or signal <= _CONSTANT * square:
        return None
    # a reference with NaN has no variance
    return _finite(10.0 * math.log10(signal / noise), _NOT_FINITE)


def decibels(value: Optional[float], exact: bool, form: str = "{:.1f} dB") -> str:
    """Returns an SNR for people: "30.1 dB", "exact" without any error, "unknown" without an SNR.

    Args:
        value: SNR in dB; None or the placeholder of ``Deviation.snr_db``.
        exact: True if there is no error at all.
        form: Format of the figure.
    """
    if exact or (value is not None and value >= _EXACT):
        return "exact"
    return "unknown" if value is None or value <= _NOT_FINITE else form.format(value)


def _spans(places: Sequence[int]) -> Tuple[Tuple[int, int], ...]:
    """Returns pairs of first and last of consecutive numbers in a sorted sequence."""
    found: List[Tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return tuple(found)


def _channel_axis(shape: Sequence[int]) -> int:
    """Returns the axis of an output's channels: the last, the second, or the shorter axis."""
    if len(shape) == 3:
        return 1 if 1 < shape[1] <= shape[2] else 2
    return 1 if len(shape) == 4 else len(shape) - 1


def count_correct(found: np.ndarray, labels: Sequence[int]) -> int:
    """Returns the number of rows whose largest value is at their label; 0 if there are NaNs."""
    import numpy as np

    if not np.isfinite(found.astype(np.float64)).all():
        return 0
    largest = found.argmax(axis=class_axis(found.shape)).reshape(-1)
    return int(np.count_nonzero(largest == np.asarray(labels)))


def worst_measures(errors: Sequence[Deviation]) -> Measures:
    """Returns the worst value of each figure over the tensors."""
    ratios = [error.snr_db() for error in errors]
    known = [ratio for ratio in ratios if ratio is not None]
    return Measures(
        cosine=min((_finite(sum(e.cosines) / len(e.cosines), 0.0) for e in errors), default=1.0),
        cosine_min=min((_finite(c, 0.0) for e in errors for c in e.cosines), default=1.0),
        snr_db=min(known) if known else None,
        exact=not any(error.squares for error in errors),
        # JSON has no infinity: the largest float32
        max_abs=_finite(max((e.max_abs for e in errors), default=0.0), 3.4e38),
    )


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise
