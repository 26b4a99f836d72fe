"""Constants that are known by shape and type, and computed when somebody asks for their values.

Exporters that store weights in half precision put a Cast behind each: folding those while loading
would read the whole file and keep it twice over in FP32, for questions that need only shapes.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union, cast

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Constant",
    "Deferred",
    "Step",
    "Weights",
    "entries",
    "joined_weights",
    "real",
    "weight_arrays",
]


class Step:
    """One node that computes constants from constants.

    Attributes:
        inputs: What it reads.
        compute: From the values of ``inputs`` to the outputs by name.
    """

    def __init__(
        self,
        inputs: Sequence[Constant],
        compute: Callable[[Sequence[np.ndarray]], Mapping[str, np.ndarray]],
    ) -> None:
        self.inputs = tuple(inputs)
        self.compute = compute

    def before(self) -> list[Step]:
        """The steps that make its inputs."""
        return [value.step for value in self.inputs if isinstance(value, Deferred)]


class Deferred:
    """An array that is not computed yet.

    Attributes:
        step: What computes it.
        output: Its name among the step's outputs.
        shape: Its shape.
        dtype: Its NumPy type.
        digest: SHA-256 of its values once somebody asked for it.
    """

    def __init__(self, step: Step, output: str, shape: Sequence[int], dtype: np.dtype) -> None:
        self.step = step
        self.output = output
        self.shape = tuple(shape)
        self.dtype = dtype
        self.digest: str | None = None
        self._value: weakref.ref[np.ndarray] | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that its values will take."""
        return self.size * int(self.dtype.itemsize)

    def value(self) -> np.ndarray:
        """Computes it, read-only; it is kept only as long as the caller keeps it.

        Raises:
            ModelError: ``model.constant``: it cannot be computed from these values.
        """
        known = self._value() if self._value is not None else None
        if known is None:
            known = _computed(self.step)[self.output].view()
            known.flags.writeable = False
            self._value = weakref.ref(known)
        return known


# an unevaluated string union would not do for mypy's strict mode
Constant: TypeAlias = Union["np.ndarray", Deferred]


def real(value: Constant) -> np.ndarray:
    """The values."""
    return value.value() if isinstance(value, Deferred) else value


def _computed(last: Step) -> Mapping[str, np.ndarray]:
    """The outputs of a step: each step behind it runs once, results go after their last reader."""
    order = _order(last)
    readers = Counter(before for step in order for before in step.before())
    made: dict[Step, Mapping[str, np.ndarray]] = {}
    for step in order:
        values = [
            made[value.step][value.output] if isinstance(value, Deferred) else value
            for value in step.inputs
        ]
        made[step] = step.compute(values)
        del values
        for before in step.before():
            readers[before] -= 1
            if not readers[before]:
                del made[before]
    return made[last]


def _order(last: Step) -> list[Step]:
    """The steps behind ``last`` and itself, each after those it reads; without recursion."""
    done: dict[Step, None] = {}
    stack = [last]
    while stack:
        step = stack[-1]
        missing = [before for before in step.before() if before not in done]
        if missing:
            stack += missing
        else:
            done[step] = None
            stack.pop()
    return list(done)


class Weights(Mapping[str, "np.ndarray"]):
    """Weights by name, some of which are computed at each access and not kept."""

    def __init__(self, made: Mapping[str, Constant]) -> None:
        self._entries = dict(made)

    def __getitem__(self, name: str) -> np.ndarray:
        return real(self._entries[name])

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Mapping[str, Constant]:
        """The weights without computing any: for shapes, types and passing on."""
        return self._entries


def weight_arrays(made: Mapping[str, Constant]) -> Mapping[str, np.ndarray]:
    """A mapping to arrays; a plain one when nothing has to be computed."""
    if any(isinstance(value, Deferred) for value in made.values()):
        return Weights(made)
    return cast("Mapping[str, np.ndarray]", made)


def entries(weights: Mapping[str, np.ndarray]) -> Mapping[str, Constant]:
    """What stands in a mapping of weights, without computing any of it."""
    return weights.entries if isinstance(weights, Weights) else weights


def joined_weights(
    own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], names: Collection[str]
) -> Mapping[str, np.ndarray]:
    """Weights and some of another model's, none of which is computed for it.

    Args:
        own: Weights by name.
        other: Another ``Model.weights``.
        names: Which of ``other`` to take in.

    Raises:
        KeyError: ``other`` has no weight of a name.
    """
    there = entries(other)
    return weight_arrays({**entries(own), **{name: there[name] for name in names}})
