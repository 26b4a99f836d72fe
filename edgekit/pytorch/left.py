"""Modules that stay in PyTorch: each of their calls becomes a node ``edgekit.pytorch::Module`` of
the exported network, which is cut there (``edgekit.network.left_modules``).

The node comes from ``torch.onnx.ops.symbolic_multi_out`` (torch 2.8 and newer), in a twin of the
module tree that shares the parameters: the caller's module does not change.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.network.left_modules import left_paths
from edgekit.network.module_names import enclosing_modules
from edgekit.network.protos import LEFT_DOMAIN, LEFT_OPERATOR
from edgekit.pytorch.signature import as_tensor

if TYPE_CHECKING:
    from torch import Tensor, nn

    from edgekit.pytorch.signature import Values

_DICTS = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


@dataclass(frozen=True)
class LeftCall:
    """A call of a left-out module.

    Attributes:
        module: The module's path.
        number: The call's number in the order of the network, from 0.
        inputs: Nesting of arguments and keyword arguments (a pytree's ``TreeSpec``).
        given: The arguments in the order of the pytree; ``_TENSOR`` for a tensor.
        takes: Type of each tensor among the arguments.
        device: The tensors' device; None for a call without tensors.
        outputs: Nesting of the results.
        made: The results in the order of the pytree; ``_TENSOR`` for a tensor.
        kinds: Type and shape of each tensor among the results.
    """

    module: str
    number: int
    inputs: Any
    given: tuple[Any, ...]
    takes: tuple[Any, ...]
    device: Any
    outputs: Any
    made: tuple[Any, ...]
    kinds: tuple[tuple[Any, tuple[int, ...]], ...]

    def arguments(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns args and kwargs with the tensors replaced by values."""
        from torch.utils import _pytree

        args, kwargs = _pytree.tree_unflatten(_fill_tensors(self.given, values), self.inputs)
        return args, kwargs

    def to_module_types(self, values: Sequence[Values]) -> list[Tensor]:
        """Returns tensors on the device and in the types that the module takes: a bfloat16 network
        is float32 in its file, and compiled parts return arrays.
        """
        return [
            as_tensor(value, self.device, kind)
            for value, kind in zip(values, self.takes, strict=True)
        ]

    def run(self, module: nn.Module, values: Sequence[Values]) -> list[Tensor]:
        """Calls the module with the tensors among its arguments; returns those of its results."""
        import torch
        from torch.utils import _pytree

        args, kwargs = self.arguments(self.to_module_types(values))
        flat, _ = _pytree.tree_flatten(module(*args, **kwargs))
        return [value for value in flat if isinstance(value, torch.Tensor)]


@dataclass
class LeftOut:
    """A module whose calls of some submodules are recorded.

    Attributes:
        twin: The module to export.
        modules: The original left-out modules by path.
        calls: The calls of left-out modules, in order.
    """

    twin: nn.Module
    modules: dict[str, nn.Module] = field(default_factory=dict)
    calls: list[LeftCall] = field(default_factory=list)
    _before: dict[str, nn.Module] = field(default_factory=dict)

    def reset(self) -> None:
        """Resets the left-out modules to their state before the first call."""
        for path, kept in self._before.items():
            for whole in (self.twin.get_submodule(path), self.modules[path]):
                for here, there in zip(whole.modules(), twin(kept).modules(), strict=True):
                    # without the children, which have their own turn, and the forward that writes
                    # the node
                    state = {
                        name: value
                        for name, value in vars(there).items()
                        if name not in ("forward", "_modules")
                    }
                    vars(here).update(state)

    def with_own_state(self) -> LeftOut:
        """Returns the same modules with a separate state, initially a copy of the current state."""
        shared = [
            parameter for module in self.modules.values() for parameter in module.parameters()
        ]
        # parameters do not change, so they are shared; deepcopy copies buffers
        memo: dict[int, Any] = {id(parameter): parameter for parameter in shared}
        return replace(self, modules=copy.deepcopy(self.modules, memo))

    def run(self, call: int, values: Sequence[Values]) -> list[Tensor]:
        """Returns the result of a left-out module's call for other tensors."""
        import torch

        found = self.calls[call]
        with torch.no_grad():
            return found.run(self.modules[found.module], values)


def leave_out(
    module: nn.Module, globs: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> LeftOut:
    """Returns a twin of a module whose left-out modules become nodes of the exported network.

    Args:
        module: The network, in evaluation mode; runs once with the example inputs.
        globs: Paths of the modules to leave out, such as "head" or "model.*.attention".
        args: Example inputs.
        kwargs: Example inputs by keyword.

    Raises:
        UsageError: "torch.leave": a glob matches no module; "torch.leave-not-called": the
            network never calls a module that it matches.
    """
    import torch

    globs_of = left_paths([name for name, _ in module.named_modules() if name], globs)
    matched = {path for paths in globs_of.values() for path in paths}
    # this twin only records the calls; the others below run, keep the first state, and export
    found = LeftOut(twin(module))
    inside: list[str] = []
    for path in matched:
        here = found.twin.get_submodule(path)
        here.register_forward_pre_hook(_note_entry(inside, path))
        here.register_forward_hook(_record_calls(found, inside, path), with_kwargs=True)
    with torch.no_grad():
        found.twin(*args, **kwargs)
    paths = {call.module for call in found.calls}
    missing = [
        modules
        for modules in globs_of.values()
        # a module inside another left-out module is never called by the network itself
        if paths.isdisjoint(outer for path in modules for outer in enclosing_modules(path))
    ]
    if missing:
        raise UsageError(
            f"the network never calls {', '.join(modules[0] for modules in missing)}",
            code="torch.leave-not-called",
            where="leave",
            hint="name the modules inside: a list of modules and one whose weights alone are "
            "used cannot stay in PyTorch",
        )
    whole = twin(module)
    found.modules = {path: whole.get_submodule(path) for path in paths}
    found._before = {path: twin(module.get_submodule(path)) for path in paths}
    found.twin = twin(module)
    # an export may run the network several times, always with its calls in this order
    turn = itertools.cycle(found.calls)
    for path in paths:
        here = found.twin.get_submodule(path)
        here.forward = _node_forward(turn, here.forward)
    return found


def twin(module: nn.Module) -> nn.Module:
    """Returns a module tree that shares the parameters but can be changed independently.

    Buffers are copies, because a forward pass may write them.
    """
    known: dict[int, nn.Module] = {}

    def made(here: nn.Module) -> nn.Module:
        # a module that is used twice stays one module
        if id(here) not in known:
            other = known[id(here)] = copy.copy(here)
            for name in _DICTS:
                other.__dict__[name] = copy.copy(here.__dict__[name])
            for name, child in here._modules.items():
                other._modules[name] = None if child is None else made(child)
            for name, buffer in here._buffers.items():
                other._buffers[name] = None if buffer is None else buffer.clone()
        return known[id(here)]

    return made(module)


def _note_entry(inside: list[str], path: str) -> Callable[..., None]:
    return lambda *_: inside.append(path)


def _record_calls(found: LeftOut, inside: list[str], path: str) -> Callable[..., None]:
    def record(_module: Any, args: Any, kwargs: Any, result: Any) -> None:
        from torch.utils import _pytree

        inside.pop()
        if inside:
            return  # a call from within an enclosing left-out module
        given, inputs = _pytree.tree_flatten((args, kwargs))
        made, outputs = _pytree.tree_flatten(result)
        found.calls.append(
            LeftCall(
                module=path,
                number=len(found.calls),
                inputs=inputs,
                given=_without_tensors(given),
                takes=tuple(value.dtype for value in given if _is_tensor(value)),
                device=next((value.device for value in given if _is_tensor(value)), None),
                outputs=outputs,
                made=_without_tensors(made),
                kinds=tuple(
                    (value.dtype, tuple(value.shape)) for value in made if _is_tensor(value)
                ),
            )
        )

    return record


def _node_forward(turn: Iterator[LeftCall], run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the forward of a left-out module: the node of its next call during an export, and
    ``run`` otherwise.
    """

    def forward(*args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils import _pytree

        if not torch.compiler.is_exporting():
            return run(*args, **kwargs)
        call = next(turn)
        flat, _ = _pytree.tree_flatten((args, kwargs))
        results = torch.onnx.ops.symbolic_multi_out(
            f"{LEFT_DOMAIN}::{LEFT_OPERATOR}",
            [value for value in flat if _is_tensor(value)],
            attrs={"module": call.module, "call": call.number},
            dtypes=[kind for kind, _ in call.kinds],
            shapes=[shape for _, shape in call.kinds],
            version=1,
        )
        return _pytree.tree_unflatten(_fill_tensors(call.made, results), call.outputs)

    return forward


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _without_tensors(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_TENSOR if _is_tensor(value) else value for value in values)


class _Tensor:
    """A placeholder of a tensor among a call's values."""

    def __repr__(self) -> str:
        return "a tensor"


_TENSOR = _Tensor()


def _fill_tensors(values: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    given = iter(tensors)
    return [next(given) if value is _TENSOR else value for value in values]
