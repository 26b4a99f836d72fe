"""Axes of a PyTorch network whose sizes vary: ranges in input sizes, in ``dynamic_shapes`` and in
programs; the axes' names in the ONNX file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError, UsageError
from edgekit.network.ranges import axis_text, parse_axis
from edgekit.pytorch.signature import random_like, tensor_size, type_name
from edgekit.text import listed

if TYPE_CHECKING:
    import onnx

# PyTorch's word for a dimension without an upper bound
_UNBOUNDED = 1 << 31


@dataclass(frozen=True)
class FreeAxis:
    """An axis of an input whose size varies.

    Attributes:
        position: The input's index among the tensors.
        axis: The axis.
        name: Its name in the file; axes of the same size share it.
        low: The smallest size.
        best: The example's size.
        high: The largest size.
    """

    position: int
    axis: int
    name: str
    low: int
    best: int
    high: int


def ranges_in(inputs: Mapping[str, str]) -> tuple[dict[str, str], dict[str, dict[int, Any]]]:
    """Splits sizes such as ``{"x": "1x3x320..640x224:float32"}``.

    Returns:
        The best sizes in the form of ``signature.random_example``, and PyTorch's dimensions by
        input and axis.

    Raises:
        UsageError: ``torch.inputs``: a range is invalid.
    """
    from torch.export import Dim

    plain: dict[str, str] = {}
    free: dict[str, dict[int, Any]] = {}
    for name, text in inputs.items():
        sizes, colon, kind = text.partition(":")
        found = []
        for axis, size in enumerate(sizes.split("x")):
            if ".." not in size:
                found.append(size)
                continue
            try:
                low, best, high = parse_axis(size)
            except ValueError as error:
                raise UsageError(
                    f"{text!r} is not the size of an input: {error}",
                    code="torch.inputs",
                    where=name,
                    hint="write sizes and ranges like 1x3x320..640x224:float32",
                ) from None
            # PyTorch treats a size of 1 as constant
            found.append(str(best if best > 1 else high))
            if low < high:
                word = "batch" if axis == 0 else f"{_plain_word(name)}_{axis}"
                free.setdefault(name, {})[axis] = Dim(word, min=low, max=high)
        plain[name] = "x".join(found) + colon + kind
    return plain, free


def _plain_word(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def dynamic_by_name(given: object, tensors: Mapping[str, Any]) -> dict[str, dict[int, Any]]:
    """Returns ``dynamic_shapes`` of flat tensors: dimensions by input and axis.

    Args:
        given: In the form of ``torch.export.export``: by name, or in order.
        tensors: The example's tensors by name, in order.

    Raises:
        UsageError: ``torch.dynamic_shapes``: it has another form, a dimension without bounds, or an
            example outside the bounds.
    """
    from torch.export import Dim

    rows: list[tuple[Any, Any]] = []
    if isinstance(given, Mapping):
        rows = list(given.items())
    elif isinstance(given, list | tuple) and len(given) <= len(tensors):
        rows = list(zip(tensors, given, strict=False))
    elif given is not None:
        raise _no_dimensions(f"{given!r} has no axes by input", tensors)
    found: dict[str, dict[int, Any]] = {}
    for name, form in rows:
        axes = dict(enumerate(form)) if isinstance(form, list | tuple) else form or {}
        if name not in tensors or not isinstance(axes, Mapping):
            raise _no_dimensions(f"{name!r} is no tensor with axes", tensors)
        for axis, dim in axes.items():
            if dim is None:
                continue
            if not isinstance(axis, int) or not isinstance(dim, Dim):
                raise _no_dimensions(f"axis {axis} of {name!r} is {dim!r}, no Dim", tensors)
            _refuse_example(name, axis, dim, tensors[name])
            found.setdefault(name, {})[axis] = dim
    return found


def _refuse_example(name: str, axis: int, dim: Any, tensor: Any) -> None:
    """Refuses an example outside the range of its axis; a derived dimension has no range."""
    own = vars(dim)
    low, high = own.get("min"), own.get("max")
    size = tensor.shape[axis] if axis < len(tensor.shape) else None
    if size is None or not (isinstance(low, int) and isinstance(high, int)):
        return
    if not low <= size <= high:
        raise UsageError(
            f"axis {axis} of {name!r} is {size} in the example, but {low}..{high} in its Dim",
            code="torch.dynamic_shapes",
            where=name,
            hint="give an example within the range, or a wider range",
        )


def _no_dimensions(what: str, tensors: Mapping[str, Any]) -> UsageError:
    sizes = listed(f"{name} {tensor_size(tensor)}" for name, tensor in tensors.items())
    return UsageError(
        f"dynamic_shapes: {what}",
        code="torch.dynamic_shapes",
        hint=f'give {{"{next(iter(tensors))}": {{0: torch.export.Dim("batch", min=1, max=8)}}}}, '
        f"or leave dynamic_shapes out (the example's sizes: {sizes})",
    )


def free_axes(
    program: Any, tensors: Sequence[Any], given: Mapping[str, Mapping[int, Any]]
) -> tuple[FreeAxis, ...]:
    """Returns the varying axes of a program.

    Args:
        program: The ``torch.export`` program.
        tensors: The example's tensors.
        given: Dimensions by input and axis, for the axes' names, which a program does not keep.

    Raises:
        ModelError: ``torch.dynamic_shapes``: an axis without an upper bound.
    """
    names: dict[str, str] = {}
    found = []
    for position, (name, shape) in enumerate(_shapes(program)):
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                continue
            low, high = _bounds(program, size.node.expr)
            # an optimisation profile of TensorRT needs a largest size
            if high >= _UNBOUNDED:
                raise ModelError(
                    f"axis {axis} of input {name!r} has no largest size",
                    code="torch.dynamic_shapes",
                    where=name,
                    hint='give it bounds: torch.export.Dim("batch", min=1, max=8)',
                )
            own = given.get(name, {}).get(axis)
            word = "batch" if axis == 0 else f"{_plain_word(name)}_{axis}"
            # axes with PyTorch's same symbol have one size, so one name
            word = names.setdefault(str(size), own.__name__ if own is not None else word)
            best = int(tensors[position].shape[axis])
            found.append(FreeAxis(position, axis, word, low, best, high))
    return tuple(found)


def _shapes(program: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yields the names and sizes of a program's input tensors."""
    import torch

    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if name in nodes else None
        if isinstance(value, torch.Tensor):
            yield name, value.shape


