"""``calibration.method: auto``: the method whose INT8 is nearest to FP32 on inputs held out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import DataError, EdgekitError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.pipeline._placing import Placing
    from edgekit.placement import Plan
    from edgekit.quantize import Ranges

__all__ = ["choice_note", "choose_method", "plan_to_try"]

Feed = Mapping[str, "np.ndarray"]

# inputs after which the methods are compared, until the best is known well enough; how many there
# are at most, in multiply-accumulates (ResNet-50: 15), and at least; and how many are held out
_COMPARED = (8, 16, 24, 32)
_MACS, _FEWEST = 64_000_000_000, 8
_HELD_OUT = 16
# the best is sure to be no more than this behind another one (dB, standard errors: a few inputs of
# which one or two cost much more than the others make an error look smaller than it is)
_BEHIND, _SURE = 1.0, 3.0
# inputs in memory; where the data hold none beyond those measured, the ranges of each half of them
# are measured once more
_KEPT = 64
_HELD_BYTES = 1 << 28
_EXACT, _WORST = 999.0, -999.0


def choose_method(work: Placing, plan: Plan) -> dict[str, Any]:
    """Builds a plan with the scales of each method and compares them with FP32.

    The inputs are such as the ranges were not measured on: those of the data that follow, or
    further synthetic ones. Where the data hold no others, each half of them is compared on with
    the ranges of the other half; a single input is both. Inputs differ in what INT8 costs them, so
    more are taken until the best method is at most 1 dB behind any other by three standard errors;
    where those held out do not settle it, the measured ones are added.

    Returns:
        ``method``; ``snr_db`` by method (of the worst output; 999 where every bit is the same,
        -999 where the result is not finite); ``inputs``, how many were compared on; ``held_out``,
        how many of them the ranges had not seen.

    Raises:
        BuildError: ONNX Runtime fails.
    """
    macs = max(1, sum(layer.macs for layer in work.network.layers))
    most = min(max(_MACS // macs, _FEWEST), _COMPARED[-1])
    inputs, held_out = _inputs(work, int(most))
    errors = _Errors(work, plan)
    for until in _COMPARED:
        errors.add(inputs[errors.count : min(until, most)])
        if errors.count >= min(len(inputs), most) or errors.decided():
            break
    found = errors.snr_db()
    best = max(found, key=lambda name: found[name])
    return {
        "method": best,
        "snr_db": found,
        "inputs": errors.count,
        "held_out": min(errors.count, held_out),
    }


class _Errors:
    """What the methods' INT8 costs each output of the inputs compared so far.

    Attributes:
        count: Inputs so far.
    """

    def __init__(self, work: Placing, plan: Plan) -> None:
        import numpy as np

        from edgekit.network import before_opaque
        from edgekit.quantize import METHODS

        self.count = 0
        self._work = work
        self._plan = plan
        # what ONNX Runtime can run
        self._model = before_opaque(work.model)
        outputs = len(self._model.proto.graph.output)
        self._squares = {method: np.zeros((0, outputs)) for method in METHODS}
        # mean and mean square of the FP32 outputs
        self._moments = np.zeros((0, outputs, 2))

    def add(self, inputs: Sequence[tuple[Feed, Ranges]]) -> None:
        """Compares on further inputs, each with the scales of its own ranges."""
        import numpy as np

        from edgekit.network import session

        work = self._work
        names = [value.name for value in self._model.proto.graph.output]
        runner = session(self._model, outputs=names)
        real = [[_floats(x) for x in runner.run(names, dict(feed))] for feed, _ in inputs]
        rows = [[[x.mean(), (x**2).mean()] for x in outputs] for outputs in real]
        self._moments = np.concatenate([self._moments, np.reshape(rows, (-1, len(names), 2))])
        different = {id(ranges): ranges for _, ranges in inputs}
        known: dict[tuple[str, ...], list[list[float]]] = {}
        for number, method in enumerate(self._squares):
            scales = {key: work.scales_by(one, method) for key, one in different.items()}
            digests = tuple(one.digest for one in scales.values())
            if digests not in known:
                work.update(
                    number, len(self._squares),
                    f"{method} on inputs {self.count + 1} to {self.count + len(inputs)}",
                )  # fmt: skip
                known[digests] = self._of(inputs, real, scales, names)
            squares = np.reshape(known[digests], (-1, len(names)))
            self._squares[method] = np.concatenate([self._squares[method], squares])
        self.count += len(inputs)

    def _of(
        self,
        inputs: Sequence[tuple[Feed, Ranges]],
        real: Sequence[Sequence[np.ndarray]],
        scales: Mapping[int, Any],
        names: Sequence[str],
    ) -> list[list[float]]:
        import numpy as np

        from edgekit.build import Runner, build_reference

        work = self._work
        found: list[list[float]] = [[] for _ in inputs]
        for ranges, own in scales.items():
            built = build_reference(work.model, work.network, self._plan, own)
            runner = Runner(built)
            for number, (feed, measured) in enumerate(inputs):
                if id(measured) != ranges:
                    continue
                outputs = runner.run(feed)
                with np.errstate(over="ignore", invalid="ignore"):
                    found[number] = [
                        float(((_floats(outputs[name]) - x) ** 2).mean())
                        for name, x in zip(names, real[number], strict=True)
                    ]
        return found

    def _noise(self, method: str, chosen: np.ndarray) -> float:
        """Returns noise over signal on some inputs, the worst output's."""
        import numpy as np

        mean, square = self._moments[chosen].mean(axis=0).T
        noise = np.nan_to_num(self._squares[method][chosen].mean(axis=0), nan=np.inf)
        signal = np.maximum(square - mean**2, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.nan_to_num(noise / signal, nan=0.0, posinf=np.inf).max(initial=0.0))

    def decided(self) -> bool:
        """Whether the best method is surely not far behind any other (a jackknife over inputs)."""
        import numpy as np

        every = np.arange(self.count)
        best = min(self._squares, key=lambda method: self._noise(method, every))
        for other in self._squares:
            gap = self._gap(best, other, every)
            apart = np.array([self._gap(best, other, np.delete(every, i)) for i in every])
            error = np.sqrt((self.count - 1) * np.mean((apart - apart.mean()) ** 2))
            if not gap + _SURE * error < _BEHIND:
                return False
        return True

    def _gap(self, method: str, other: str, chosen: np.ndarray) -> float:
        """Returns by how much a method is behind another one, in dB."""
        return _db(self._noise(other, chosen)) - _db(self._noise(method, chosen))

    def snr_db(self) -> dict[str, float]:
        """Returns the SNR by method."""
        import numpy as np

        every = np.arange(self.count)
        return {method: round(_db(self._noise(method, every)), 2) for method in self._squares}


