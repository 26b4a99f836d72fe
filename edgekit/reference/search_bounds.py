"""The bounds of the search for layers to keep in FP16, without --thorough. They count work, not
time: the same configuration gives the same result on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from edgekit.network.model import Network
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan

Feeds = Iterable[Mapping[str, np.ndarray]]

# multiply-accumulates for ranking the kernels: a kernel in INT8 counts as half a network in FP32
_RANKING_MACS = 1_000_000_000_000
# multiply-accumulates for a trial build, and the least and most inputs of a trial
_TRIAL_MACS, _FEWEST_INPUTS, _MOST_INPUTS = 64_000_000_000, 16, 64
# multiply-accumulates for all trial builds, and the least and most builds; further builds would
# only give back single kernels
_SEARCH_MACS, _FEWEST_BUILDS, _MOST_BUILDS = 640_000_000_000, 12, 32
# builds that remain for a plan with other places, after any number of trials
_LAST_BUILDS = 4


@dataclass(frozen=True)
class SearchBounds:
    """The bounds of a search; None means all inputs, or as many builds as needed.

    Attributes:
        ranked: Inputs on which the kernels are ranked.
        tried: Inputs on which builds are tried.
        builds: Builds to try.
    """

    ranked: int | None = None
    tried: int | None = None
    builds: int | None = None

    def after(self, builds: int) -> SearchBounds:
        """Returns the remaining bounds after ``builds`` builds."""
        if self.builds is None:
            return self
        return SearchBounds(self.ranked, self.tried, max(self.builds - builds, _LAST_BUILDS))


def bounds_of_question(minimum: float | None, *, thorough: bool) -> SearchBounds:
    """Returns the bounds for a user's search for the fewest layers: all inputs count."""
    return SearchBounds(builds=None if thorough else most_builds(minimum))


def most_builds(minimum: float | None) -> int:
    """Returns the most builds to try; without a gate the minimum of layers is not needed."""
    return _FEWEST_BUILDS if minimum is None else _MOST_BUILDS


def bounds_of_run(network: Network, plan: Plan, count: int, minimum: float | None) -> SearchBounds:
    """Returns the bounds for a run whose INT8 misses the gate.

    Args:
        network: The layers.
        plan: Their places.
        count: Calibration inputs.
        minimum: The gate's minimum; None if the gate only forbids collapses.
    """
    macs = max(1, int(sum(layer.macs for layer in network.layers)))
    layers = sum(layer.precision == "int8" for layer in plan.layers)
    tried = min(max(_TRIAL_MACS // macs, _FEWEST_INPUTS), _MOST_INPUTS)
    inputs = min(tried, count)
    builds = max(_SEARCH_MACS // (macs * inputs), _FEWEST_BUILDS)
    return SearchBounds(
        ranked=max(1, 2 * _RANKING_MACS // (macs * max(1, layers))),
        tried=tried,
        builds=min(builds, most_builds(minimum)),
    )


class FirstInputs:
    """The first of some inputs; each iteration begins anew."""

    def __init__(self, inputs: Feeds, most: int) -> None:
        self._inputs, self._most = inputs, most

    def __len__(self) -> int:
        return self._most

    def __iter__(self) -> Iterator[Mapping[str, np.ndarray]]:
        return islice(iter(self._inputs), self._most)


def trial_limit(inputs: Feeds, most: int | None) -> int | None:
    """Returns ``most`` if there are more inputs, else None, because it is no bound then."""
    if most is None or (isinstance(inputs, Sized) and len(inputs) <= most):
        return None
    return most


def part_text(part: int | None, inputs: str) -> str:
    """Returns a text on the inputs of trial builds; ``inputs`` describes all inputs."""
    return inputs if part is None else f"the first {part} of {inputs}"


def bound_note(builds: int | None, ranked: int | None, tried: int | None) -> str:
    """Returns a note on the limits that a bounded search reached; empty if it was complete.

    Args:
        builds: The builds after which the search stopped; None if it was complete.
        ranked: Inputs that ranked the kernels; None for all.
        tried: Inputs that builds were tried on; None for all.
    """
    parts = []
    if builds is not None:
        parts.append(f"stopped after {counted(builds, 'build')}, so fewer layers may be enough")
    if ranked is not None:
        parts.append(f"ranked the kernels on {_first(ranked)}")
    if tried is not None:
        parts.append(f"tried builds on {_first(tried)}")
    if not parts:
        return ""
    return (
        f"the search for layers to keep in FP16 {'; it '.join(parts)}. To search further: build or "
        "run with --thorough, or accuracy: {thorough: true}"
    )


def _first(inputs: int) -> str:
    return "the first input" if inputs == 1 else f"the first {counted(inputs, 'input')}"
