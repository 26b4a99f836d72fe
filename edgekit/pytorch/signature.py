"""The signature of a module's call: arguments, keyword arguments and nested results as flat, named
tensors.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from edgekit.errors import UsageError
from edgekit.pytorch.document import Plain, Structure
from edgekit.text import listed

if TYPE_CHECKING:
    from torch import Tensor

    Values: TypeAlias = np.ndarray | Tensor


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of a call, with exchangeable tensors.

    Attributes:
        names: The tensors' names in order.
        tensors: The example's tensors.
        constants: The other arguments by name; the network is exported with these values.
        nones: The names of arguments that are None.
    """

    names: tuple[str, ...]
    tensors: tuple[Any, ...]
    constants: Mapping[str, object]
    nones: tuple[str, ...]
    _leaves: tuple[Any, ...]
    _tree: Any

    def arguments(self, tensors: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns args and kwargs with other tensors."""
        from torch import Tensor
        from torch.utils import _pytree

        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        args, kwargs = _pytree.tree_unflatten(leaves, self._tree)
        return args, kwargs

    def flat(self, function: Callable[..., Any], result: Result) -> Callable[..., Any]:
        """Returns a function that takes only the tensors and returns a tuple of tensors.

        ``result`` receives the return value of ``function``.
        """

        def forward(*tensors: Any) -> tuple[Any, ...]:
            args, kwargs = self.arguments(tensors)
            return result.take(function(*args, **kwargs))

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        # torch.export and torch.onnx take the inputs' names from it
        parameters = [inspect.Parameter(name, kind) for name in self.names]
        cast(Any, forward).__signature__ = inspect.Signature(parameters)
        return forward


def bind_call(
    parameters: Sequence[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    names: Sequence[str] = (),
) -> Call:
    """Returns a call.

    Args:
        parameters: The names of positional parameters; further arguments are numbered.
        args: Positional arguments: tensors and others, also within lists, tuples and dicts.
        kwargs: Keyword arguments.
        names: Names of all tensors and constants in order, if known; keyword arguments may be in
            another order.

    Raises:
        UsageError: ``torch.inputs``: there is no tensor among the arguments, or a NumPy array.
    """
    import torch
    from torch.utils import _pytree

    paths, tree = _pytree.tree_flatten_with_path((args, dict(kwargs)))
    # a path begins with 0 in `args`, with 1 in `kwargs`
    keys = [_key(path[1]) if _key(path[0]) == "1" else "" for path, _ in paths]
    spare = iter([name for name in names if name not in keys])
    named = unique_names(
        (key if key in names else next(spare, "")) or _name(path, parameters)
        for key, (path, _) in zip(keys, paths, strict=True)
    )
    leaves = [(name, leaf) for name, (_, leaf) in zip(named, paths, strict=True)]
    for name, leaf in leaves:
        _refuse_object(name, leaf)
    tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise UsageError(
            "there is no tensor among the example inputs",
            code="torch.inputs",
            hint="give them: edgekit.export(model, (x,)), with keywords kwargs={...}, or by size: "
            'inputs={"x": "1x3x224x224"}; to a command: --input x=1x3x224x224:float32',
        )
    return Call(
        names=tuple(name for name, _ in tensors),
        tensors=tuple(leaf.detach() for _, leaf in tensors),
        constants={
            name: leaf for name, leaf in leaves if leaf is not None and not torch.is_tensor(leaf)
        },
        nones=tuple(name for name, leaf in leaves if leaf is None),
        _leaves=tuple(leaf for _, leaf in leaves),
        _tree=tree,
    )


def _refuse_object(name: str, leaf: object) -> None:
    """Refuses an array, and an object whose tensors would be fixed in the network."""
    import torch

    if isinstance(leaf, np.ndarray):
        raise UsageError(
            f"input {name!r} is a NumPy array, and PyTorch takes tensors",
            code="torch.inputs",
            where=name,
            hint="give a tensor: torch.from_numpy(array)",
        )
    kept = vars(leaf).values() if hasattr(leaf, "__dict__") and not callable(leaf) else ()
    if isinstance(leaf, torch.Tensor) or not any(map(torch.is_tensor, kept)):
        return
    kind = type(leaf).__qualname__
    known = (
        "torch.export.register_dataclass"
        if dataclasses.is_dataclass(leaf)
        else ("torch.utils._pytree.register_pytree_node")
    )
    raise UsageError(
        f"input {name!r} is an object of {kind}, and PyTorch does not know its tensors",
        code="torch.inputs",
        where=name,
        hint=f"register the class ({known}), or give tensors in lists, tuples and dicts",
    )


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of a function's positional parameters."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in kinds)


def default_values(function: Callable[..., Any]) -> dict[str, Plain]:
    """Returns the default values of arguments, except objects."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    plain = (bool, int, float, str, type(None))
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if isinstance(parameter.default, plain)
    }


