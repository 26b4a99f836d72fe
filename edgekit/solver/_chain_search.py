"""The dynamic programme over a chain, forwards for the values and backwards for the modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.solver._chain_labels import START, Labels
from edgekit.solver._chain_window import Window

if TYPE_CHECKING:
    import numpy as np

    from edgekit.solver._chain import Chain

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["search"]

Found = tuple[float, "tuple[int, ...] | None", frozenset[int]]


def search(chain: Chain, active: frozenset[str], cells: int) -> Found | None:
    """Returns the least value, the modes (None: there are none) and where loadables begin.

    Args:
        chain: What to place.
        active: The constraints that count along the chain and are to be kept.
        cells: Most states; None is returned beyond.
    """
    labels = Labels(chain.problem, active)
    least = chain.problem.min_size
    size = len(chain.unary) * len(chain.problem.modes) * labels.count * (least + 1)
    return None if size > cells else _Search(chain, labels).run()


class _Search:
    def __init__(self, chain: Chain, labels: Labels) -> None:
        import numpy as np

        self.np = np
        self.chain = chain
        problem = chain.problem
        self.sizes = problem.sizes or (1,) * len(problem.costs)
        by_device: dict[int, list[int]] = {}
        for mode, what in enumerate(problem.modes):
            if np.isfinite(chain.unary[:, mode]).any():
                by_device.setdefault(what.device, []).append(mode)
        self.modes = {device: np.array(modes) for device, modes in by_device.items()}
        self.cores = set(problem.cores)
        self.labels = labels
        devices = (START, *self.modes)
        self.sources = {
            (before, device): labels.sources(before, device, device in self.cores)
            for before in devices
            for device in self.modes
        }
        # The label before anything is placed, with a place for moves that do not exist.
        self.nothing = np.full((1, labels.count + 1), np.inf)
        self.nothing[0, 0] = 0.0
        self.moves = {
            (before, device): chain.moves[:, ones][:, :, others] + self._tie(before, device)
            for before, ones in self.modes.items()
            for device, others in self.modes.items()
        }
        self.own = {
            device: chain.unary[:, modes] + chain.launch[device]
            for device, modes in self.modes.items()
        }
        self.inner = {
            device: chain.moves[:, modes][:, :, modes] + chain.unary[:, None, modes]
            for device, modes in self.modes.items()
            if device in self.cores
        }
        self.states: list[dict[int, Array]] = []

    def run(self) -> Found:
        np = self.np
        windows = {
            device: Window(len(modes), self.labels.count, self.chain.problem.min_size)
            for device, modes in self.modes.items()
            if device in self.cores
        }
        padded = {
            device: np.full((len(self.sizes), len(modes), self.labels.count + 1), np.inf)
            for device, modes in self.modes.items()
        }
        for v, size in enumerate(self.sizes):
            for device in self.modes:
                best = self._begin(v, device)
                if device in self.cores:
                    move = self.inner[device][v]
                    best = windows[device].step(move, best, size, self.chain.first[v])
                padded[device][v, :, :-1] = best
            self.states.append({device: values[v] for device, values in padded.items()})
        value, device = min(
            ((float(found.min()), device) for device, found in self.states[-1].items()),
            default=(float("inf"), 0),
        )
        if value == float("inf"):
            return value, None, frozenset()
        return self._trace(value, device)

    def _begin(self, v: int, device: int) -> Array:
        """Returns the best values, by mode and label, of a loadable or another node at ``v``."""
        np = self.np
        own = self.own[device][v][:, None]
        if v == 0:
            first: Array = own + self.nothing[:, self.sources[START, device]]
            return first
        best: Array | None = None
        for before, values in self.states[v - 1].items():
            reached = values.take(self.sources[before, device], axis=1)
            move = self.moves[before, device][v]
            if len(reached) == 1:
                candidate = reached + move[0][:, None]
            else:
                candidate = (reached[:, None] + move[:, :, None]).min(axis=0)
            best = candidate if best is None else np.minimum(best, candidate, out=best)
        assert best is not None
        best += own
        return best

    def _tie(self, before: int, device: int) -> float:
        """Among equals fewer transitions win, and fewer loadables among those."""
        if before != device:
            return self.chain.tie
        return self.chain.tie / 2 if device in self.cores else 0.0

    def _trace(self, value: float, device: int) -> Found:
        np = self.np
        final = self.states[-1][device]
        place, label = np.unravel_index(int(final.argmin()), final.shape)
        v, modes, starts = len(self.sizes) - 1, [], set()
        here = (device, int(place), int(label))
        close = 1e-12 * abs(value)
        while True:
            device, place, label = here
            if device in self.cores:
                begin, path = self._loadable(v, device, int(place), int(label), close)
                starts.add(begin)
            else:
                begin, path = v, [int(place)]
            modes += [int(self.modes[device][p]) for p in reversed(path)]
            if begin == 0:
                return value, tuple(reversed(modes)), frozenset(starts)
            here = self._before(begin, device, path[0], int(label))
            v = begin - 1

    def _before(self, v: int, device: int, place: int, label: int) -> tuple[int, int, int]:
        """Returns device, mode and label of the node before, on the best way to this state."""
        options = []
        for before, values in self.states[v - 1].items():
            source = int(self.sources[before, device][label])
            total = values[:, source] + self.moves[before, device][v][:, place]
            options += [(float(t), before, p, source) for p, t in enumerate(total)]
        return min(options)[1:]

    def _loadable(
        self, end: int, device: int, place: int, label: int, close: float
    ) -> tuple[int, list[int]]:
        """Returns where the loadable that ends in a state begins, and its modes."""
        np = self.np
        modes = self.modes[device]
        value = self.states[end][device][place, label]
        rest = np.full(len(modes), np.inf)
        rest[place] = 0.0
        size = 0
        nexts: list[Array] = []
        best: tuple[float, int, int] | None = None
        for v in range(end, self.chain.first[end] - 1, -1):
            size += self.sizes[v]
            if size >= self.chain.problem.min_size:
                total = self._begin(v, device)[:, label] + rest
                found = (float(total.min()), v, int(total.argmin()))
                if best is None or found[0] < best[0]:
                    best = found
                if found[0] <= value + close:
                    break
            if v > 0:
                move = self.inner[device][v] + rest
                nexts.append(move.argmin(axis=1))
                rest = move.min(axis=1)
        assert best is not None
        _, begin, here = best
        path = [here]
        for v in range(begin + 1, end + 1):
            path.append(int(nexts[end - v][path[-1]]))
        return begin, path
