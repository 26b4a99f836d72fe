"""Which optimisation profile of an engine takes the shapes that are fed."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence, Tuple

from ._errors import DeviceError
from ._trt_feed import Tensor
from ._types import IoEntry

__all__ = ["Profiles"]


class Profiles:
    """An engine's profiles.

    Attributes:
        dynamic: Names of the inputs whose shape must be set.
    """

    def __init__(self, engine: Any, inputs: Sequence[IoEntry]) -> None:
        self._engine = engine
        self._inputs = tuple(inputs)
        self.dynamic = [io.name for io in inputs if -1 in tuple(engine.get_tensor_shape(io.name))]

    def of(self, feeds: Mapping[str, Tensor]) -> Tuple[int, Dict[str, Tuple[int, ...]]]:
        """The first optimisation profile that takes the shapes, and the shapes.

        Raises:
            DeviceError: "input.missing" or "input.shape".
        """
        shapes: Dict[str, Tuple[int, ...]] = {}
        for io in self._inputs:
            if io.name not in feeds:
                raise DeviceError(
                    "nothing is fed to {!r}".format(io.name[:80]),
                    code="input.missing",
                    where=io.name[:80],
                )
            shapes[io.name] = tuple(feeds[io.name].shape)
        for io in self._inputs:
            fixed = len(io.shape) == len(shapes[io.name]) and all(
                want in (-1, have)
                for want, have in zip(io.shape, shapes[io.name])  # noqa: B905
            )
            if not fixed:
                raise _shape(io, shapes[io.name], list(io.shape))
        if not self.dynamic:
            return 0, shapes
        for number in range(int(self._engine.num_optimization_profiles)):
            if all(self._within(name, number, shapes[name]) for name in self.dynamic):
                return number, shapes
        (first,) = [io for io in self._inputs if io.name == self.dynamic[0]]
        raise _shape(first, shapes[first.name], "no profile of the engine has it")

    def _within(self, name: str, profile: int, shape: Tuple[int, ...]) -> bool:
        low, _, high = self._engine.get_tensor_profile_shape(name, profile)
        sides = zip(tuple(low), shape, tuple(high))  # noqa: B905
        return all(int(least) <= size <= int(most) for least, size, most in sides)


def _shape(io: IoEntry, found: Tuple[int, ...], wanted: Any) -> DeviceError:
    return DeviceError(
        "{!r} has the shape {}, the engine takes {}".format(io.name[:80], list(found), wanted),
        code="input.shape",
        where=io.name[:80],
    )