def _name(path: Sequence[Any], parameters: Sequence[str]) -> str:
    """Returns the name of a tensor at ``args`` (0) or ``kwargs`` (1), and so on."""
    where, first, *rest = (_key(step) for step in path)
    if where == "0":
        number = int(first)
        first = parameters[number] if number < len(parameters) else f"input_{number}"
    return "_".join((first, *rest))


def _key(step: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(step, attribute):
            return str(getattr(step, attribute))
    return str(step)


def unique_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Returns unique names of letters, digits and underscores."""
    used, found = set(taken), []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "value"
        word, number = plain, 1
        while word in used:
            number += 1
            word = f"{plain}_{number}"
        used.add(word)
        found.append(word)
    return found


class Result:
    """A module's first result, as tensors and the structure around them."""

    def __init__(self, taken: Iterable[str]) -> None:
        """Reserves the names of inputs, which outputs must not have."""
        self._taken = tuple(taken)
        self._paths: list[tuple[str, ...]] = []
        self.names: list[str] = []
        self.value: Any = None
        self.structure = Structure(kind="constant", value=None)

    def take(self, value: Any) -> tuple[Any, ...]:
        """Returns the tensors of a result, by the structure of the first result.

        While a module is traced, returned sizes are also tensors.

        Raises:
            UsageError: ``torch.outputs``: there is no tensor, an object that is no tensor, or a
                tensor of the first result is missing.
        """
        tensors: list[Any] = []
        paths: list[tuple[str, ...]] = []
        structure = _structure(value, (), tensors, paths)
        if not tensors:
            raise UsageError(
                "the module returns no tensor", code="torch.outputs", hint="return tensors"
            )
        # later calls, such as a trace, follow the structure of the first
        if self._paths:
            found = dict(zip(paths, tensors, strict=True))
            lost = [
                name
                for path, name in zip(self._paths, self.names, strict=True)
                if path not in found
            ]
            if lost:
                raise UsageError(
                    f"the module does not return {lost[0]!r} in each call",
                    code="torch.outputs",
                    hint="return the same tensors in each call",
                )
            return tuple(found[path] for path in self._paths)
        self._paths = paths
        self.names = unique_names(map(_output_name, paths), self._taken)
        names = iter(self.names)
        self.structure = _name_tensors(structure, names)
        self.value = value
        return tuple(tensors)

    def like(self, tensors: Iterable[Any]) -> Any:
        """Returns a result of the same classes with other tensors."""
        return _replace_tensors(self.value, iter(tensors))


def _output_name(path: tuple[str, ...]) -> str:
    first = ("output",) if not path or path[0].isdecimal() else ()
    return "_".join((*first, *path))


def _structure(
    value: Any, path: tuple[str, ...], tensors: list[Any], paths: list[tuple[str, ...]]
) -> Structure:
    import torch

    if isinstance(value, torch.Tensor):
        tensors.append(value)
        paths.append(path)
        return Structure(kind="tensor")
    if value is None or isinstance(value, bool | int | float | str):
        return Structure(kind="constant", value=value)
    parts = list(_parts(value, path))
    items = [_structure(part, (*path, key), tensors, paths) for key, part in parts]
    keys = [key for key, _ in parts]
    named = type(value).__name__
    if isinstance(value, list):
        return Structure(kind="list", items=items)
    if isinstance(value, tuple):
        if type(value) is tuple:
            return Structure(kind="tuple", items=items)
        return Structure(kind="tuple", items=items, keys=keys, type=named)
    other = {} if type(value) is dict else {"type": named}
    return Structure(kind="dict", keys=keys, items=items, **other)


def _parts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        fields = getattr(value, "_fields", map(str, range(len(value))))
        yield from zip(fields, value, strict=True)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield field.name, getattr(value, field.name)
    else:
        where = f" as {'.'.join(path)!r}" if path else ""
        raise UsageError(
            f"the module returns an object of {type(value).__qualname__}{where}",
            code="torch.outputs",
            hint="return tensors, or lists, tuples, dicts and dataclasses of tensors",
        )


def _replace_tensors(value: Any, tensors: Iterator[Any]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, Mapping):
        made = copy.copy(value)  # a subclass keeps its other attributes
        for key in value:
            made[key] = _replace_tensors(value[key], tensors)  # type: ignore[index]
        return made
    if isinstance(value, list | tuple):
        parts = [_replace_tensors(part, tensors) for part in value]
        # a named tuple takes its fields one by one
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        changed = {
            field.name: _replace_tensors(getattr(value, field.name), tensors) for field in fields
        }
        return dataclasses.replace(value, **changed)
    return value


def _name_tensors(structure: Structure, names: Iterator[str]) -> Structure:
    if structure.kind == "tensor":
        return Structure(kind="tensor", name=next(names))
    if not structure.items:
        return structure
    return structure.model_copy(
        update={"items": [_name_tensors(item, names) for item in structure.items]}
    )


def rebuild(structure: Structure, tensors: Mapping[str, Any]) -> Any:
    """Returns a result: Python's lists, tuples and dicts of the named tensors."""
    if structure.kind == "tensor":
        return tensors[cast(str, structure.name)]
    if structure.kind == "constant":
        return structure.value
    items = [rebuild(item, tensors) for item in structure.items]
    if structure.kind == "dict":
        return dict(zip(structure.keys, items, strict=True))
    return items if structure.kind == "list" else tuple(items)


def type_name(tensor: Any) -> str:
    """Returns the type of a tensor or an array without PyTorch's prefix: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def torch_type(name: str) -> Any:
    """Returns PyTorch's type by its name: "float32"."""
    import torch

    return getattr(torch, name)


def as_tensor(value: Values, device: Any, dtype: Any) -> Tensor:
    """Returns a tensor or an array as a tensor of a type, on a device."""
    import torch

    if isinstance(value, np.ndarray):
        # PyTorch supports neither negative strides nor read-only memory
        value = torch.from_numpy(np.require(value, requirements=["C", "W"]))
    return value.to(device=device, dtype=dtype)


def tensor_size(tensor: Any) -> str:
    """Returns the size and type of a tensor or an array: "1x3x224x224:float32"."""
    return f"{'x'.join(map(str, tensor.shape))}:{type_name(tensor)}"


def random_example(words: Mapping[str, str]) -> dict[str, Any]:
    """Returns random tensors of sizes such as ``{"x": "1x3x224x224:float32"}``.

    Raises:
        UsageError: ``torch.inputs``: a text is not a size.
    """
    return {name: _tensor(name, text) for name, text in words.items()}


def size_in(name: str, text: str) -> tuple[tuple[int, ...], str]:
    """Returns the shape and the type of a text such as "1x3x224x224:float32"; "" without a type.

    Raises:
        UsageError: ``torch.inputs``: the text is not a size; the error names the input ``name``.
    """
    sizes, _, kind = text.partition(":")
    if not re.fullmatch(r"(\d{1,9}(x\d{1,9})*)?", sizes.strip()):
        raise _no_size(name, text)
    return tuple(int(size) for size in sizes.split("x")) if sizes.strip() else (), kind


def _no_size(name: str, text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not the size of an input",
        code="torch.inputs",
        where=name,
        hint="write sizes and type like 1x3x224x224:float32 or 1x128:int64",
    )


def _tensor(name: str, text: str) -> Any:
    import torch

    shape, kind = size_in(name, text)
    dtype = getattr(torch, kind or "float32", None)
    if not isinstance(dtype, torch.dtype):
        raise _no_size(name, text)
    return random_like(torch.zeros(shape, dtype=dtype), torch.Generator().manual_seed(1), 2)


def random_like(tensor: Any, generator: Any, above: int = 0) -> Any:
    """Returns random values: normally distributed, or integers within the range of a tensor's.

    Args:
        tensor: Gives shape, type, device and the range of integers.
        generator: PyTorch's CPU generator.
        above: Exclusive upper bound of integers; 0: the tensor's largest value plus 1.
    """
    import torch

    shape, dtype = tuple(tensor.shape), tensor.dtype
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.randn(shape, generator=generator, dtype=torch.float32)
    elif dtype == torch.bool:
        made = torch.randint(0, 2, shape, generator=generator)
    elif above or not tensor.numel():
        made = torch.randint(0, above or 2, shape, generator=generator)
    else:
        low, high = int(tensor.min()), int(tensor.max())
        made = torch.randint(low, high + 1, shape, generator=generator)
    made = made.to(device=tensor.device, dtype=dtype)
    if made.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return made.to(memory_format=torch.channels_last)
    return made


def check_inputs(given: Iterable[str], known: Sequence[str]) -> None:
    """Checks that names of inputs are parameters.

    Raises:
        UsageError: ``torch.inputs``.
    """
    wrong = [name for name in given if name not in known]
    if wrong and known:
        raise UsageError(
            f"there is no input {wrong[0]!r}",
            code="torch.inputs",
            hint=f"the inputs are {listed(known)}",
        )


def plain_constants(call: Call, defaults: Mapping[str, Plain]) -> dict[str, Plain]:
    """Returns the non-tensor arguments of a call for the document; None only if it replaces another
    default.
    """
    plain = {
        name: value if isinstance(value, bool | int | float | str) else repr(value)
        for name, value in call.constants.items()
    }
    return {**plain, **{name: None for name in call.nones if defaults.get(name) is not None}}
