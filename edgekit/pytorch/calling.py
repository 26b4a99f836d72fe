"""Calls of an exported network by its document: arguments to named tensors, and outputs in
the module's types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.pytorch.signature import Call, call_of, size_of, torch_type
from edgekit.text import listed

if TYPE_CHECKING:
    from torch import Tensor

    from edgekit.pytorch.document import Exported


def plain_constants(call: Call) -> dict[str, bool | int | float | str]:
    """Returns the arguments of a call that are no tensors, as the document has them."""
    return {
        name: value if isinstance(value, bool | int | float | str) else repr(value)
        for name, value in call.constants.items()
    }


def tensors_of(exported: Exported, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the tensors of a call by input name.

    Raises:
        UsageError: "torch.inputs": other arguments, sizes or types than the example's.
    """
    given, about = args if isinstance(args, tuple) else (args,), exported.arguments
    call = call_of(about.parameters, given, kwargs, about.leaves)
    if plain_constants(call) != about.constants:
        raise UsageError(
            f"the network was compiled with {about.constants}, and called with "
            f"{dict(call.constants)}",
            code="torch.inputs", hint="compile it again for other arguments",
        )  # fmt: skip
    known = {one.name: one for one in exported.inputs}
    found = dict(zip(call.names, call.tensors, strict=True))
    for name in [*known, *found]:
        wanted, tensor = known.get(name), found.get(name)
        if wanted is None:
            problem, hint = f"there is no input {name!r}", f"the inputs are {listed(known)}"
        else:
            size = f"{'x'.join(map(str, wanted.shape))}:{wanted.torch_type}"
            hint = f"it was compiled for {size}; compile it again for another size or type"
            if tensor is None:
                problem = f"input {name!r} is missing"
            elif size_of(tensor) != size:
                problem = f"input {name!r} is {size_of(tensor)}"
            else:
                continue
        raise UsageError(problem, code="torch.inputs", where=name, hint=hint)
    return {name: found[name] for name in known}


def run_on_gpu(
    exported: Exported,
    run: Callable[[dict[str, Any]], Mapping[str, Any]],
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Runs a network whose inputs and outputs lie on the GPU; nothing is copied to the CPU.

    Args:
        exported: The network.
        run: Takes inputs by name, and returns what has a CUDA array interface, by output name.
        tensors: The inputs, on the GPU.
    """
    import torch

    kinds = {one.name: torch_type(one.type) for one in exported.inputs}
    feed = {name: one.detach().to(kinds[name]).contiguous() for name, one in tensors.items()}
    # a tensor keeps the memory that it was made of
    return {name: torch.as_tensor(made, device="cuda") for name, made in run(feed).items()}


def outputs_of(exported: Exported, known: Mapping[str, Tensor], device: Any) -> dict[str, Tensor]:
    """Returns the outputs by name, in the module's types."""
    return {
        one.name: known[one.name].to(device=device, dtype=torch_type(one.torch_type))
        for one in exported.outputs
    }
