"""Ranges of input sizes: their spellings in a configuration, and what a network is asked for.

``network.shape_requests`` reads the spellings for a file's inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, Protocol

from edgekit.errors import UsageError

#: A shape as a caller or the command line gives it: "1x3x320..640x224", or what YAML has.
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
    """The smallest, the best and the largest sizes of an input: TensorRT's min, opt and max."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    def holds(self, sizes: Sequence[int]) -> bool:
        """Says whether sizes are within the range."""
        return len(sizes) == len(self.min) and all(
            low <= size <= high for low, size, high in zip(self.min, sizes, self.max, strict=True)
        )

    @property
    def is_static(self) -> bool:
        """Whether it is one shape."""
        return self.min == self.max

    def __str__(self) -> str:
        return "x".join(map(axis_text, self.min, self.opt, self.max))


@dataclass(frozen=True)
class ValueRange(Range):
    """The smallest, best and largest values of an input that holds sizes.

    Attributes:
        dtype: "int32" or "int64".
        shape: Of the input: one axis, or none.
    """

    dtype: str = "int64"
    shape: tuple[int, ...] = ()


#: A range of values by input that holds sizes.
Values = Mapping[str, ValueRange]
#: A range for every input with open sizes: an optimisation profile of TensorRT.
Profile = Mapping[str, Range]


def sizes_at(profile: Profile, end: Literal["min", "opt", "max"]) -> Sizes:
    """Returns the smallest, best or largest sizes of a profile's inputs."""
    return {name: getattr(one, end) for name, one in profile.items()}


def elements(sizes: Sizes) -> int:
    """Returns how many elements all inputs have together."""
    return sum(prod(shape) for shape in sizes.values())


def fits_into(sizes: Sizes, other: Sizes) -> bool:
    """Whether no size of any input exceeds that of the other shape, which has the same axes."""
    return all(
        name in other
        and len(shape) == len(other[name])
        and all(size <= most for size, most in zip(shape, other[name], strict=True))
        for name, shape in sizes.items()
    )


class RangeForm(Protocol):
    """A range as a configuration has it; ``opt`` is the largest sizes when None."""

    @property
    def min(self) -> Sequence[int]:
        """The smallest sizes."""

    @property
    def opt(self) -> Sequence[int] | None:
        """The best sizes."""

    @property
    def max(self) -> Sequence[int]:
        """The largest sizes."""


class BucketCount(Protocol):
    """How many buckets are chosen from the sizes of the data."""

    @property
    def count(self) -> int:
        """The number."""


#: A shape as a configuration has it: sizes and ranges by axis, a range, or one for each profile.
ShapeForm = Sequence[Axis] | RangeForm | Sequence[RangeForm]
#: Values of an input as a configuration has them: these alone, or a range.
ValueForm = Sequence[int] | RangeForm
#: A bucket as a configuration has it: "640x960" (height, width), or shapes by input.
BucketForm = str | Mapping[str, Sequence[int]]


class ShapeSection(Protocol):
    """The keys of a configuration's "model" that say which sizes the inputs have."""

    @property
    def shapes(self) -> Mapping[str, ShapeForm]:
        """Shapes by input."""

    @property
    def values(self) -> Mapping[str, ValueForm]:
        """Values of inputs whose values are sizes."""

    @property
    def dimensions(self) -> Mapping[str, Axis | Sequence[int]]:
        """Sizes by name of an open axis; a list has the only sizes."""

    @property
    def buckets(self) -> Sequence[BucketForm] | BucketCount:
        """The listed shapes."""

    @property
    def batch(self) -> int | None:
        """The batch where it is open."""


@dataclass(frozen=True)
class ShapeRequest:
    """The sizes that a network is asked for.

    Attributes:
        optimum: The static shape that everything goes by that needs one: the first profile's best,
            or the largest bucket where buckets alone are given. Without either the sizes that were
            given.
        profiles: Ranges of the inputs with open sizes; empty where no size has a range.
        buckets: Listed shapes, each within a profile, or anything the file allows where there is no
            profile. Empty for a network of one shape.
        notes: What was assumed.
        fixed: Values of inputs whose values are sizes: constants of every network of one shape.
        values: Ranges of those of them that vary; the engine of the range alone takes others.
    """

    optimum: Sizes
    profiles: tuple[Profile, ...] = ()
    buckets: tuple[Sizes, ...] = ()
    notes: tuple[str, ...] = ()
    fixed: Sizes = field(default_factory=dict)
    values: Values = field(default_factory=dict)

    @property
    def is_static(self) -> bool:
        """Whether the network has one shape."""
        return not self.profiles and len(self.buckets) < 2

    def led_by_bucket(self) -> ShapeRequest:
        """Returns the request whose optimum is its first bucket.

        Where the optimum is no bucket, that is the smallest one that holds it, or the largest.
        """
        if not self.buckets:
            return self
        own = {name: self.optimum[name] for name in self.buckets[0]}
        ranked = sorted(self.buckets, key=elements)
        holding = [one for one in ranked if fits_into(own, one)]
        first = next((one for one in self.buckets if one == own), None)
        if first is None:
            first = holding[0] if holding else ranked[-1]
        rest = tuple(one for one in self.buckets if one is not first)
        return replace(self, optimum={**self.optimum, **first}, buckets=(first, *rest))

    def profile_of(self, sizes: Sizes) -> int | None:
        """Returns the position of the first profile that holds these sizes; None without one."""
        return next(
            (
                number
                for number, profile in enumerate(self.profiles)
                if all(name in sizes and one.holds(sizes[name]) for name, one in profile.items())
            ),
            None,
        )


def parse_axis(text: str) -> tuple[int, int, int]:
    """Reads "320..1280" or "320..640..1280": smallest, best and largest; the best is the largest.

    Raises:
        ValueError: It is neither, or the sizes are not in this order.
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
        ValueError: It is something else.
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

    An input's name may itself have colons. One that is given several times has as many profiles.

    Raises:
        UsageError: One is something else.
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
    return {
        name: several[0] if len(several) == 1 else [_as_mapping(axes) for axes in several]
        for name, several in found.items()
    }


def _as_mapping(axes: Sequence[Axis]) -> dict[str, Sequence[int]]:
    found = ranges_of(axes)[0]
    return {"min": [*found.min], "opt": [*found.opt], "max": [*found.max]}


def axis_text(low: int, best: int, high: int) -> str:
    """Returns the spelling that ``parse_axis`` reads, or the size where there is one."""
    if low == high:
        return str(low)
    return f"{low}..{high}" if best == high else f"{low}..{best}..{high}"


def check_range(
    low: Sequence[int], best: Sequence[int] | None, high: Sequence[int], what: str = "sizes"
) -> None:
    """Refuses sizes, or values, that are no range.

    Raises:
        ValueError: Of different length, or not in the order min, opt, max.
    """
    if len(low) != len(high) or (best is not None and len(best) != len(low)):
        raise ValueError(f"min, opt and max have different numbers of {what}")
    at = "axis" if what == "sizes" else "value"
    for axis, (least, most) in enumerate(zip(low, high, strict=True)):
        if least > most:
            raise ValueError(f"min is above max: {least} > {most} ({at} {axis})")
        if best is not None and not least <= best[axis] <= most:
            raise ValueError(f"opt is not within min and max: {best[axis]} ({at} {axis})")


def ranges_of(form: ShapeForm) -> tuple[Range, ...]:
    """Returns the ranges that a shape of the configuration means, one for each profile."""
    if not isinstance(form, Sequence):
        return (_range_of(form),)
    ranges = [_range_of(one) for one in form if not isinstance(one, int | str)]
    if ranges:
        return tuple(ranges)
    axes = [bounds_of(one) for one in form if isinstance(one, int | str)]
    return (Range(*(tuple(axis[i] for axis in axes) for i in range(3))),)


def _range_of(form: RangeForm) -> Range:
    return Range(tuple(form.min), tuple(form.max if form.opt is None else form.opt),
                 tuple(form.max))  # fmt: skip


def bounds_of(axis: Axis | Sequence[int]) -> tuple[int, int, int]:
    """Returns the smallest, best and largest size of an axis; a list has the only sizes."""
    if isinstance(axis, int):
        return axis, axis, axis
    if isinstance(axis, str):
        return parse_axis(axis)
    return min(axis), max(axis), max(axis)


def is_ranged(section: ShapeSection) -> bool:
    """Says whether a configuration has anything else than static shapes."""
    forms = (*section.shapes.values(), *section.values.values())
    return bool(section.dimensions or section.buckets) or any(map(varies, forms))


def varies(form: ShapeForm) -> bool:
    """Says whether a shape is more than one."""
    found = ranges_of(form)
    return len(found) > 1 or not found[0].is_static


def static_shapes(section: ShapeSection) -> Sizes:
    """Returns the shapes of a configuration without ranges; of others their best sizes."""
    return {name: ranges_of(form)[0].opt for name, form in section.shapes.items()}
