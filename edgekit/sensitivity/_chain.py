"""The kernels in running order, and what passes through them for one input after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from edgekit.errors import DataError
from edgekit.sensitivity._rows import Rows
from edgekit.sensitivity._run import Running
from edgekit.sensitivity._types import Impact

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Deviation, Kernels

__all__ = ["Chain"]


@dataclass(frozen=True)
class _Group:
    """Variants ``first`` to ``end`` (excluded), in one pass that begins at kernel ``start``."""

    first: int
    end: int
    start: int


class Chain:
    """The kernels in order, the INT8 ones among them (the variants), and the running sums."""

    def __init__(self, kernels: Kernels, memory: int) -> None:
        from edgekit.build import Deviation

        self._all = kernels
        self.kernels = kernels.kernels
        self._running = [Running(kernels, kernel) for kernel in self.kernels]
        self._variants = [at for at, k in enumerate(self.kernels) if k.precision == "int8"]
        self._errors: list[list[Deviation]] = [
            [Deviation(by_channel=True) for _ in kernels.outputs] for _ in self._variants
        ]
        self._memory = memory
        end = len(self.kernels)
        self._last = {name: at for at, k in enumerate(self.kernels) for name in k.inputs}
        self._last.update(dict.fromkeys(kernels.outputs, end))

    @cached_property
    def _groups(self) -> list[_Group]:
        return self._split(0, len(self._variants)) or [_Group(0, 0, 0)]

    @property
    def runs(self) -> int:
        """Kernels to run for one input."""
        return sum(len(self.kernels) - group.start for group in self._groups)

    def _split(self, first: int, end: int) -> list[_Group]:
        if first == end:
            return []
        # the first group's pass is also the one that the others begin from
        start = self._variants[first] if first else 0
        if end - first == 1 or self._peak(first, end, start) <= self._memory:
            return [_Group(first, end, start)]
        middle = (first + end) // 2
        return [*self._split(first, middle), *self._split(middle, end)]

    def _peak(self, first: int, end: int, start: int) -> int:
        """Returns the bytes that the rows of some variants take where they take most."""
        bits = {at: 1 << n for n, at in enumerate(self._variants[first:end])}
        reach: dict[str, int] = {}
        alive: dict[str, int] = {}
        most = 0
        for at, kernel in enumerate(self.kernels[start:], start):
            mask = bits.get(at, 0)
            for name in kernel.inputs:
                mask |= reach.get(name, 0)
                alive.setdefault(name, self._all.nbytes(name))
            for name in kernel.outputs:
                reach[name] = mask
                alive[name] = self._all.nbytes(name) * (1 + mask.bit_count())
            most = max(most, sum(alive.values()))
            for name in (*kernel.inputs, *kernel.outputs):
                if self._last.get(name, -1) <= at:
                    alive.pop(name, None)
        return most

    def take(
        self, feed: Mapping[str, np.ndarray], pool: ThreadPoolExecutor, workers: int, sample: int
    ) -> Iterable[int]:
        """Takes in one input; tells after each kernel how many have run."""
        starts = {group.start for group in self._groups[1:]}
        kept: dict[int, dict[str, Rows]] = {}
        done = 0
        for number, group in enumerate(self._groups):
            alive = (
                kept.pop(group.start, {}) if number else {k: Rows.of(v) for k, v in feed.items()}
            )
            own = {self._variants[n]: n for n in range(group.first, group.end)}
            for at in range(group.start, len(self.kernels)):
                if number == 0 and at in starts:
                    kept[at] = {n: Rows.of(rows.base.copy()) for n, rows in alive.items()}
                self._step(at, own.get(at), alive, pool, workers)
                done += 1
                yield done
            self._add(group, alive, sample)

    def _step(
        self, at: int, variant: int | None, alive: dict[str, Rows], pool: ThreadPoolExecutor,
        workers: int,
    ) -> None:  # fmt: skip
        """Runs one kernel on all rows, and in INT8 on the FP32 network's."""
        kernel, running = self.kernels[at], self._running[at]
        ids = sorted({i for name in kernel.inputs for i in alive[name].ids})
        feed = {name: alive[name].gather(ids) for name in kernel.inputs}
        added = () if variant is None else (variant,)
        base = {name: alive[name].base for name in kernel.inputs}
        running.prepare(base, quantised=variant is not None)
        quantised = pool.submit(running.quantised, base) if variant is not None else None
        made = running.rows(feed, len(ids) + 1, len(added), pool, workers)
        if quantised is not None:
            for rows, value in zip(made, quantised.result(), strict=True):
                rows[-1] = value
        for name in kernel.inputs:
            if self._last[name] == at:
                del alive[name]
        for name, rows in zip(kernel.outputs, made, strict=True):
            alive[name] = Rows((*ids, *added), rows)

    def _add(self, group: _Group, alive: Mapping[str, Rows], sample: int) -> None:
        import numpy as np

        for at, name in enumerate(self._all.outputs):
            rows = alive[name]
            if rows.base.dtype.kind == "f" and not np.isfinite(rows.base).all():
                raise DataError(
                    f"in FP32 the network itself gives NaN or infinity in {name!r}",
                    code="accuracy.nonfinite",
                    where=f"input {sample}",
                    hint="look for NaN in the weights and for inputs out of range",
                )
            for variant in range(group.first, group.end):
                self._errors[variant][at].add(rows.base, rows.row(variant))

    def impacts(self) -> tuple[Impact, ...]:
        """Returns what each variant costs, worst first."""
        from edgekit.build import worst_of

        found = []
        for variant, at in enumerate(self._variants):
            kernel, errors = self.kernels[at], self._errors[variant]
            whole = worst_of(errors)
            ratios = [whole["snr_db"], *(g["snr_db"] for e in errors for g in e.groups())]
            worst = min((ratio for ratio in ratios if ratio is not None), default=None)
            place = [
                word
                for word, mine, ends in (
                    ("first", kernel.inputs, self._all.inputs),
                    ("last", kernel.outputs, self._all.outputs),
                )
                if set(mine) & set(ends)
            ]
            found.append(
                Impact(
                    kernel.layers, kernel.device, worst, whole["cosine"],
                    whole["cosine_min"], whole["max_abs"],
                    errors[0].top1_agreement() if errors else 1.0, tuple(place),
                )
            )  # fmt: skip
        return tuple(sorted(found, key=_badness))


def _badness(impact: Impact) -> tuple[bool, float, float]:
    return impact.snr_db is None, impact.snr_db or 0.0, impact.cosine
