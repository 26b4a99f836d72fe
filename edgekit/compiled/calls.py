"""The arguments and results of a call of an exported network, by its document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.pytorch.signature import (
    as_tensor,
    bind_call,
    check_inputs,
    plain_constants,
    tensor_size,
    torch_type,
)
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from edgekit.pytorch.document import Exported, Tensor
    from edgekit.pytorch.signature import Call, Values


def bind_tensors(exported: Exported, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Values]:
    """Returns the tensors of a call by input name; for an ONNX file, tensors or arrays.

    Raises:
        UsageError: "torch.inputs": other arguments, sizes or types than the example's.
    """
    if exported.kind == "onnx":
        return bind_values(exported, args, kwargs)
    import torch
    from torch.utils import _pytree

    given, about = args if isinstance(args, tuple) else (args,), exported.arguments
    # tensors may be inside lists and dicts
    leaves = _pytree.tree_leaves((given, dict(kwargs)))
    if not any(isinstance(leaf, torch.Tensor | np.ndarray) for leaf in leaves):
        raise UsageError(
            f"input {exported.inputs[0].name!r} is missing: there is no tensor among the arguments",
            code="torch.inputs",
            where=exported.inputs[0].name,
            hint=f"the inputs are {listed(tensor.name for tensor in exported.inputs)}",
        )
    call = bind_call(about.parameters, given, kwargs, about.leaves)
    _check_arguments(exported, len(given), call)
    return _check_values(exported, dict(zip(call.names, call.tensors, strict=True)), tensors=True)


def _check_arguments(exported: Exported, positional: int, call: Call) -> None:
    """Refuses arguments that are no inputs, and constants that differ from those of the
    compilation.

    Raises:
        UsageError: "torch.inputs": an argument does not match.
    """
    about, inputs = exported.arguments, [tensor.name for tensor in exported.inputs]
    fixed = {**about.defaults, **about.constants}
    now = {**about.defaults, **plain_constants(call, about.defaults)}
    strange = [tensor for tensor in call.names if tensor not in inputs]
    strange += [
        constant for constant in call.constants if constant not in fixed and constant not in inputs
    ]
    if about.parameters and strange and positional > len(about.parameters):
        lost = [tensor for tensor in inputs if tensor not in call.names]
        raise UsageError(
            f"there are {counted(positional, 'positional argument')}, and the module takes "
            f"{len(about.parameters)} ({listed(about.parameters)})",
            code="torch.inputs",
            hint=f"give {listed(lost)} by name"
            if lost
            else "give no others, such as a data loader's labels",
        )
    # the first difference is the error: unknown arguments before changed constants
    for name in [*strange, *fixed, *call.constants]:
        hint = "compile it again for other arguments"
        if name in inputs:
            if name not in call.constants:
                continue
            problem = f"input {name!r} is {now[name]!r}, and no tensor"
            hint = "give a tensor"
        elif name in call.names:
            problem = f"the network was compiled without the tensor {name!r}"
            if name not in {*fixed, *about.parameters}:
                problem = f"there is no input {name!r}"
                hint = f"the inputs are {listed(inputs)}"
        elif name not in fixed and name not in about.parameters:
            problem = f"there is no argument {name!r}"
            hint = f"the arguments are {listed(dict.fromkeys((*inputs, *fixed)))}"
        elif fixed.get(name) != now.get(name):
            was = f"with {fixed[name]!r}" if name in fixed else "without it"
            problem = f"{name!r} is {now.get(name)!r}, and the network was compiled {was}"
        else:
            continue
        raise UsageError(problem, code="torch.inputs", where=name, hint=hint)


def named_values(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the values of a call by input name, if the network's inputs are its arguments.

    Args:
        names: The inputs' names in order.
        args: Inputs in order, except those in ``kwargs``.
        kwargs: Inputs by name.

    Raises:
        UsageError: "torch.inputs": there are more arguments than inputs, or other names.
    """
    check_inputs(kwargs, names)
    free = [name for name in names if name not in kwargs]
    if len(args) > len(free):
        raise UsageError(
            f"there are {counted(len(args) + len(kwargs), 'argument')}, and the network has "
            f"{counted(len(names), 'input')}",
            code="torch.inputs",
            hint=f"the inputs are {listed(names)}",
        )
    return {**dict(zip(free, args, strict=False)), **kwargs}


def bind_values(exported: Exported, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Values]:
    """Returns the tensors or arrays of a call by input name, if the network's inputs are its
    arguments: for an ONNX file, or on a machine without PyTorch.

    Raises:
        UsageError: "torch.inputs": other inputs, sizes or types than compiled.
    """
    names = [tensor.name for tensor in exported.inputs]
    return _check_values(
        exported, named_values(names, args if isinstance(args, tuple) else (args,), kwargs)
    )


def _check_values(
    exported: Exported, found: Mapping[str, Any], *, tensors: bool = False
) -> dict[str, Values]:
    """Returns the inputs' values in order.

    Args:
        exported: The network.
        found: Values by name.
        tensors: True if a missing input would have been a tensor, not an array.

    Raises:
        UsageError: "torch.inputs": an input is missing, or has another size or type.
    """
    for tensor in exported.inputs:
        value = found.get(tensor.name)
        # NumPy and PyTorch have different names for types
        is_tensor = not isinstance(value, np.ndarray) if hasattr(value, "dtype") else tensors
        kind = tensor.torch_type if is_tensor else tensor.type
        size = f"{'x'.join(map(str, tensor.shape))}:{kind}"
        if tensor.name not in found:
            problem = "is missing"
        elif not hasattr(value, "dtype"):
            problem = f"is a {type(value).__name__}, and no array or tensor"
        else:
            problem = f"is {tensor_size(value)}"
        if problem != f"is {size}":
            raise UsageError(
                f"input {tensor.name!r} {problem}",
                code="torch.inputs",
                where=tensor.name,
                hint=f"it was compiled for {size}; compile it again for another size or type",
            )
    return {tensor.name: found[tensor.name] for tensor in exported.inputs}


def first_device(values: Iterable[Values]) -> Any:
    """Returns the device of the first tensor; None if all values are NumPy arrays."""
    return next((value.device for value in values if not isinstance(value, np.ndarray)), None)


def run_on_gpu(
    inputs: Iterable[Tensor],
    run: Callable[[dict[str, Any]], Mapping[str, Any]],
    values: Mapping[str, Values],
) -> dict[str, Values]:
    """Runs a network with inputs and outputs in GPU memory, without copies to the CPU.

    Args:
        inputs: The network's inputs.
        run: Takes inputs by name, and returns objects with a CUDA array interface by output name.
        values: The inputs, with at least one tensor on the GPU.
    """
    import torch

    kinds, device = (
        {tensor.name: torch_type(tensor.type) for tensor in inputs},
        first_device(values.values()),
    )
    # TensorRT reads contiguous memory at the tensor's address
    feed = {
        name: as_tensor(value, device, kinds[name]).detach().contiguous()
        for name, value in values.items()
    }
    # a tensor keeps its memory alive
    return {name: torch.as_tensor(made, device="cuda") for name, made in run(feed).items()}


def convert_outputs(
    outputs: Iterable[Tensor], known: Mapping[str, Values], device: Any
) -> dict[str, Values]:
    """Returns the outputs by name: tensors in the module's types; arrays if ``device`` is None."""
    if device is None:
        return {tensor.name: known[tensor.name] for tensor in outputs}
    return {
        tensor.name: as_tensor(known[tensor.name], device, torch_type(tensor.torch_type))
        for tensor in outputs
    }
