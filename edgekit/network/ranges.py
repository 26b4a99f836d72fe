"""Ranges of input sizes: their notation in a configuration, and the resulting shape request.

``network.shape_requests`` reads the notation for a file's inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, Protocol

from edgekit.errors import UsageError

#: A shape from a caller or the command line: "1x3x320..640x224", or a YAML value.
GivenShape = (
    str
    | Sequence["int | str"]
    | Mapping[str, Sequence[int]]
    | Sequence[Mapping[str, Sequence[int]]]
)
#: A static shape by input.
Sizes = Mapping[str, tuple[int, ...]]
#: A size, or a range of sizes as text: "320..1280" or "320..640..1280".
Axis = int | str

_RANGE = re.compile(r"(\d{1,10})\.\.(?:(\d{1,10})\.\.)?(\d{1,10})")


@dataclass(frozen=True)
class Range:
    """The smallest, optimum and largest sizes of an input: TensorRT's min, opt and max."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    def holds(self, sizes: Sequence[int]) -> bool:
        """Returns True if sizes are within the range."""
        return len(sizes) == len(self.min) and all(
            low <= size <= high for low, size, high in zip(self.min, sizes, self.max, strict=True)
        )

    @property
    def is_static(self) -> bool:
        """True if the range has a single shape."""
        return self.min == self.max

    def __str__(self) -> str:
        return "x".join(map(axis_text, self.min, self.opt, self.max))


@dataclass(frozen=True)
class ValueRange(Range):
    """The smallest, optimum and largest values of an input whose values are sizes.

    Attributes:
        dtype: "int32" or "int64".
        shape: The input's shape: one axis, or none.
    """

    dtype: str = "int64"
    shape: tuple[int, ...] = ()


#: A range of values by input whose values are sizes.
Values = Mapping[str, ValueRange]
#: A range for every input with dynamic sizes: a TensorRT optimisation profile.
Profile = Mapping[str, Range]


def sizes_at(profile: Profile, end: Literal["min", "opt", "max"]) -> Sizes:
    """Returns the smallest, optimum or largest sizes of a profile's inputs."""
    return {name: getattr(ends, end) for name, ends in profile.items()}


def elements(sizes: Sizes) -> int:
    """Returns the total number of elements of all inputs."""
    return sum(prod(shape) for shape in sizes.values())


def fits_into(sizes: Sizes, other: Sizes) -> bool:
    """Returns True if no size exceeds that of the other shapes, which have the same axes."""
    return all(
        name in other
        and len(shape) == len(other[name])
        and all(size <= most for size, most in zip(shape, other[name], strict=True))
        for name, shape in sizes.items()
    )


class RangeForm(Protocol):
    """A range in a configuration; without ``opt`` the optimum is the largest sizes."""

    @property
    def min(self) -> Sequence[int]:
        """The smallest sizes."""

    @property
    def opt(self) -> Sequence[int] | None:
        """The optimum sizes; None for the largest."""

    @property
    def max(self) -> Sequence[int]:
        """The largest sizes."""


class BucketCount(Protocol):
    """The number of buckets that are chosen from the sizes of the data."""

    @property
    def count(self) -> int:
        """The number."""


#: A shape in a configuration: sizes and ranges by axis, a range, or a range for each profile.
ShapeForm = Sequence[Axis] | RangeForm | Sequence[RangeForm]
#: Values of an input in a configuration: fixed values, or a range.
ValueForm = Sequence[int] | RangeForm
#: A bucket in a configuration: "640x960" (height, width), or shapes by input.
BucketForm = str | Mapping[str, Sequence[int]]


