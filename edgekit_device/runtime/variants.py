"""Selects the variant of a bundle that runs a frame, by its shapes, and manages the open variants.
Inputs are padded if the host proved that valid; the first frame of a variant with ``load: demand``
opens it.
"""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import (
    DTYPES,
    Engines,
    Lane,
    Manifest,
    Padding,
    SegmentEntry,
    ShapeRange,
    Variant,
)
from edgekit_device.runtime.pipeline import LaneRun

if TYPE_CHECKING:
    import numpy as np

    from edgekit_device.cuda.memory import DeviceTensor

#: A shape by input.
Sizes = Mapping[str, Tuple[int, ...]]
#: Values by shape tensor (an input whose values set sizes).
Values = Mapping[str, Tuple[int, ...]]
#: Opens the engines of these segments.
OpenEngines = Callable[[Sequence[SegmentEntry]], Engines]
#: Makes lanes ready with their engines.
MakeLanes = Callable[[Sequence[Lane], Engines], List[LaneRun]]

#: Largest number of loadables per DLA core: "a maximum of 16 DLA loadables per core" (NVIDIA's
#: guide).
MOST_LOADABLES = 16
_SHOWN = 8
_Row = Mapping[str, ShapeRange]


class Route(NamedTuple):
    """The variant that runs a frame, with padding and cropping.

    Attributes:
        variant: The variant's number.
        padded: (input, axis, size, value) of inputs that are padded.
        cropped: (output, axis, size) of outputs that are then cropped.
    """

    variant: int
    padded: Tuple[Tuple[str, int, int, float], ...] = ()
    cropped: Tuple[Tuple[str, int, int], ...] = ()

    def pad_inputs(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """Returns the inputs for the variant; GPU tensors are fetched for padding."""
        import numpy as np

        found = dict(inputs)
        for name, axis, size, value in self.padded:
            given = found[name]
            array = given.numpy() if hasattr(given, "numpy") else given
            shape = array.shape
            made = np.full((*shape[:axis], size, *shape[axis + 1 :]), value, array.dtype)
            made[(slice(None),) * axis + (slice(shape[axis]),)] = array
            found[name] = made
        return found

    def results(self, outputs: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
        """Returns the outputs, cropped for the given inputs."""
        import numpy as np

        for name, axis, size in self.cropped:
            part = outputs[name][(slice(None),) * axis + (slice(size),)]
            outputs[name] = np.ascontiguousarray(part)
        return outputs

    def crop_on_device(self, outputs: Dict[str, DeviceTensor]) -> Dict[str, DeviceTensor]:
        """Returns the outputs on the device, cropped without copies.

        Raises:
            DeviceError: "input.shape": an output would have to be copied.
        """
        for name, axis, size in self.cropped:
            tensor = outputs[name]
            # only along the first axis are the remaining elements one dense block
            if axis:
                raise DeviceError(
                    "{!r} is cropped along axis {}, which needs a copy".format(name[:80], axis),
                    code="input.shape",
                    where=name[:80],
                    hint="call the model itself, or give a shape that it was built for",
                )
            shape = (size, *tensor.shape[1:])
            nbytes = math.prod(shape) * DTYPES[tensor.dtype]
            outputs[name] = replace(tensor, shape=shape, nbytes=nbytes)
        return outputs


class Router:
    """Picks a variant by the inputs' shapes."""

    def __init__(self, name: str, variants: Sequence[Variant], padding: Sequence[Padding]) -> None:
        self._name = name
        self._variants = tuple(variants)
        self._names = [tensor.name for tensor in variants[0].inputs]
        self._exact = {
            self._key(variant.sizes): number
            for number, variant in enumerate(variants)
            if not variant.profiles
        }
        self._padding = tuple(padding)
        # the smallest variant that takes a frame wastes the least
        self._static = sorted(self._exact.values(), key=lambda at: (_volume(variants[at]), at))

    def _key(self, sizes: Sizes) -> Tuple[Tuple[int, ...], ...]:
        return tuple(sizes[name] for name in self._names)

    def route(self, sizes: Sizes, values: Optional[Values] = None) -> Route:
        """Returns the static variant with exactly these shapes; else the smallest that takes them
        padded; else a variant with a profile that includes them.

        Args:
            sizes: Shapes of the inputs.
            values: Values of shape tensors, by default the optimal values; only a variant with
                profiles takes other values.

        Raises:
            DeviceError: "input.shape", with the nearest shape; "input.values".
        """
        # engines of static shapes were built for the optimal values, so other values need a range
        best = not values or self._are_optimal(values)
        exact = self._exact.get(self._key(sizes)) if best else None
        if exact is not None:
            return Route(exact)
        for number in self._static if self._padding and best else ():
            found = self._route_padded(number, sizes)
            if found is not None:
                return found
        for number, variant in enumerate(self._variants):
            if variant.find_profile(sizes) is not None:
                _check_values(variant, values or {})
                return Route(number)
        raise self.refusal(sizes)

    def _are_optimal(self, values: Values) -> bool:
        return all(
            variant.values[name].opt == given
            for variant in self._variants
            for name, given in values.items()
            if name in variant.values
        )

    def planned(self, sizes: Sizes) -> int:
        """Returns the number of the variant that was built for these shapes, without padding.

        Raises:
            DeviceError: "input.shape", with the nearest shape.
        """
        if set(sizes) == set(self._names):
            found = self.route(sizes)
            if not found.padded:
                return found.variant
        raise self.refusal(sizes)

    def _route_padded(self, number: int, sizes: Sizes) -> Optional[Route]:
        wanted = self._variants[number].sizes
        padded, cropped = [], []
        for padding in self._padding:
            # a slice, not an index: a tensor with fewer axes gives (), which is refused below
            have = {sizes[name][axis : axis + 1] for name, axis in padding.inputs.items()}
            want = {wanted[name][axis] for name, axis in padding.inputs.items()}
            # inputs that share an axis must have one size: a second element in a set refuses
            size, most = have.pop(), want.pop()
            if have or want or not size or size[0] > most:
                return None
            if size[0] < most:
                for name, axis in padding.inputs.items():
                    padded.append((name, axis, most, padding.value))
                for name, crop in padding.outputs.items():
                    cropped.append((name, crop.axis, size[0] * crop.factor))
        full = {name: list(sizes[name]) for name in self._names}
        for name, axis, padded_size, _ in padded:
            full[name][axis] = padded_size
        if any(tuple(full[name]) != wanted[name] for name in self._names):
            return None
        return Route(number, tuple(padded), tuple(cropped))

    def refusal(self, sizes: Sizes) -> DeviceError:
        """Returns the error for shapes that no variant takes."""
        rows = [row for variant in self._variants for row in _rows(variant)]
        shapes = [{name: limits.opt for name, limits in _clamp(row, sizes).items()} for row in rows]
        nearest = min(zip(rows, shapes), key=lambda pair: distance(pair[1], sizes))[0]  # noqa: B905
        takes = [_describe_row(row) for row in rows]
        hidden = len(takes) - _SHOWN
        return DeviceError(
            "no variant of the model takes {}".format(
                ", ".join("{} {}".format(name[:80], list(size)) for name, size in sizes.items())
            ),
            code="input.shape",
            where=self._names[0] if len(self._names) == 1 else self._name,
            hint="the nearest is {}; the model takes {}{}".format(
                _describe_row(_clamp(nearest, sizes)),
                " or ".join(takes[:_SHOWN]),
                " and {} others".format(hidden) if hidden > 0 else "",
            ),
        )


def _check_values(variant: Variant, values: Values) -> None:
    for name, given in values.items():
        known = variant.values.get(name)
        if known is not None and not known.holds(given):
            raise DeviceError(
                "{!r} is {}, and the engine of the range takes {} to {}".format(
                    name[:80], list(given), list(known.min), list(known.max)
                ),
                code="input.values",
                where=name[:80],
                hint="give other values, or build with a wider range (model.values)",
            )


def _volume(variant: Variant) -> int:
    return sum(math.prod(size) for size in variant.sizes.values())


def _rows(variant: Variant) -> Sequence[_Row]:
    """Returns the ranges of shapes that a variant takes; a static shape is a range of one size."""
    if variant.profiles:
        return variant.profiles
    return [{name: ShapeRange(size, size, size) for name, size in variant.sizes.items()}]


def _clamp(row: _Row, sizes: Sizes) -> _Row:
    """Returns the nearest shape within a range."""
    found = {}
    for name, limits in row.items():
        size = limits.opt
        if len(sizes.get(name, ())) == len(size):
            sides = zip(limits.min, sizes[name], limits.max)  # noqa: B905 (Python 3.8)
            size = tuple(min(max(low, have), high) for low, have, high in sides)
        found[name] = ShapeRange(size, size, size)
    return found


def distance(sizes: Sizes, other: Sizes) -> float:
    """Returns the distance of shapes in factors along axes; infinity if their axes differ."""
    found = 0.0
    for name, size in sizes.items():
        have = other.get(name, ())
        if len(have) != len(size):
            return math.inf
        pairs = zip(have, size)  # noqa: B905 (Python 3.8)
        # max(): an open or empty axis must not give the logarithm of 0
        found += sum(abs(math.log(max(a, 1) / max(b, 1))) for a, b in pairs)
    return found


def _describe_row(row: _Row) -> str:
    parts = []
    for name, limits in row.items():
        text = str(list(limits.min))
        if limits.min != limits.max:
            text += " to {}".format(list(limits.max))
        parts.append("{} {}".format(name[:80], text))
    return ", ".join(parts)


def count_loadables(variants: Iterable[Variant]) -> Dict[int, int]:
    """Returns the number of loadables per DLA core of variants that are open together; a common
    engine counts once.

    A hybrid engine may have several loadables: the placement lists them.
    """
    counts: Dict[Tuple[int, str], int] = {}
    for variant in variants:
        engines: Dict[int, List[str]] = {}
        for lane in variant.lanes:
            for segment in lane.segments:
                if segment.core is not None:
                    names = engines.setdefault(segment.core, [])
                    if segment.engine not in names:
                        names.append(segment.engine)
        for core, names in engines.items():
            placed = sum(loadable.core == core for loadable in variant.placement.loadables)
            for place, name in enumerate(names):
                # further loadables of the placement count for the first engine
                loadables = 1 + max(placed - len(names), 0) * (place == 0)
                counts[core, name] = max(counts.get((core, name), 0), loadables)
    found: Dict[int, int] = {}
    for (core, _), count in counts.items():
        found[core] = found.get(core, 0) + count
    return found


def need_loadables(manifest: Manifest) -> None:
    """Refuses variants that no DLA core can hold together.

    Raises:
        DeviceError: "engine.loadables".
    """
    variants = manifest.every_variant
    start = [variant for variant in variants if variant.load == "start"]
    for candidate in (None, *(variant for variant in variants if variant.load == "demand")):
        together = start if candidate is None else [*start, candidate]
        for core, count in sorted(count_loadables(together).items()):
            if count > MOST_LOADABLES and len(variants) > 1:
                shape = "" if candidate is None else " with " + _describe_row(_rows(candidate)[0])
                raise DeviceError(
                    "the variants that are loaded together{} have {} loadables on DLA{}, "
                    "which holds {}".format(shape, count, core, MOST_LOADABLES),
                    code="engine.loadables",
                    where=manifest.name,
                    hint="set model.load: demand, or give fewer buckets",
                )


class OpenVariants:
    """The engines of open variants; opens other variants on demand.

    Args:
        variants: The bundle's variants.
        name: The bundle's name.
        engines: Opened engines of the variants that are loaded at the start.
        open_engines: Opens further engines.
        lanes: Makes a variant's lanes ready.

    Attributes:
        engines: The open engines, by digest and device.
    """

    def __init__(
        self,
        variants: Sequence[Variant],
        name: str,
        engines: Engines,
        open_engines: OpenEngines,
        lanes: MakeLanes,
    ) -> None:
        self.engines: Dict[Tuple[str, str], Any] = dict(engines)
        self._name = name
        self._variants = tuple(variants)
        self._open_engines = open_engines
        self._make_lanes = lanes
        self._lanes: Dict[int, List[LaneRun]] = {}
        # _lock guards the tables and is held briefly; _opening is held while engines load, so that
        # frames of open variants run meanwhile
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        #: Number of users of each open variant, the least recently used first.
        self._users: Dict[int, int] = {
            number: 0 for number, variant in enumerate(self._variants) if variant.load == "start"
        }

    @contextmanager
    def hold(self, number: int) -> Iterator[List[LaneRun]]:
        """Yields the lanes of a variant, which stays open during the block.

        Raises:
            DeviceError: As ``take``.
        """
        found = self.take(number)
        try:
            yield found
        finally:
            self.give(number)

    def take(self, number: int) -> List[LaneRun]:
        """Returns the lanes of a variant, which stays open until ``give``.

        Raises:
            DeviceError: Errors of opening it; "engine.loadables" if a DLA core is full of loadables
                in use.
        """
        found = self._try_take(number)
        if found is None:
            # tried again inside: another thread may have opened it during the wait
            with self._opening:
                found = self._try_take(number)
                if found is None:
                    self._open(number)
                    found = self._try_take(number)
                    assert found is not None  # no other thread closes variants meanwhile
        return found

    def variant_engines(self, number: int) -> Engines:
        """Returns the engines of an open variant."""
        return {key: self.engines[key] for key in self._keys(number)}

    def give(self, number: int) -> None:
        """Ends a use of a variant."""
        with self._lock:
            self._users[number] -= 1

    def is_free(self, number: int) -> bool:
        """Returns True if the variant is open, or can be opened without closing another variant."""
        with self._lock:
            return number in self._users or self._fits(number)

    def _try_take(self, number: int) -> Optional[List[LaneRun]]:
        with self._lock:
            if number not in self._users:
                return None
            # inserted again at the end: the dict's order is the order of last use
            self._users[number] = self._users.pop(number) + 1
            if number not in self._lanes:
                lanes = self._variants[number].lanes
                self._lanes[number] = self._make_lanes(lanes, self.variant_engines(number))
            return self._lanes[number]

    def _keys(self, number: int) -> List[Tuple[str, str]]:
        return [(s.engine, s.device) for s in self._segments(number)]

    def _segments(self, number: int) -> List[SegmentEntry]:
        return [segment for lane in self._variants[number].lanes for segment in lane.segments]

    def _fits(self, number: int) -> bool:
        together = [self._variants[other] for other in (*self._users, number)]
        return all(count <= MOST_LOADABLES for count in count_loadables(together).values())

    def _open(self, number: int) -> None:
        with self._lock:
            self._make_room(number)
            lacking = {
                (segment.engine, segment.device): segment
                for segment in self._segments(number)
                if (segment.engine, segment.device) not in self.engines
            }
        # without _lock: loading takes seconds, and running frames need ``give``
        engines = self._open_engines(list(lacking.values()))
        with self._lock:
            self.engines.update(engines)
            self._users[number] = 0

    def _make_room(self, number: int) -> None:
        """Closes unused variants, the least recently used first, until this variant fits."""
        idle = [
            unused
            for unused, users in self._users.items()
            if not users and self._variants[unused].load == "demand"
        ]
        # closed before the new engines load: the core's limit counts both
        while not self._fits(number):
            if not idle:
                raise DeviceError(
                    "a DLA core holds {} loadables, and those that are open are in use".format(
                        MOST_LOADABLES
                    ),
                    code="engine.loadables",
                    where=self._name,
                    hint="wait for the other frames before a frame of another shape",
                )
            closed = idle.pop(0)
            del self._users[closed]
            self._lanes.pop(closed, None)
            needed = {key for used in self._users for key in self._keys(used)}
            for key in set(self.engines) - needed:
                del self.engines[key]  # its memory is freed with its last user
