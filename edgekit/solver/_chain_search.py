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
        self.states: list[dict[int, Array]] = []

    def run(self) -> Found:
        np = self.np
        windows = {
            device: Window(len(modes), self.labels.count, self.chain.problem.min_size)
            for device, modes in self.modes.items()
            if device in self.cores
        }
        for v, size in enumerate(self.sizes):
            state = {}
            for device, modes in self.modes.items():
                best = self._begin(v, device)
                if device in self.cores:
                    move = self._move(v, modes, modes) + self.chain.unary[v, modes]
                    best = windows[device].step(move, best, size, self.chain.first[v])
                padded = np.full((len(modes), self.labels.count + 1), np.inf)
                padded[:, :-1] = best
                state[device] = padded
            self.states.append(state)
        value, device = min(
            ((float(found.min()), device) for device, found in self.states[-1].items()),
            default=(float("inf"), 0),
        )
        if value == float("inf"):
            return value, None, frozenset()
        return self._trace(value, device)

    def _move(self, v: int, before: Array, after: Array) -> Array:
        found: Array = self.chain.moves[v][before[:, None], after]
        return found

    def _begin(self, v: int, device: int) -> Array:
        """Returns the best values, by mode and label, of a loadable or another node at ``v``."""
        np = self.np
        modes = self.modes[device]
        own = self.chain.unary[v, modes] + self.chain.launch[device]
        if v == 0:
            first: Array = own[:, None] + self.nothing[:, self.sources[START, device]]
            return first
        best: Array = np.full((len(modes), self.labels.count), np.inf)
        for before, values in self.states[v - 1].items():
            reached = values[:, self.sources[before, device]]
            move = self._move(v, self.modes[before], modes) + self._tie(before, device)
            if len(reached) == 1:
                candidate = reached + move[0][:, None]
            else:
                candidate = (reached[:, None] + move[:, :, None]).min(axis=0)
            np.minimum(best, candidate, out=best)
        best += own[:, None]
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
        mode = self.modes[device][[place]]
        for before, values in self.states[v - 1].items():
            source = int(self.sources[before, device][label])
            cost = self._move(v, self.modes[before], mode)[:, 0] + self._tie(before, device)
            total = values[:, source] + cost
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
                move = self._move(v, modes, modes) + self.chain.unary[v, modes] + rest
                nexts.append(move.argmin(axis=1))
                rest = move.min(axis=1)
        assert best is not None
        _, begin, here = best
        path = [here]
        for v in range(begin + 1, end + 1):
            path.append(int(nexts[end - v][path[-1]]))
        return begin, path