class ShapeSection(Protocol):
    """The keys of a configuration's "model" that determine the inputs' sizes."""

    @property
    def shapes(self) -> Mapping[str, ShapeForm]:
        """Shapes by input."""

    @property
    def values(self) -> Mapping[str, ValueForm]:
        """Values of inputs whose values are sizes."""

    @property
    def dimensions(self) -> Mapping[str, Axis | Sequence[int]]:
        """Sizes by name of a dynamic axis; a list has the only allowed sizes."""

    @property
    def buckets(self) -> Sequence[BucketForm] | BucketCount:
        """The listed shapes."""

    @property
    def batch(self) -> int | None:
        """The size of a dynamic batch."""


@dataclass(frozen=True)
class ShapeRequest:
    """The requested input sizes of a network.

    Attributes:
        optimum: The static shape for all steps that need a single shape: the first profile's
            optimum, or the largest bucket if there are only buckets, or else the given sizes.
        profiles: Ranges of the inputs with dynamic sizes; empty if no size has a range.
        buckets: Listed shapes, each within a profile, or any that the file allows if there is no
            profile. Empty for a network with a single shape.
        notes: Assumptions.
        fixed: Values of inputs whose values are sizes; constants in each network with a single
            shape.
        values: Ranges of the values that vary; only the engine for the range accepts other values.
    """

    optimum: Sizes
    profiles: tuple[Profile, ...] = ()
    buckets: tuple[Sizes, ...] = ()
    notes: tuple[str, ...] = ()
    fixed: Sizes = field(default_factory=dict)
    values: Values = field(default_factory=dict)

    @property
    def is_static(self) -> bool:
        """True if the network has a single shape."""
        return not self.profiles and len(self.buckets) < 2

    def led_by_bucket(self) -> ShapeRequest:
        """Returns the request whose optimum is its first bucket.

        If the optimum is not a bucket, the first bucket is the smallest that contains it, or else
        the largest.
        """
        if not self.buckets:
            return self
        own = {name: self.optimum[name] for name in self.buckets[0]}
        ranked = sorted(self.buckets, key=elements)
        holding = [bucket for bucket in ranked if fits_into(own, bucket)]
        first = next((bucket for bucket in self.buckets if bucket == own), None)
        if first is None:
            first = holding[0] if holding else ranked[-1]
        rest = tuple(bucket for bucket in self.buckets if bucket is not first)
        return replace(self, optimum={**self.optimum, **first}, buckets=(first, *rest))

    def find_profile(self, sizes: Sizes) -> int | None:
        """Returns the position of the first profile that contains these sizes; None if none
        does."""
        return next(
            (
                number
                for number, profile in enumerate(self.profiles)
                if all(name in sizes and ends.holds(sizes[name]) for name, ends in profile.items())
            ),
            None,
        )


def parse_axis(text: str) -> tuple[int, int, int]:
    """Reads "320..1280" or "320..640..1280" into smallest, optimum and largest size.

    Without an optimum it is the largest size.

    Raises:
        ValueError: The text has another form, or the sizes are not in this order.
    """
    found = _RANGE.fullmatch(text.replace(" ", ""))
    if found is None:
        raise ValueError("give a size, or a range such as 320..1280 or 320..640..1280")
    low, high = int(found[1]), int(found[3])
    best = high if found[2] is None else int(found[2])
    if low < 1:
        raise ValueError("the smallest size is 1")
    if low > high:
        raise ValueError(f"the smallest size, {low}, is above the largest, {high}")
    if not low <= best <= high:
        raise ValueError(f"the best size, {best}, is not within {low}..{high}")
    return low, best, high


def parse_shape(text: str) -> list[Axis]:
    """Reads "1x3x320..1280x320..1280": a size or a range for each axis.

    Raises:
        ValueError: The text has another form.
    """
    axes: list[Axis] = []
    for part in text.lower().split("x"):
        if part.isdecimal() and 0 < int(part) < 1 << 31:
            axes.append(int(part))
        elif ".." in part:
            parse_axis(part)
            axes.append(part)
        else:
            raise ValueError(f"{text!r} is not SIZExSIZE, such as 1x3x224x224 or 1x3x320..640x224")
    return axes


