"""From a placement to layers, loadables and reformats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgekit.network import Network
from edgekit.placement._built import Built
from edgekit.placement._costs import CostModel
from edgekit.placement._handover import read_formats, text_of
from edgekit.placement._room import Room
from edgekit.placement._types import Loadable, PlacedLayer, Reformat, Unfused
from edgekit.solver import OUTSIDE, Cost, Placing, Step

__all__ = ["DIGITS", "Running", "pools_of", "transitions_of"]

DIGITS = 6  # of microseconds and microjoules in a plan


@dataclass(frozen=True)
class Running:
    """One plan as it runs: the placement, and what its indices stand for.

    Attributes:
        network: The layer graph.
        model: What times are predicted by.
        room: What a loadable can hold.
        built: The problem and its meaning.
        placing: The placement.
        watts: By device, those that the placement's energy is the sum of.
    """

    network: Network
    model: CostModel
    room: Room
    built: Built
    placing: Placing
    watts: tuple[float, ...]

    def layers(self) -> tuple[PlacedLayer, ...]:
        """Returns every layer with its device and segment, in graph order.

        A kernel's time is shared out by what each layer adds to it; reformats, launches and what
        borders cost belong to no layer: they are with loadables, reformats and unfused parts.
        """
        found: dict[int, PlacedLayer] = {}
        for segment, step in enumerate(self.placing.steps):
            device = self.built.problem.devices[step.device]
            for v in step.nodes:
                layers = [(i, self.network.layers[i]) for i in self.built.kernels[v].layers]
                cost = self._cost(v)
                time, energy = cost.load_us[step.device], self._energy(cost)
                shares = self.model.layer_shares(self.network, self.built.kernels[v], device)
                for (index, layer), share in zip(layers, shares, strict=True):
                    found[index] = PlacedLayer(
                        layer.name,
                        layer.nodes,
                        device,
                        self.model.layer_precision(layer, device),
                        segment,
                        round(time * share, DIGITS),
                        round(energy * share, DIGITS),
                    )
        return tuple(found[index] for index in sorted(found))

    def _energy(self, cost: Cost) -> float:
        return sum(us * watts for us, watts in zip(cost.load_us, self.watts, strict=False))

    def _cost(self, v: int) -> Cost:
        cost = self.built.problem.costs[v][self.placing.modes[v]]
        assert cost is not None
        return cost

    def loadables(self, plan: int = 0) -> tuple[Loadable, ...]:
        """Returns the DLA segments with their memory and border formats, in running order."""
        found = []
        borders = self._borders()
        for number, step in enumerate(self.placing.steps):
            launch = self.built.problem.launch[step.device]
            if launch is None:
                continue
            indices = sorted(i for v in step.nodes for i in self.built.kernels[v].layers)
            names = tuple(self.network.layers[i].name for i in indices)
            core = int(self.built.problem.devices[step.device][3:])
            need = self.room.need(names)
            border_us, border_uj = borders.get(number, (0.0, 0.0))
            found.append(
                Loadable(
                    core,
                    names,
                    need,
                    self._formats(step),
                    round(launch.load_us[step.device], DIGITS),
                    round(self._energy(launch), DIGITS),
                    round(border_us, DIGITS),
                    round(border_uj, DIGITS),
                    plan,
                )
            )
        return tuple(found)

    def _borders(self) -> dict[int, tuple[float, float]]:
        """Returns, by step, how much longer a loadable takes for its tensors' formats, and energy.

        What several loadables read is paid once, by the first of them.
        """
        problem = self.built.problem
        step_of = {v: number for number, step in enumerate(self.placing.steps) for v in step.nodes}
        found: dict[int, tuple[float, float]] = {}
        for b, t, w in self.placing.ways:
            if (b, t) not in self.built.ways:
                continue
            border, cost = problem.borders[b], problem.borders[b].transfers[t].ways[w]
            p = border.producer
            for device, us in enumerate(cost.load_us[:-1]):
                if not device or not us:
                    continue
                ends = [p] if p != OUTSIDE and self._device(p) == device else border.consumers
                number = min(step_of[v] for v in ends if self._device(v) == device)
                had = found.get(number, (0.0, 0.0))
                found[number] = (had[0] + us, had[1] + us * self.watts[device])
        return found

    def unfused(self, plan: int = 0) -> tuple[Unfused, ...]:
        """Returns what broken fusions cost, in the order of the tensors."""
        problem = self.built.problem
        found = []
        for b, t, w in sorted(self.placing.ways):
            if (b, t) in self.built.ways:
                continue
            cost = problem.borders[b].transfers[t].ways[w]
            device = max(range(len(problem.devices)), key=lambda d: cost.load_us[d])
            found.append(
                Unfused(
                    self.built.tensors[b],
                    problem.devices[device],
                    round(sum(cost.load_us), DIGITS),
                    round(self._energy(cost), DIGITS),
                    plan,
                )
            )
        return tuple(found)

    def _formats(self, step: Step) -> dict[str, str]:
        """Returns the format of each tensor that a loadable reads or writes."""
        inside, problem = frozenset(step.nodes), self.built.problem
        chosen = self._chosen()
        reads: dict[str, str] = {}
        writes: dict[str, str] = {}
        for b, border in enumerate(problem.borders):
            name, p = self.built.tensors[b], border.producer
            if name not in self.network.tensors:  # the price of breaking a fused part
                continue
            readers = [v for v in border.consumers if v in inside]
            if p not in inside and readers:
                if p != OUTSIDE and self._device(p):  # another loadable wrote it
                    reads[name] = self._written(chosen, b)
                else:
                    form = chosen.get((b, step.device, True)) or self._free(b, readers[0])
                    kernel = self.built.kernels[readers[0]]
                    reads[name] = form or read_formats(self.model, self.network, kernel, name)[0]
            elif p in inside and (border.output or any(v not in inside for v in border.consumers)):
                writes[name] = self._written(chosen, b)
        return {**reads, **writes}

    def _written(self, chosen: Mapping[tuple[int, int, bool], str], b: int) -> str:
        """Returns the format in which a loadable writes a border's tensor."""
        border = self.built.problem.borders[b]
        form = chosen.get((b, self._device(border.producer), False))
        if not form and len(border.consumers) + border.output == 1:
            form = self._free(b, border.consumers[0] if border.consumers else OUTSIDE)
        if form:
            return form
        formats = self.model.formats(self.network, self.built.kernels[border.producer], "DLA0")
        return next(form for form in formats if form != "DLA_HWC4")  # it is for reading only

    def _free(self, b: int, reader: int) -> str:
        """Returns the loadable's format where the hand-over to a reader costs nothing, or ""."""
        modes, outside = self.placing.modes, self.built.problem.outside
        producer = self.built.problem.borders[b].producer
        source = outside if producer == OUTSIDE else modes[producer]
        goal = outside if reader == OUTSIDE else modes[reader]
        return self.built.free.get((b, source, goal), "")

    def _device(self, v: int) -> int:
        return self.built.problem.device(self.placing.modes[v])

    def _chosen(self) -> dict[tuple[int, int, bool], str]:
        """Returns the loadables' formats that a way decided: by border, core, and if it reads."""
        found: dict[tuple[int, int, bool], str] = {}
        for b, t, w in self.placing.ways:
            ways = self.built.ways.get((b, t))
            if ways and ways[w].dla_format:
                reads = ways[w].goal[1] == ways[w].dla_format
                found[b, self._core_of(b, t), reads] = ways[w].dla_format
        return found

    def _core_of(self, b: int, t: int) -> int:
        problem = self.built.problem
        pairs = problem.borders[b].transfers[t].pairs
        return max(problem.device(m) for pair in pairs for m in pair)

    def reformats(self, plan: int) -> tuple[Reformat, ...]:
        """Returns what the GPU reformats, in the order of the tensors."""
        found = []
        for b, t, w in sorted(self.placing.ways):
            ways = self.built.ways.get((b, t))
            if ways and ways[w].reformat_us > 0:
                way = ways[w]
                found.append(
                    Reformat(
                        self.built.tensors[b],
                        text_of(way.source),
                        text_of(way.goal),
                        round(way.reformat_us, DIGITS),
                        "measured" if way.measured else "predicted",
                        plan,
                        round(way.reformat_us * self.watts[0], DIGITS),
                    )
                )
        return tuple(found)


def pools_of(loadables: Sequence[Loadable]) -> dict[str, int]:
    """Returns the bytes of each pool: the largest any loadable needs; empty without loadables."""
    needs = [loadable.memory.to_json() for loadable in loadables]
    return {name: max(need[name] for need in needs) for name in needs[0]} if needs else {}


def transitions_of(steps: Sequence[Step]) -> int:
    """Returns the device changes along the running order."""
    return sum(a.device != b.device for a, b in pairwise(steps))
