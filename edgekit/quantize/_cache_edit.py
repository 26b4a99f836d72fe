"""Calibration caches compared, merged and edited."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from edgekit.dla import LEVELS
from edgekit.errors import DataError, UsageError
from edgekit.quantize._scales import float32, is_scale

if TYPE_CHECKING:
    from edgekit.quantize._cache import CalibrationCache

__all__ = ["POLICIES", "CacheDiff", "diff", "edit", "merge"]

#: What counts where several caches have a tensor.
POLICIES = ("last", "first", "max", "error")


@dataclass(frozen=True, slots=True)
class CacheDiff:
    """How one cache became another.

    Attributes:
        headers: Both first lines.
        added: Scales of tensors that only the second has, in its order.
        removed: Scales of tensors that only the first has, in its order.
        changed: (tensor, first scale, second scale), the largest ratio first.
        equal: Tensors with the same scale, or one within the tolerance.
    """

    headers: tuple[str, str]
    added: Mapping[str, float]
    removed: Mapping[str, float]
    changed: tuple[tuple[str, float, float], ...]
    equal: int

    @property
    def same_scales(self) -> bool:
        """Whether no scale differs; the headers may."""
        return not (self.added or self.removed or self.changed)


def diff(first: CalibrationCache, second: CalibrationCache, *, tolerance: float = 0.0) -> CacheDiff:
    """Compares two caches.

    Args:
        first: The old one.
        second: The new one.
        tolerance: Scales whose larger is at most ``1 + tolerance`` times the smaller are equal.
    """
    changed = []
    equal = 0
    for name, old in first.scales.items():
        new = second.scales.get(name)
        if new is None:
            continue
        if max(old, new) <= min(old, new) * (1 + tolerance):
            equal += 1
        else:
            changed.append((name, old, new))
    # stable: tensors of the same ratio keep the file's order
    changed.sort(key=lambda row: -abs(_bits(row[1], row[2])))
    return CacheDiff(
        headers=(first.header, second.header),
        added={n: s for n, s in second.scales.items() if n not in first.scales},
        removed={n: s for n, s in first.scales.items() if n not in second.scales},
        changed=tuple(changed),
        equal=equal,
    )


def _bits(old: float, new: float) -> float:
    return math.log2(new) - math.log2(old) if old and new else math.inf


def merge(
    caches: Sequence[CalibrationCache], *, policy: str = "last", names: Sequence[str] = ()
) -> CalibrationCache:
    """Returns the union of caches, with the header of the first.

    A scale of 0 says that there was no range, so it never hides another cache's scale.

    Args:
        caches: One or more.
        policy: Of several scales for a tensor "last" or "first" (in the order of the caches) or
            the "max" counts; "error" refuses them unless they are equal.
        names: What errors call the caches.

    Raises:
        UsageError: No cache, or an unknown policy.
        DataError: "cache.conflict": with "error", a tensor has different scales.
    """
    if not caches or policy not in POLICIES:
        raise UsageError(
            f"unknown policy {policy!r}" if caches else "there is no cache to merge",
            code="cache.policy",
            hint=f"--policy {'|'.join(POLICIES)}" if caches else "name at least one cache",
        )
    titles = [*names, *(f"cache {n + 1}" for n in range(len(names), len(caches)))]
    merged: dict[str, float] = {}
    source: dict[str, str] = {}
    for title, cache in zip(titles, caches, strict=False):
        for name, scale in cache.scales.items():
            old = merged.get(name, 0.0)
            if policy == "error" and old and scale and old != scale:
                raise DataError(
                    f"tensor {name!r} has the scale {old:g} in {source[name]} and {scale:g} in "
                    f"{title}",
                    code="cache.conflict",
                    where=name,
                    hint="choose with --policy last, first or max",
                )
            if policy == "max":
                taken = max(old, scale)
            elif policy == "first":
                taken = old or scale
            else:
                taken = scale or old
            merged[name] = taken
            source.setdefault(name, title)
    notes = list(dict.fromkeys(note for cache in caches for note in cache.notes))
    headers = {cache.header: None for cache in caches}
    if len(headers) > 1:
        notes.append(f"headers differ ({', '.join(headers)}): the first one is kept")
    return replace(caches[0], scales=merged, notes=tuple(notes))


def edit(
    cache: CalibrationCache,
    *,
    drop: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    amax: Mapping[str, float] | None = None,
) -> CalibrationCache:
    """Returns a cache with tensors dropped, then renamed, then set.

    Args:
        cache: A cache.
        drop: Names, or shell patterns of names.
        rename: New name by old one; a tensor keeps its place.
        amax: Largest magnitude by tensor, whose 127th part becomes the scale; a tensor that is
            not there is added at the end.

    Raises:
        UsageError: A name or pattern fits no tensor ("cache.unknown"), a new name is taken
            ("cache.taken"), or a magnitude is not positive ("cache.amax").
    """
    scales = dict(cache.scales)
    for pattern in drop:
        gone = [pattern] if pattern in scales else [n for n in scales if fnmatchcase(n, pattern)]
        if not gone:
            raise _unknown(pattern, scales)
        for name in gone:
            del scales[name]
    moved = dict(rename or {})
    for old in moved:
        if old not in scales:
            raise _unknown(old, scales)
    renamed: dict[str, float] = {}
    for name, scale in scales.items():
        new = moved.get(name, name)
        if new in renamed:
            raise UsageError(
                f"two tensors would be called {new!r}",
                code="cache.taken",
                where=new,
                hint="drop or rename the other one, too",
            )
        renamed[new] = scale
    for name, value in (amax or {}).items():
        scale = value / LEVELS
        if not is_scale(scale):
            raise UsageError(
                f"the largest magnitude of {name!r} cannot be {value}",
                code="cache.amax",
                where=name,
                hint="a positive number, small enough for a scale: the range is -AMAX to AMAX",
            )
        renamed[name] = float32(scale)
    return replace(cache, scales=renamed)


def _unknown(name: str, scales: Mapping[str, float]) -> UsageError:
    near = " or ".join(map(repr, get_close_matches(name, scales)))
    return UsageError(
        f"no tensor of the cache is called {name!r}",
        code="cache.unknown",
        where=name,
        hint=f"did you mean {near}?" if near else "edgekit calibrate show CACHE lists them",
    )
