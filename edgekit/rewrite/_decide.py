"""Whether a step helps: what the DLA says of the old nodes and of the new ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from edgekit.rewrite._part import Part, around, parts
from edgekit.rewrite._part_both import both_key

if TYPE_CHECKING:
    from edgekit.dla import Judgement, Verdict
    from edgekit.network import Layer, Network
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Step
    from edgekit.targets import Target

__all__ = ["Cost", "Judge", "Predicted", "Score", "apart", "pieces", "score"]


class Predicted(Protocol):
    """Predicted times of one inference in microseconds, as ``edgekit.placement.Forecast``.

    Attributes:
        auto_us: Latency with TensorRT's automatic DLA placement.
        gpu_only_us: Latency on the GPU alone.
        layer_us: Time by layer.
    """

    @property
    def auto_us(self) -> float:
        """Latency with automatic placement."""

    @property
    def gpu_only_us(self) -> float:
        """Latency on the GPU alone."""

    @property
    def layer_us(self) -> Mapping[str, float]:
        """Time by layer."""


#: Predicts a judged network; None where nothing is known of the board's costs.
Cost: TypeAlias = Callable[["Network", "Judgement"], Predicted | None]

# of predicted times: smaller differences are noise of rounding
_NOTICED = 1e-3
_FOUR = (4, 4)


@dataclass(frozen=True, slots=True)
class Score:
    """How well nodes suit the DLA; fewer is better, the first number decides.

    Attributes:
        off: Layers that it does not run, and kept constants that those on it wait for.
        disputed: Layers that it runs by the rules, with something that speaks against it.
        us: Predicted microseconds; 0 where nothing predicts.
    """

    off: int
    disputed: int
    us: float

    def better(self, other: Score) -> bool:
        """Whether this is an improvement on ``other``."""
        mine, theirs = (self.off, self.disputed), (other.off, other.disputed)
        return mine < theirs or (mine == theirs and self.us < other.us * (1 - _NOTICED))

    def worse(self, other: Score) -> bool:
        """Whether this runs less on the DLA than ``other``."""
        return (self.off, self.disputed) > (other.off, other.disputed)


class Judge:
    """Scores networks and parts for one board, precision and release; remembers parts."""

    def __init__(
        self,
        target: Target,
        precision: str,
        tensorrt: str | None,
        cost: Cost | None,
        *,
        lowers: bool = False,
    ) -> None:
        self.target = target
        self.precision = precision
        self.tensorrt = tensorrt
        self.cost = cost
        self.lowers = lowers
        self._known: dict[Hashable, Score] = {}
        self._both: dict[Hashable, tuple[Score, Score]] = {}

    def judge(self, network: Network) -> Judgement:
        """Returns the verdicts on a network."""
        from edgekit.dla import judge

        return judge(
            network, self.target, precision=self.precision, tensorrt=self.tensorrt,
            lowers=self.lowers,
        )  # fmt: skip

    def both(self, graph: Graph, step: Step) -> tuple[Score, Score]:
        """Scores what a step would take away and what it would bring, among its neighbours."""
        beside = around(graph, step)
        key = both_key(graph, step, beside)
        found = self._both.get(key)
        if found is None:
            old, new = parts(graph, step, beside)
            found = self._both[key] = self._part(old), self._part(new)
        return found

    def _part(self, part: Part) -> Score:
        key = part.key()
        found = self._known.get(key)
        if found is None:
            network = part.network()
            found = self._known[key] = score(network, self.judge(network), self.cost)
        return found


def score(network: Network, judgement: Judgement, cost: Cost | None = None) -> Score:
    """Scores a network."""
    rows = [pieces(network, layer, judgement.verdicts[layer.name]) for layer in network.layers]
    off = sum(row[0] for row in rows) + len(apart(network, judgement))
    disputed = sum(row[1] for row in rows)
    predicted = cost(network, judgement) if cost is not None else None
    return Score(off, disputed, predicted.auto_us if predicted else 0.0)


def pieces(network: Network, layer: Layer, verdict: Verdict) -> tuple[int, int]:
    """Returns what a layer counts off the DLA and among the disputed ones.

    Of a fused shuffle that is off, the transpositions count and the reshapes once, where they are
    not of four dimensions, so that a step which takes one of them away is an improvement; of four
    dimensions they could run, were they alone, and are disputed.
    """
    if verdict.placeable and layer.kind != "CONSTANT":
        return 0, int(bool(verdict.reasons))
    found: list[str] = []
    four = 0
    rank = len(network.tensors[layer.inputs[0]].shape) if layer.inputs else 0
    for part in layer.params.get("parts", ()):
        before, rank = rank, len(part["shape"])
        if (before, rank) == _FOUR:
            four += 1
        else:
            found.append(part["mode"])
    return max(1, found.count("TRANSPOSE") + ("RESHAPE" in found)), four


def apart(network: Network, judgement: Judgement) -> tuple[Layer, ...]:
    """Returns the kept constants that a layer on the DLA waits for: they run on the GPU.

    Beside a reader on the GPU a constant costs nothing.
    """
    if not network.constants:
        return ()
    able = {
        name
        for layer in network.layers
        if judgement.verdicts[layer.name].placeable
        for name in layer.origin
    }
    return tuple(layer for layer in network.constants if not able.isdisjoint(layer.origin))
