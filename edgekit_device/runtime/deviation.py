"""How far outputs are from their reference: cosine, signal to noise, positions of the largest.
An output that joins values of different ranges (boxes and scores) is also measured by groups
of channels of a similar range.
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


#: Below it a tensor, or a group of channels, is no longer what it was.
COLLAPSED_COSINE = 0.9

#: A detection is what a detector scores above it.
SCORE = 0.25

#: What varies less than this share of its root mean square is constant, as in dead layers and
#: untrained networks: any build of it is near, and its signal to noise says nothing.
HARDLY = 0.02

# channels are of one group where their ranges, sorted, rise by less than this: two bits of eight
_APART = 4.0

# what has fewer places or fewer scores is no detector's output, or says nothing about shares
_PLACES = 64
_FEW = 20

# share of the places that may have an object
_RARE = 0.25

# what varies less than this share of its mean square is a constant, and rounding: it has no SNR
_CONSTANT = 1e-9

# the SNR of what is not finite, and of bit-equal results where numbers are ranked
_NOT_FINITE, _EXACT = -999.0, 999.0


@document(frozen=True)
class Measures:
    """How far outputs are from FP32's, the worst output's figures.

    Attributes:
        cosine: Cosine similarity, the mean over the inputs.
        cosine_min: The worst input's.
        snr_db: Variance of the reference over mean squared error, in dB; None with ``exact`` true
            where every bit is equal, and with ``exact`` false where no output that differs varies.
        exact: Whether every bit is equal.
        max_abs: Largest absolute difference, in the output's unit.
    """

    cosine: float = member(fields.cosine)
    cosine_min: float = member(fields.cosine)
    snr_db: Optional[float] = member(nullable(fields.difference))
    exact: bool = member(flag)
    max_abs: float = member(fields.figure)


@document(frozen=True)
class WorstChannel:
    """The channel of a group that is furthest from FP32; ``snr_db`` and ``exact`` as above.

    ``exact`` is None in a report that did not keep it.

    Attributes:
        channel: Its number.
        snr_db: Decibels.
    """

    channel: int = member(fields.count)
    snr_db: Optional[float] = member(nullable(fields.difference))
    exact: Optional[bool] = member(flag, absent=None)


@document(frozen=True)
class SimilarChannels:
    """Channels of an output whose ranges are alike, and different from the other channels'.

    Attributes:
        channels: Pairs of first and last.
        range: Largest magnitude.
        snr_db: As of ``Measures``.
        exact: As of ``Measures``.
        cosine: Cosine similarity of the group.
        worst: Its worst channel.
        collapsed: A constant would be as near as the result, or the cosine is below 0.9.
    """

    channels: Tuple[Tuple[int, int], ...] = member(array(array(fields.count, 2, 2)))
    range: float = member(fields.figure)
    snr_db: Optional[float] = member(nullable(fields.difference))
    exact: Optional[bool] = member(flag, absent=None)
    cosine: float = member(fields.cosine)
    worst: WorstChannel = member(record(WorstChannel))
    collapsed: bool = member(flag)


class Deviation:
    """How far a tensor is from its reference: running sums over the inputs, in double precision.

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
        """Takes in one inference."""
        import numpy as np

        # infinities and NaN are results, too, and no reason to warn
        with np.errstate(invalid="ignore", over="ignore"):
            # integer and boolean outputs (labels) are compared as numbers
            a = reference.reshape(-1).astype(np.float64)
            b = found.reshape(-1).astype(np.float64)
            difference = b - a
            self.squares += float(difference @ difference)
            self.total += float(a.sum())
            self.total_squares += float(a @ a)
            self.elements += a.size
            # max() would let a NaN pass unseen
            largest = float(np.abs(difference).max(initial=0.0))
            self.max_abs = max(self.max_abs, largest if math.isfinite(largest) else math.inf)
            norms = math.sqrt(float(a @ a) * float(b @ b))
            same = not difference.any()
            # two zero vectors agree, a zero and another do not
            self.cosines.append(1.0 if same else float(a @ b) / norms if norms else 0.0)
            axis = class_axis(reference.shape)
            matches = reference.argmax(axis=axis) == found.argmax(axis=axis)
            # the arg max of NaN means nothing
            self.agree += int(np.count_nonzero(matches)) if np.isfinite(b).all() else 0
            self.rows += int(np.size(matches))
            if self._channels is not None and reference.dtype.kind == "f" and reference.ndim > 2:
                self._channels.add(reference, found)

    @staticmethod
    def joined(parts: Sequence["Deviation"]) -> "Deviation":
        """Returns the deviation over the inputs of several."""
        whole = Deviation()
        for part in parts:
            whole.cosines += part.cosines
            for name in ("squares", "total", "total_squares", "elements", "agree", "rows"):
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
            whole.max_abs = max(whole.max_abs, part.max_abs)
            if part._channels is not None:
                whole._channels = whole._channels or _Channels()
                whole._channels.join(part._channels)
        return whole

    def error(self, channels: Optional[Sequence[int]] = None) -> float:
        """The mean squared error, of some channels alone if given."""
        if channels is None:
            return self.squares / self.elements if self.elements else 0.0
        assert self._channels is not None
        return self._channels.error(channels)

    def variance(self, channels: Optional[Sequence[int]] = None) -> float:
        """The variance of the reference; where it is constant, its mean square."""
        if channels is None:
            found = _variance(self.total, self.total_squares, self.elements)
            square = self.total_squares / self.elements if self.elements else 0.0
        else:
            assert self._channels is not None
            found, square = self._channels.variance(channels)
        return found if found > _CONSTANT * square else square

    def parts(self) -> List[Optional[List[int]]]:
        """What is measured by itself: the channels of each group, or None for the whole."""
        groups = self.groups()
        if not groups:
            return [None]
        return [[i for a, b in group.channels for i in range(a, b + 1)] for group in groups]

    def groups(self) -> List[SimilarChannels]:
        """The groups of channels whose ranges differ, widest first; none where they are alike."""
        found = [] if self._channels is None else self._channels.groups()
        return found if len(found) > 1 else []

    def scores(self) -> Optional[Tuple[int, int]]:
        """How many scores of a detector are above 0.25, and how many of them still are.

        None for an output that is no detector's: not anchors by channels, no channels within
        [0, 1], or few scores above 0.25.
        """
        return None if self._channels is None else self._channels.scores()

    def top1_agreement(self) -> float:
        """The share of rows whose largest value is at the same place, 0 to 1."""
        return self.agree / self.rows if self.rows else 1.0

    def snr_db(self) -> Optional[float]:
        """Variance of the reference over mean squared error.

        None where there is no error, or where the reference is constant; -999 of what is not
        finite.
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

        how = {"low": np.minimum, "high": np.maximum}
        mine = self.sums
        self.sums = {k: how.get(k, np.add)(mine[k], v) if mine else v for k, v in new.items()}

    def error(self, channels: Sequence[int]) -> float:
        part = list(channels)
        return float(self.sums["squares"][part].sum() / self.sums["elements"][part].sum())

    def variance(self, channels: Sequence[int]) -> Tuple[float, float]:
        """Variance and mean square of the reference."""
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
        order = [int(at) for at in np.argsort(-ranges, kind="stable") if ranges[at] > 0]
        parts: List[List[int]] = []
        for at in order:
            if parts and ranges[parts[-1][-1]] <= _APART * ranges[at]:
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
        each = [_ratio_db(*map(float, one)) for one in zip(signal, power, noise)]  # noqa: B905 (3.8)
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
            # where it varies a negative SNR says that a constant would be as near
            collapsed=cosine < COLLAPSED_COSINE or (varies and snr is not None and snr < 0.0),
        )

    def scores(self) -> Optional[Tuple[int, int]]:
        if len(self.shape) != 3 or not self.sums:
            return None
        places = self.shape[1] * self.shape[2] // self.shape[_channel_axis(self.shape)]
        mine = (self.sums["low"] >= 0) & (self.sums["high"] <= 1)
        # most of them above it: a background, or classes of what is no object
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
    return _finite(10.0 * math.log10(signal / noise), _NOT_FINITE)


def decibels(value: Optional[float], exact: bool, form: str = "{:.1f} dB") -> str:
    """An SNR for people: "30.1 dB", "exact" without any error, "not known" where there is none.

    Args:
        value: In dB; None as ``Deviation.snr_db`` gives it, and what stands for no number.
        exact: Whether there is no error at all.
        form: Of the figure.
    """
    if exact or (value is not None and value >= _EXACT):
        return "exact"
    return "unknown" if value is None or value <= _NOT_FINITE else form.format(value)


def _spans(places: Sequence[int]) -> Tuple[Tuple[int, int], ...]:
    """Pairs of first and last of sorted numbers that follow each other."""
    found: List[Tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return tuple(found)


def _channel_axis(shape: Sequence[int]) -> int:
    """The axis of what each place of an output has: the last, the second, or the shorter one."""
    if len(shape) == 3:
        return 1 if 1 < shape[1] <= shape[2] else 2
    return 1 if len(shape) == 4 else len(shape) - 1


def right_of(found: np.ndarray, labels: Sequence[int]) -> int:
    """How many rows have their largest value at their label; none where there are NaNs."""
    import numpy as np

    if not np.isfinite(found.astype(np.float64)).all():
        return 0
    largest = found.argmax(axis=class_axis(found.shape)).reshape(-1)
    return int(np.count_nonzero(largest == np.asarray(labels)))


def worst_of(errors: Sequence[Deviation]) -> Measures:
    """Returns each figure of the tensor that is worst by it."""
    ratios = [error.snr_db() for error in errors]
    known = [ratio for ratio in ratios if ratio is not None]
    return Measures(
        cosine=min((_finite(sum(e.cosines) / len(e.cosines), 0.0) for e in errors), default=1.0),
        cosine_min=min((_finite(c, 0.0) for e in errors for c in e.cosines), default=1.0),
        snr_db=min(known) if known else None,
        exact=not any(error.squares for error in errors),
        max_abs=_finite(max((e.max_abs for e in errors), default=0.0), 3.4e38),
    )


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise
