"""Reads a configuration's ``shapes``, ``dimensions`` and ``buckets`` for a file's inputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx

from edgekit.errors import ModelError
from edgekit.network import protos
from edgekit.network.loading.axes import is_batch, is_fixed, picture_axis
from edgekit.network.loading.validation import input_shapes
from edgekit.network.protos import nearest
from edgekit.network.ranges import (
    BucketForm,
    Profile,
    Range,
    ShapeRequest,
    ShapeSection,
    Sizes,
    ValueRange,
    Values,
    axis_bounds,
    axis_text,
    elements,
    is_ranged,
    parse_axis,
    read_ranges,
    sizes_at,
    static_shapes,
    varies,
)
from edgekit.text import counted

_WHOLE = ("int32", "int64")
# a DLA core holds 16 loadables, so more networks of a model are not useful
_MOST_BUCKETS = 64
# sizes of pictures are rounded up to multiples of the usual stride of detectors
_STEP = 32
# most sizes to try for each axis of a bucket, since all pairs are tried
_MOST_CANDIDATES = 24


def shape_request(
    section: ShapeSection,
    inputs: Sequence[onnx.ValueInfoProto],
    data: Sequence[tuple[int, int]] | None = None,
) -> ShapeRequest:
    """Returns a configuration's shape request for a file's inputs.

    Args:
        section: The configuration's "model".
        inputs: The file's inputs, without initializers.
        data: Height and width of the calibration data's pictures; None without data.

    Raises:
        ModelError: "model.dimension", "model.profiles", "model.bucket", "model.values", or an error
            of ``validation.input_shapes``. ``where`` is the key: "model.shapes.x".
    """
    values = _read_values(section, inputs)
    fixed = {name: value.opt for name, value in values.items()}
    if not is_ranged(section):
        return ShapeRequest(static_shapes(section), fixed=fixed)
    varying = {name: value for name, value in values.items() if not value.is_static}
    left = [value for value in inputs if value.name not in values]
    request = _Request(section, left, varies=bool(varying)).build(data)
    return replace(request, fixed=fixed, values=varying)


def _read_values(section: ShapeSection, inputs: Sequence[onnx.ValueInfoProto]) -> Values:
    """Returns the values of inputs whose values are sizes.

    Raises:
        ModelError: "model.unknown_input" or "model.values".
    """
    known, found = {value.name: value.type.tensor_type for value in inputs}, {}
    for name, form in section.values.items():
        where, kind = f"model.values.{name}", known.get(name)
        if kind is None:
            raise ModelError(
                f"values are given for {name!r}, which is not an input of the network",
                code="model.unknown_input",
                where=where,
                hint=f"{nearest(name, known)} the inputs are: {', '.join(known)}".strip(),
            )
        dims, (given,) = kind.shape.dim, read_ranges(form)
        dtype = protos.dtype_name(kind.elem_type)
        fault = ""
        if dtype not in _WHOLE:
            fault = f"is {dtype}, and only whole numbers can be sizes"
        elif not kind.HasField("shape") or len(dims) > 1 or not all(map(is_fixed, dims)):
            fault = f"is [{', '.join(map(_label, dims))}], and not one axis of known size"
        elif len(given.opt) != math.prod(dim.dim_value for dim in dims):
            count = math.prod(dim.dim_value for dim in dims)
            fault = f"has {counted(count, 'value')}, and {len(given.opt)} are given"
        if fault:
            raise ModelError(
                f"input {name!r} {fault}",
                code="model.values",
                where=where,
                hint="model.values is for inputs that hold sizes, such as those of a Resize: one "
                "value for each element, or min, opt and max; others are data of each frame",
            )
        shape = tuple(int(dim.dim_value) for dim in dims)
        found[name] = ValueRange(given.min, given.opt, given.max, dtype, shape)
    return found


def refuse_outside_export(
    request: ShapeRequest,
    inputs: Sequence[onnx.ValueInfoProto],
    dimensions: Mapping[str, str],
    section: ShapeSection,
) -> None:
    """Refuses sizes outside the export of a PyTorch network, whose code may be invalid there.

    Args:
        request: The sizes.
        inputs: The exported file's inputs.
        dimensions: Ranges of its dynamic axes by name.
        section: The configuration's "model".

    Raises:
        ModelError: "torch.dynamic_shapes".
    """
    bounds = {name: parse_axis(text) for name, text in dimensions.items()}
    asked = [request.optimum, *request.buckets]
    for profile in request.profiles:
        asked += [sizes_at(profile, "min"), sizes_at(profile, "max")]
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        if any(not is_fixed(dim) and dim.dim_param not in bounds for dim in dims):
            continue
        ends = [bounds.get(dim.dim_param) or axis_bounds(int(dim.dim_value)) for dim in dims]
        exported_for = Range(*(tuple(end[i] for end in ends) for i in range(3)))
        for sizes in asked:
            own = sizes.get(value.name, exported_for.opt)
            if not exported_for.holds(own):
                pairs = zip(dims, own, ends, strict=False)
                axis = next(
                    (d.dim_param for d, s, (low, _, high) in pairs if not low <= s <= high), ""
                )
                named = value.name not in section.shapes and axis in section.dimensions
                raise ModelError(
                    f"the network was exported for {value.name}: {exported_for}, and "
                    f"{'x'.join(map(str, own))} is outside",
                    code="torch.dynamic_shapes",
                    where=f"model.dimensions.{axis}" if named else f"model.shapes.{value.name}",
                    hint="export it with a wider range: dynamic_shapes, or model.inputs",
                )


class _Request:
    """A configuration's sizes with their inputs.

    Args:
        section: The configuration's "model".
        inputs: The inputs, without those whose values are given.
        varies: True if given values vary: then there is always a range.
    """

    def __init__(
        self, section: ShapeSection, inputs: Sequence[onnx.ValueInfoProto], *, varies: bool = False
    ) -> None:
        self._varies = varies
        self._section = section
        self._inputs = inputs
        self._dims = {value.name: value.type.tensor_type.shape.dim for value in inputs}
        self._given = {name: read_ranges(form) for name, form in section.shapes.items()}
        self._notes: list[str] = []

    def build(self, data: Sequence[tuple[int, int]] | None) -> ShapeRequest:
        """Returns the request."""
        self._refuse_unknown()
        profiles = [self._profile(number) for number in range(self._profile_count())]
        self._refuse_batch(profiles)
        for profile in profiles:
            # each end must be possible as a static network
            ends = sizes_at(profile, "min"), sizes_at(profile, "opt"), sizes_at(profile, "max")
            for sizes in ends:
                _, notes = input_shapes(self._inputs, sizes, self._section.batch)
                self._notes += [note for note in notes if note not in self._notes]
        ranged = len(profiles) > 1 or any(not sizes.is_static for sizes in profiles[0].values())
        if self._varies:
            ranged = True
            profiles = [{**self._static_inputs(), **profile} for profile in profiles]
        buckets = self._buckets(profiles, ranged, data)
        optimum: Sizes = {name: sizes.opt for name, sizes in profiles[0].items()}
        if ranged and not self._has_range():
            profiles = []  # only the listed sizes are allowed
        if not (ranged and profiles) and buckets:
            optimum = max(buckets, key=elements)
        # shapes of tensors inside the network
        inner = {n: r[0].opt for n, r in self._given.items() if n not in self._dims}
        return ShapeRequest(
            {**inner, **optimum}, tuple(profiles) if ranged else (), buckets, tuple(self._notes)
        )

    def _static_inputs(self) -> dict[str, Range]:
        """Returns the inputs with static sizes in the file."""
        sizes = {
            name: tuple(int(dim.dim_value) for dim in dims)
            for name, dims in self._dims.items()
            if all(map(is_fixed, dims))
        }
        return {name: Range(size, size, size) for name, size in sizes.items()}

    def _has_range(self) -> bool:
        """Returns True if there is a range, not only lists of sizes."""
        return (
            self._varies
            or any(map(varies, self._section.shapes.values()))
            or any(
                isinstance(size, str) and axis_bounds(size)[0] < axis_bounds(size)[2]
                for size in self._section.dimensions.values()
            )
        )

    def _refuse_batch(self, profiles: Sequence[Profile]) -> None:
        """Refuses a batch that conflicts with other sizes, or a range, of the same axis."""
        batch = self._section.batch
        for profile in profiles if batch is not None else ():
            for name, sizes in profile.items():
                for axis, dim in enumerate(self._dims[name]):
                    own = sizes.min[axis], sizes.opt[axis], sizes.max[axis]
                    if is_fixed(dim) or not is_batch(axis, dim) or {*own} == {batch}:
                        continue
                    key = f"model.dimensions.{dim.dim_param}"
                    if dim.dim_param not in self._section.dimensions:
                        key = f"model.shapes.{name}"
                    raise ModelError(
                        f"the batch is {batch} (model.batch) and {axis_text(*own)} ({key})",
                        code="model.batch",
                        where="model.batch",
                        hint=f"give only one; for the best size write {key} with "
                        "SMALLEST..BEST..LARGEST",
                    )

    def _refuse_unknown(self) -> None:
        """Refuses ranges of tensors and names of axes that the file lacks."""
        names = list(self._dims)
        for name, form in self._section.shapes.items():
            if name not in self._dims and varies(form):
                raise ModelError(
                    f"a range is given for {name!r}, which is not an input of the network",
                    code="model.unknown_input",
                    where=f"model.shapes.{name}",
                    hint=f"{nearest(name, names)} the inputs are: {', '.join(names)}".strip(),
                )
        known = {
            dim.dim_param: None
            for dims in self._dims.values()
            for dim in dims
            if dim.dim_param and not is_fixed(dim)
        }
        for name in self._section.dimensions:
            if name not in known:
                listed = f"the open axes are: {', '.join(known)}"
                if not known:
                    listed = "the file names no open axis; give model.shapes"
                raise ModelError(
                    f"no open axis of the network has the name {name!r}",
                    code="model.dimension",
                    where=f"model.dimensions.{name}",
                    hint=f"{nearest(name, list(known))} {listed}".strip(),
                )

    def _profile_count(self) -> int:
        """Returns the number of profiles, which is the same for every input with ranges."""
        several = {name: len(ranges) for name, ranges in self._given.items() if len(ranges) > 1}
        most = max(several.values(), default=1)
        for name, ranges in self._given.items():
            if len(ranges) != most and varies(self._section.shapes[name]):
                other = next(first for first, count in several.items() if count == most)
                raise ModelError(
                    f"input {name!r} has {counted(len(ranges), 'profile')}, input {other!r} has "
                    f"{most}",
                    code="model.profiles",
                    where=f"model.shapes.{name}",
                    hint="give each input with a range as many profiles, in the same order",
                )
        return most

    def _profile(self, number: int) -> dict[str, Range]:
        """Returns a profile: a range for each input with dynamic sizes or a given shape."""
        given = {
            # a single range, or a static shape, counts for each profile
            name: ranges[min(number, len(ranges) - 1)]
            for name, ranges in self._given.items()
            if name in self._dims
        }
        bounds = {name: axis_bounds(axis) for name, axis in self._section.dimensions.items()}
        for name, sizes in given.items():
            self._refuse_other_rank(name, sizes)
            for axis, dim in enumerate(self._dims[name]):
                own = sizes.min[axis], sizes.opt[axis], sizes.max[axis]
                self._refuse_other_size(name, axis, dim, own)
                if dim.dim_param and bounds.setdefault(dim.dim_param, own) != own:
                    raise ModelError(
                        f"axis {dim.dim_param!r} is {axis_text(*bounds[dim.dim_param])}, and "
                        f"{axis_text(*own)} in input {name!r}",
                        code="model.dimension",
                        where=f"model.shapes.{name}",
                        hint="one name of an axis has one size: give the same range",
                    )
        found = dict(given)
        for value in self._inputs:
            dims = self._dims[value.name]
            if value.name in given or all(map(is_fixed, dims)):
                continue
            axes = [self._axis(i, dim, bounds) for i, dim in enumerate(dims)]
            known = [axis for axis in axes if axis is not None]
            if len(known) == len(axes):
                found[value.name] = Range(*(tuple(axis[i] for axis in known) for i in range(3)))
        return {value.name: found[value.name] for value in self._inputs if value.name in found}

    def _axis(
        self,
        position: int,
        dim: onnx.TensorShapeProto.Dimension,
        bounds: Mapping[str, tuple[int, int, int]],
    ) -> tuple[int, int, int] | None:
        """Returns the range of an axis of an input without a given shape; None if unknown."""
        if is_fixed(dim):
            return axis_bounds(int(dim.dim_value))
        if dim.dim_param in bounds:
            return bounds[dim.dim_param]
        if is_batch(position, dim):
            return axis_bounds(self._section.batch or 1)
        # a placeholder: the buckets determine the size
        return axis_bounds(1) if self._section.buckets and not self._given else None

    def _refuse_other_rank(self, name: str, given: Range) -> None:
        value = next(value for value in self._inputs if value.name == name)
        dims = self._dims[name]
        if value.type.tensor_type.HasField("shape") and len(given.min) != len(dims):
            raise ModelError(
                f"the range given for input {name!r}, {given}, has "
                f"{counted(len(given.min), 'dimension')}, but the model's has {len(dims)}: "
                f"[{', '.join(_label(dim) for dim in dims)}]",
                code="model.shape_rank",
                where=f"model.shapes.{name}",
            )

    def _refuse_other_size(
        self,
        name: str,
        axis: int,
        dim: onnx.TensorShapeProto.Dimension,
        bounds: tuple[int, int, int],
    ) -> None:
        """Refuses another size, or a range, for a static axis."""
        if is_fixed(dim) and (bounds[0], bounds[2]) != (dim.dim_value, dim.dim_value):
            open_ = [str(i) for i, other in enumerate(self._dims[name]) if not is_fixed(other)]
            listed = f"open axes of {name!r}: {', '.join(open_)}"
            if not open_:
                listed = f"input {name!r} has no open axis: export the network with dynamic axes"
            raise ModelError(
                f"axis {axis} of input {name!r} is {dim.dim_value} in the file and cannot be "
                f"{axis_text(*bounds)}",
                code="model.shape_conflict",
                where=f"model.shapes.{name}",
                hint=listed,
            )

    # Buckets.

    def _buckets(
        self, profiles: list[dict[str, Range]], ranged: bool, data: Sequence[tuple[int, int]] | None
    ) -> tuple[Sizes, ...]:
        """Returns the listed shapes.

        Raises:
            ModelError: "model.bucket".
        """
        forms = self._section.buckets
        best = [sizes_at(profile, "opt") for profile in profiles]
        found: list[Sizes] = []
        if not isinstance(forms, Sequence):
            found = self._buckets_from_data(forms.count, profiles, best[0], data)
        elif forms:
            found = [self._read_bucket(number, form, best[0]) for number, form in enumerate(forms)]
        elif any(not isinstance(size, int | str) for size in self._section.dimensions.values()):
            found = list(self._size_combinations(best[0]))
        elif ranged:
            self._notes.append(
                "no buckets are listed: the DLA gets the best shape of each profile (model.buckets "
                "lists others)"
            )
            found = list(best)
        unique: list[Sizes] = []
        for number, bucket in enumerate(found):
            self._refuse_outside_profiles(number, bucket, profiles if ranged else [])
            if bucket not in unique:
                unique.append(bucket)
        return tuple(unique)

    def _size_combinations(self, best: Sizes) -> Iterator[Sizes]:
        """Yields the combinations of the sizes that ``dimensions`` lists."""
        listed = {
            name: tuple(dict.fromkeys(axis))
            for name, axis in self._section.dimensions.items()
            if not isinstance(axis, int | str)
        }
        most = math.prod(map(len, listed.values()))
        if most > _MOST_BUCKETS:
            raise ModelError(
                f"the listed sizes make {most} shapes (limit {_MOST_BUCKETS})",
                code="model.bucket",
                where="model.dimensions",
                hint="list fewer sizes, or the shapes themselves with model.buckets",
            )
        for sizes in itertools.product(*listed.values()):
            yield self._with_dimensions(best, dict(zip(listed, sizes, strict=True)))

    def _with_dimensions(self, sizes: Sizes, bound: Mapping[str, int]) -> Sizes:
        """Returns sizes with the given sizes of named dynamic axes."""
        return {
            name: tuple(
                bound.get(dim.dim_param, size) if not is_fixed(dim) else size
                for dim, size in zip(self._dims[name], shape, strict=True)
            )
            for name, shape in sizes.items()
        }

    def _read_bucket(self, number: int, form: BucketForm, best: Sizes) -> Sizes:
        where = f"model.buckets.{number}"
        if isinstance(form, str):
            height, width = map(int, form.split("x"))
            return self._picture_bucket(height, width, best, where)
        bound: dict[str, int] = {}
        for name, sizes in form.items():
            if name not in self._dims:
                names = list(self._dims)
                raise ModelError(
                    f"a bucket has a shape for {name!r}, which is not an input of the network",
                    code="model.unknown_input",
                    where=where,
                    hint=f"{nearest(name, names)} the inputs are: {', '.join(names)}".strip(),
                )
            self._refuse_bucket_shape(name, sizes, where)
            for dim, size in zip(self._dims[name], sizes, strict=True):
                if dim.dim_param and not is_fixed(dim):
                    bound[dim.dim_param] = size
        given = {name: tuple(sizes) for name, sizes in form.items()}
        return {**self._with_dimensions(best, bound), **given}

    def _refuse_bucket_shape(self, name: str, sizes: Sequence[int], where: str) -> None:
        dims = self._dims[name]
        wrong = len(dims) != len(sizes) or any(
            is_fixed(dim) and dim.dim_value != size for dim, size in zip(dims, sizes, strict=False)
        )
        if wrong:
            raise ModelError(
                f"a bucket gives input {name!r} the shape {list(sizes)}, but the file has "
                f"[{', '.join(map(_label, dims))}]",
                code="model.bucket",
                where=where,
                hint="only the open axes can be set",
            )

    def _picture_input(self, where: str) -> tuple[str, int]:
        """Returns the picture input, and the axis of its height."""
        found = []
        for name, dims in self._dims.items():
            height = picture_axis(dims)
            if height is not None and not all(map(is_fixed, dims[height : height + 2])):
                found.append((name, height))
        if len(found) != 1:
            names = ", ".join(name for name, _ in found) or "none"
            raise ModelError(
                f"HEIGHTxWIDTH is for a network with one picture of open size; inputs of that kind:"
                f" {names}",
                code="model.bucket",
                where=where,
                hint="give the shapes by input: {x: [1, 3, 640, 640]}",
            )
        return found[0]

    def _picture_bucket(self, height: int, width: int, best: Sizes, where: str) -> Sizes:
        name, first = self._picture_input(where)
        sizes = list(best[name])
        sizes[first : first + 2] = height, width
        self._refuse_bucket_shape(name, sizes, where)
        pairs = zip(self._dims[name][first : first + 2], (height, width), strict=True)
        bound = {dim.dim_param: size for dim, size in pairs if dim.dim_param}
        return {**self._with_dimensions(best, bound), name: tuple(sizes)}

    def _buckets_from_data(
        self,
        count: int,
        profiles: list[dict[str, Range]],
        best: Sizes,
        data: Sequence[tuple[int, int]] | None,
    ) -> list[Sizes]:
        """Returns buckets for the sizes of the data."""
        where = "model.buckets"
        if not data:
            raise ModelError(
                f"{counted(count, 'bucket')} cannot be chosen: there is no data with sizes",
                code="model.bucket",
                where=where,
                hint="give calibration.data (a folder of images), or list the buckets",
            )
        name, first = self._picture_input(where)
        ranges = [profile[name] for profile in profiles]
        low = tuple(min(sizes.min[axis] for sizes in ranges) for axis in (first, first + 1))
        high = tuple(max(sizes.max[axis] for sizes in ranges) for axis in (first, first + 1))
        sides = buckets_for([_fit_size(size, low, high) for size in data], count, low, high)
        return [self._picture_bucket(*side, best, where) for side in sides]

    def _refuse_outside_profiles(
        self, number: int, bucket: Sizes, profiles: list[dict[str, Range]]
    ) -> None:
        """Refuses a bucket outside all profiles."""
        # raises the error of sizes that the file does not allow
        input_shapes(self._inputs, bucket, self._section.batch)
        if not profiles or ShapeRequest({}, tuple(profiles)).find_profile(bucket) is not None:
            return
        shown = "; ".join(", ".join(f"{n}: {sizes}" for n, sizes in p.items()) for p in profiles)
        sizes = ", ".join(f"{n}: {'x'.join(map(str, shape))}" for n, shape in bucket.items())
        raise ModelError(
            f"the bucket {sizes} is in no profile",
            code="model.bucket",
            where=f"model.buckets.{number}",
            hint=f"list a shape within {shown}, or widen the range",
        )


def _label(dim: onnx.TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if is_fixed(dim) else dim.dim_param or "?"


def _fit_size(
    size: tuple[int, int], low: tuple[int, ...], high: tuple[int, ...]
) -> tuple[int, int]:
    """Returns the size of a picture reduced to fit into the range."""
    factor = min(1.0, high[0] / size[0], high[1] / size[1])
    height, width = (
        max(round(side * factor), least) for side, least in zip(size, low, strict=True)
    )
    return height, width


def buckets_for(
    sizes: Sequence[tuple[int, int]], count: int, low: Sequence[int], high: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns heights and widths of buckets for pictures of these sizes with little padding.

    Each picture goes to the bucket with the least area that contains it; the sum of these areas is
    reduced by exchanging a bucket at a time. Every picture fits into a bucket.

    Args:
        sizes: Height and width of each picture, within ``low`` and ``high``.
        count: Maximum number of buckets.
        low: Smallest height and width.
        high: Largest height and width.
    """
    # rounded up to the stride, but never beyond the range
    steps = [
        tuple(min(-(-side // _STEP) * _STEP, most) for side, most in zip(size, high, strict=True))
        for size in sizes
    ]
    sides = []
    for axis in range(2):
        different = sorted({step[axis] for step in steps}, reverse=True)
        # with the largest, and few enough to try all pairs
        sides.append(different[:: -(-len(different) // _MOST_CANDIDATES)])
    heights, widths = sides
    candidates = list(itertools.product(heights, widths))
    # equal sizes are counted once: data sets have few different ones
    pictures: dict[tuple[int, ...], int] = {}
    for step in steps:
        pictures[step] = pictures.get(step, 0) + 1

    def bucket_area(size: tuple[int, ...], chosen: Sequence[tuple[int, int]]) -> float:
        return min((h * w for h, w in chosen if h >= size[0] and w >= size[1]), default=math.inf)

    def waste(chosen: Sequence[tuple[int, int]]) -> float:
        return sum(number * bucket_area(size, chosen) for size, number in pictures.items())

    def best_with(others: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [*others, min(candidates, key=lambda candidate: waste([*others, candidate]))]

    # the largest first: every picture fits from the start
    chosen = [(max(heights), max(widths))]
    while len(chosen) < count and waste(more := best_with(chosen)) < waste(chosen):
        chosen = more
    better = True
    # each exchange reduces the area, so this ends
    while better:
        better = False
        for position in range(len(chosen)):
            other = best_with(chosen[:position] + chosen[position + 1 :])
            if waste(other) < waste(chosen):
                chosen, better = other, True
    # an exchange may leave a bucket without pictures
    used = {bucket_area(size, chosen) for size in pictures}
    chosen = [bucket for bucket in chosen if bucket[0] * bucket[1] in used]
    return sorted(chosen, key=lambda bucket: (bucket[0] * bucket[1], bucket), reverse=True)
