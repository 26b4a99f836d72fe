"""The inputs on which builds of a network are tried and compared with FP32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.reference.accuracy import Float32Reference
from edgekit.reference.search_bounds import Feeds, FirstInputs, trial_limit

if TYPE_CHECKING:
    from edgekit.network.model import Model

# inputs, and FP32 outputs for them, that stay in memory while builds are tried
_HELD_BYTES = 1 << 28


class TrialInputs:
    """Inputs that every trial reads again, and the network's FP32 for them.

    Args:
        model: The FP32 model.
        inputs: The calibration inputs.
        most: Number of inputs to take; None for all.

    Attributes:
        part: Number of inputs taken; None for all.
        inputs: The inputs taken, in memory if they fit.
        float32: The model, which keeps its outputs in memory if they fit.
    """

    def __init__(self, model: Model, inputs: Feeds, most: int | None) -> None:
        self.part = trial_limit(inputs, most)
        self.inputs = _held_inputs(inputs if self.part is None else FirstInputs(inputs, self.part))
        self.float32 = Float32Reference(model, room=_HELD_BYTES)


def _held_inputs(inputs: Feeds) -> Feeds:
    found, size = [], 0
    for sample in inputs:
        found.append(dict(sample))
        size += sum(value.nbytes for value in sample.values())
        if size > _HELD_BYTES:
            # too large to keep: each trial reads the data again
            return inputs
    return found