def read_shapes(options: Iterable[str]) -> dict[str, GivenShape]:
    """Reads shapes such as "x:1x3x224x224" and "x:1x3x320..640x224".

    An input's name may contain colons. An input that is given several times has as many profiles.

    Raises:
        UsageError: A text has another form.
    """
    found: dict[str, list[list[Axis]]] = {}
    for option in options:
        name, _, sizes = option.rpartition(":")
        fault = "" if name else "is not NAME:SIZExSIZE"
        try:
            axes = parse_shape(sizes)
        except ValueError as error:
            fault = f"is no shape: {error}" if ".." in sizes else "is not NAME:SIZExSIZE"
        if fault:
            raise UsageError(
                f"--shape {option!r} {fault}",
                hint="--shape input:1x3x224x224, or with ranges: --shape input:1x3x320..1280x640",
            )
        found.setdefault(name, []).append(axes)
    shapes: dict[str, GivenShape] = {}
    for name, several in found.items():
        if len(several) == 1:
            shapes[name] = several[0]
            continue
        ranges = [read_ranges(axes)[0] for axes in several]
        shapes[name] = [
            {"min": [*each.min], "opt": [*each.opt], "max": [*each.max]} for each in ranges
        ]
    return shapes


def axis_text(low: int, best: int, high: int) -> str:
    """Returns the notation that ``parse_axis`` reads, or the size if all three are equal."""
    if low == high:
        return str(low)
    return f"{low}..{high}" if best == high else f"{low}..{best}..{high}"


def check_range(
    low: Sequence[int], best: Sequence[int] | None, high: Sequence[int], what: str = "sizes"
) -> None:
    """Checks that sizes, or values, are a range.

    Raises:
        ValueError: They differ in length, or are not in the order min, opt, max.
    """
    if len(low) != len(high) or (best is not None and len(best) != len(low)):
        raise ValueError(f"min, opt and max have different numbers of {what}")
    at = "axis" if what == "sizes" else "value"
    for axis, (least, most) in enumerate(zip(low, high, strict=True)):
        if least > most:
            raise ValueError(f"min is above max: {least} > {most} ({at} {axis})")
        if best is not None and not least <= best[axis] <= most:
            raise ValueError(f"opt is not within min and max: {best[axis]} ({at} {axis})")


def read_ranges(form: ShapeForm) -> tuple[Range, ...]:
    """Returns the ranges of a shape in the configuration, one for each profile."""
    if not isinstance(form, Sequence):
        return (_read_range(form),)
    ranges = [_read_range(part) for part in form if not isinstance(part, int | str)]
    if ranges:
        return tuple(ranges)
    axes = [axis_bounds(part) for part in form if isinstance(part, int | str)]
    return (Range(*(tuple(axis[i] for axis in axes) for i in range(3))),)


def _read_range(form: RangeForm) -> Range:
    return Range(
        tuple(form.min), tuple(form.max if form.opt is None else form.opt), tuple(form.max)
    )


def axis_bounds(axis: Axis | Sequence[int]) -> tuple[int, int, int]:
    """Returns the smallest, optimum and largest size of an axis; a list has the only sizes."""
    if isinstance(axis, int):
        return axis, axis, axis
    if isinstance(axis, str):
        return parse_axis(axis)
    # a list has no best size: its largest is the optimum
    return min(axis), max(axis), max(axis)


def is_ranged(section: ShapeSection) -> bool:
    """Returns True if a configuration has more than static shapes."""
    forms = (*section.shapes.values(), *section.values.values())
    return bool(section.dimensions or section.buckets) or any(map(varies, forms))


def varies(form: ShapeForm) -> bool:
    """Returns True if a shape has a range or several profiles."""
    found = read_ranges(form)
    return len(found) > 1 or not found[0].is_static


def static_shapes(section: ShapeSection) -> Sizes:
    """Returns the static shapes of a configuration, with the optimum sizes of ranges."""
    return {name: read_ranges(form)[0].opt for name, form in section.shapes.items()}