def _bounds(program: Any, size: Any) -> tuple[int, int]:
    """Returns the smallest and the largest value of a size, which must grow with its symbols."""
    ends = []
    for end in ("lower", "upper"):
        values = {
            symbol: getattr(program.range_constraints[symbol], end)
            for symbol in size.free_symbols
            if symbol in program.range_constraints
        }
        value = size.subs(values)
        whole = value.is_Integer and len(values) == len(size.free_symbols)
        ends.append(min(int(value), _UNBOUNDED) if whole else _UNBOUNDED)
    return ends[0] if ends[0] < _UNBOUNDED else 1, ends[1]


def ranges_text(program: Any, tensor: Any) -> str:
    """Returns the sizes and ranges that a program accepts: "1..8x3x224x224:float32"."""
    sizes = [
        str(size) if isinstance(size, int) else "{}..{}".format(*_bounds(program, size.node.expr))
        for size in tensor.shape
    ]
    return f"{'x'.join(sizes)}:{type_name(tensor)}"


def is_in_range(program: Any, size: Any, given: int) -> bool:
    """Returns True if a size is within the range of a program's symbolic size."""
    low, high = _bounds(program, size.node.expr)
    return low <= given <= high


def name_axes(proto: onnx.ModelProto, program: Any, axes: Sequence[FreeAxis]) -> None:
    """Replaces PyTorch's symbols of a file's open axes by the axes' names."""
    words = {}
    shapes = list(_shapes(program))
    for axis in axes:
        size = str(shapes[axis.position][1][axis.axis])
        words[size] = axis.name
        proto.graph.input[axis.position].type.tensor_type.shape.dim[axis.axis].dim_param = axis.name
    # a derived size, such as 2*s0, has no name: it changes with the symbol in it
    plain = {text: name for text, name in words.items() if text.isidentifier()}
    if not plain:
        return
    symbols = re.compile(rf"\b({'|'.join(map(re.escape, plain))})\b")
    for value in (*proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = symbols.sub(lambda found: plain[found[1]], dim.dim_param)


def dimension_texts(axes: Sequence[FreeAxis]) -> dict[str, str]:
    """Returns the range of each named axis, in the form of a configuration's ``dimensions``."""
    return {axis.name: axis_text(axis.low, axis.best, axis.high) for axis in axes}


def extremes(tensors: Sequence[Any], axes: Sequence[FreeAxis]) -> Iterator[tuple[Any, ...]]:
    """Yields random inputs of the smallest and of the largest sizes."""
    import torch

    generator = torch.Generator().manual_seed(3)
    for end in ("low", "high"):
        made = []
        for position, tensor in enumerate(tensors):
            shape = list(tensor.shape)
            for axis in axes:
                if axis.position == position:
                    shape[axis.axis] = getattr(axis, end)
            # integers such as indices stay within the example's range
            above = 0 if tensor.dtype.is_floating_point else int(tensor.max()) + 1
            sized = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
            made.append(random_like(sized, generator, above))
        yield tuple(made)


def refused_range(error: Exception) -> ModelError | None:
    """Returns PyTorch's message about a range that a module does not support; None for other
    failures.
    """
    text = str(error)
    # PyTorch writes "Constraints" or "constraints"
    if "onstraints violated" not in text:
        return None
    lines = [line.strip(" -") for line in text.splitlines()]
    why = next((line for line in lines if line.startswith(("You marked", "Not all", "The"))), "")
    begin = lines.index("Suggested fixes:") + 1 if "Suggested fixes:" in lines else len(lines)
    fixes = []
    for line in lines[begin:]:
        if not line:
            break
        fixes.append(line)
    return ModelError(
        f"the network does not take the range: {why.split(' If ')[0].rstrip('.')}",
        code="torch.dynamic_shapes",
        hint=f"PyTorch suggests {'; '.join(fixes)}" if fixes else "give one size",
    )


def failed_at(tensors: Mapping[str, Any], reason: str) -> ModelError:
    """Returns the error of a network that fails at an end of its range."""
    sizes = ", ".join(f"{name} {tensor_size(tensor)}" for name, tensor in tensors.items())
    return ModelError(
        f"the network fails at an end of its range, {sizes}: {reason}",
        code="torch.dynamic_shapes",
        hint="give a smaller range",
    )