def _floats(values: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.asarray(values, np.float64)


def _db(noise: float) -> float:
    from math import log10

    if not noise:
        return _EXACT
    return max(-10 * log10(noise), _WORST) if noise < float("inf") else _WORST


def choice_note(choice: Mapping[str, Any]) -> str:
    """Says which method was chosen, and what all of them gave."""
    ranked = sorted(choice["snr_db"].items(), key=lambda item: -float(item[1]))
    snr = ", ".join(f"{name} {value:.1f}" for name, value in ranked)
    which = f"{counted(choice['inputs'], 'input')}, {choice['held_out'] or 'none'} held out"
    return (
        f"calibration method {choice['method']}, by its SNR on {which}, emulated on this machine: "
        f"{snr} dB"
    )


def _inputs(work: Placing, most: int) -> tuple[list[tuple[Feed, Ranges]], int]:
    """Returns inputs to compare on, each with ranges, and how many of the first these left out."""
    measured, feeds = work.inputs_beyond(min(_HELD_OUT, most))
    kept: deque[Feed] = deque()
    count = size = 0
    # an input that was not asked for may be damaged
    with suppress(DataError):
        for feed in feeds:
            kept.append(feed)
            count += 1
            size += sum(value.nbytes for value in feed.values())
            while len(kept) > _KEPT or (size > _HELD_BYTES and len(kept) > 2):
                size -= sum(value.nbytes for value in kept.popleft().values())
    every = list(kept)
    beyond = max(0, min(count - measured, len(every)))
    if beyond or len(every) == 1:
        seen = every[: len(every) - beyond][::-1]
        return [(feed, work.ranges) for feed in (*every[-beyond:][:beyond], *seen)], beyond
    half = len(every) // 2
    parts = every[:half], every[half:]
    ranges = _measured(work, parts[1]), _measured(work, parts[0])
    # of each half by turns
    pairs = [(part[i], own) for i in range(half) for part, own in zip(parts, ranges, strict=True)]
    return pairs, len(pairs)


def _measured(work: Placing, feeds: list[Feed]) -> Ranges:
    from edgekit.quantize import measure

    def progress(done: int, total: int) -> None:
        work.update(
            done, total, "ranges of half of the inputs, to compare the methods on the other"
        )

    return measure(work.model, feeds, network=work.network, progress=progress)


def plan_to_try(work: Placing) -> Plan:
    """Returns the plan, of one variant; where there is none, that of the GPU alone."""
    from edgekit.placement import Ask, Options

    try:
        plan = work.plan
    except EdgekitError:
        plan = Ask(
            work.network, work.judgement, work.target, "int8", work.file.power_mode,
            Options(dla_cores=()),
        ).plan()  # fmt: skip
    return replace(plan, plans=plan.plans[:1])
