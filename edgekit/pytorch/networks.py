"""A copy of the caller's PyTorch network in evaluation mode that takes and returns flat tensors,
with its results on the example.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgekit.errors import EdgekitError, ModelError, UsageError
from edgekit.pytorch import source_errors
from edgekit.pytorch.chain import array, difference
from edgekit.pytorch.exporters import captured_output
from edgekit.pytorch.fake_quant import fix_scales
from edgekit.pytorch.free_sizes import (
    FreeAxis,
    dynamic_by_name,
    extremes,
    failed_at,
    is_in_range,
    ranges_in,
    ranges_text,
)
from edgekit.pytorch.left import LeftOut, leave_out
from edgekit.pytorch.signature import (
    Call,
    Result,
    bind_call,
    check_inputs,
    default_values,
    parameter_names,
    random_example,
    random_like,
    tensor_size,
    type_name,
)
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from torch import Tensor

    from edgekit.pytorch.document import Plain

Kind = Literal["module", "program", "torchscript"]
_DEPRECATED = (
    "PyTorch deprecated TorchScript: give the module, or a program of torch.export (.pt2), instead"
)
_SAME = 1e-4  # difference of two runs on the same inputs; a GPU's sums have no fixed order
# operators with a training mode, and the argument that enables it
_TRAINING = {
    "aten.dropout.default": 2,
    "aten.batch_norm.default": 5,
    "aten.feature_dropout.default": 2,
}


@dataclass
class Network:
    """A network that can be exported.

    Attributes:
        kind: The kind of the caller's source.
        source: The source's class, file or factory.
        call: The call with its arguments.
        make: Returns a new copy, as a module that takes the call's tensors.
        result: The structure of the module's result.
        program: The ``torch.export`` program if the caller passed a program.
        notes: Notes on changed or fixed parts.
        outputs: The outputs for the example.
        left: The modules that stay in PyTorch, of the latest copy; None if there are none.
        parameters: The names of positional arguments.
        defaults: Default values of omitted arguments by name.
        leaves: For a program, the names of all tensors and constants among its arguments.
        free: For a module, PyTorch's dimensions of the varying axes by input.
        metadata: Metadata for the ONNX file, such as the names of classes.
    """

    kind: Kind
    source: str
    call: Call
    make: Callable[[], Any]
    result: Result
    program: Any = None
    notes: list[str] = field(default_factory=list)
    outputs: tuple[Any, ...] = ()
    left: LeftOut | None = None
    parameters: Sequence[str] = ()
    defaults: Mapping[str, Plain] = field(default_factory=dict)
    leaves: Sequence[str] = ()
    free: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def run(self, module: Any, tensors: Sequence[Any], seed: int = 0) -> tuple[Any, ...]:
        """Returns a copy's outputs, without gradients and with seeded random numbers."""
        import torch

        with torch.no_grad(), fixed_seed(seed):
            found = module(*tensors)
        return self.result.take(found) if self.kind == "torchscript" else found

    def types(self) -> set[str]:
        """Returns the types of parameters, inputs and outputs: "float32", "bfloat16"."""
        module = self.make()
        every = [*module.parameters(), *module.buffers(), *self.call.tensors, *self.outputs]
        return {type_name(tensor) for tensor in every}

    def cases(
        self, axes: Sequence[FreeAxis] = ()
    ) -> Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yields inputs with PyTorch's outputs: the example, two random inputs, and the smallest
        and largest sizes if axes vary.

        Raises:
            ModelError: ``torch.dynamic_shapes``: the network fails at these sizes.
        """
        import torch

        yield self.call.tensors, self.outputs
        for tensors in extremes(self.call.tensors, axes) if axes else ():
            try:
                found = self.run(self.make(), clones(tensors))
            except Exception as error:
                named = dict(zip(self.call.names, tensors, strict=True))
                raise failed_at(named, source_errors.first_words(error)) from error
            yield tensors, found
        # not the seeds of a random example (1) and of the extreme sizes (3)
        generator = torch.Generator().manual_seed(2)
        for _ in range(2):
            tensors = tuple(random_like(tensor, generator) for tensor in self.call.tensors)
            try:
                yield tensors, self.run(self.make(), clones(tensors))
            except Exception as error:
                # inputs that are only valid for some values, such as mutual indices
                reason = source_errors.first_words(error)
                self.notes.append(f"compared on the example alone: random inputs fail ({reason})")
                return


@contextmanager
def fixed_seed(seed: int = 0) -> Iterator[None]:
    """Seeds PyTorch's random numbers within the block."""
    import torch

    on_gpu = torch.cuda.is_initialized()  # seeding an unused GPU would leave a pending seed
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if on_gpu else ()):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.manual_seed_all(seed)
        yield


def size_words(tensors: Mapping[str, Tensor]) -> str:
    """Returns names, sizes and types: "x 1x3x224x224:float32"."""
    return listed(f"{name} {tensor_size(tensor)}" for name, tensor in tensors.items())


def is_module(source: Any) -> bool:
    """Returns True if a source is a Python module, whose submodules can stay in PyTorch."""
    import torch

    return isinstance(source, torch.nn.Module) and not isinstance(source, torch.jit.ScriptModule)


def prepare_network(
    source: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, str],
    name: str = "",
    leave: Sequence[str] = (),
    dynamic_shapes: object = None,
) -> Network:
    """Returns the exportable network of a module or program, after a run on the example.

    Args:
        source: ``torch.nn.Module`` or ``torch.export.ExportedProgram``.
        args: The example's positional arguments.
        kwargs: The example's keyword arguments.
        inputs: Sizes instead of an example: ``{"x": "1x3x224x224:float32"}``.
        name: Its name in messages; by default its class.
        leave: For a module, paths (globs) of the modules that stay in PyTorch.
        dynamic_shapes: For a module, in the form of ``torch.export.export``.

    Raises:
        UsageError: The source is neither, or cannot be called with the example; "torch.leave".
        ModelError: Its results depend on random numbers or earlier calls, or it is a training
            program.
    """
    import torch

    # before all questions about its class
    source = unwrap(source)
    inputs, ranged = ranges_in(inputs)
    if (ranged or dynamic_shapes) and not is_module(source):
        raise UsageError(
            "sizes vary of a torch.nn.Module alone",
            code="torch.dynamic_shapes",
            hint="a program keeps the ranges that it was exported with: torch.export.export(model, "
            "(x,), dynamic_shapes=...); TorchScript has one size here",
        )
    if isinstance(source, torch.export.ExportedProgram):
        network = _prepare_program(source, args, kwargs, inputs, name)
    elif isinstance(source, torch.jit.ScriptModule):
        network = _prepare_script(source, args, kwargs, inputs, name)
    elif isinstance(source, torch.nn.Module):
        network = _prepare_module(source, args, kwargs, inputs, name, leave)
    elif isinstance(source, type) and issubclass(source, torch.nn.Module):
        raise UsageError(
            f"{source.__qualname__} is a class, and no module yet",
            code="torch.source",
            hint=f"make a module: {source.__qualname__}(...)",
        )
    else:
        raise UsageError(
            f"an object of {type(source).__qualname__} is no PyTorch network",
            code="torch.source",
            hint="give a torch.nn.Module, a program of torch.export, a .pt2 or TorchScript file, "
            "or package.module:factory",
        )
    if network.call.constants:
        fixed = listed(f"{key}={value!r}" for key, value in network.call.constants.items())
        network.notes.append(f"fixed in the network: {fixed}")
    example = dict(zip(network.call.names, network.call.tensors, strict=True))
    network.free = {**ranged, **dynamic_by_name(dynamic_shapes, example)}
    if network.free and leave:
        raise UsageError(
            "a network with left-out modules has one size",
            code="torch.dynamic_shapes",
            hint="leave leave out, or give one size",
        )
    _examine(network)
    return network


def _prepare_module(
    source: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, str],
    name: str,
    leave: Sequence[str],
) -> Network:
    import torch

    if any(
        isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin)
        for parameter in (*source.parameters(), *source.buffers())
    ):
        raise ModelError(
            "the module has parameters without a size yet",
            code="torch.lazy",
            hint="call it once, and export it then",
        )
    parameters = parameter_names(source.forward)
    if inputs:
        check_inputs(inputs, parameters)
        kwargs = {**kwargs, **random_example(inputs)}
    call = bind_call(parameters, args, kwargs)
    result = Result(call.names)

    def make() -> Any:
        module = _copy_module(source).eval()
        # wrappers may also be around inner modules
        for parent in list(module.modules()):
            for child_name, child in list(parent.named_children()):
                parent._modules[child_name] = unwrap(child)
        fixed = fix_scales(module)
        words = f"{counted(fixed, 'fake quantiser')}: QuantizeLinear and DequantizeLinear"
        # `make` runs for each copy
        if fixed and words not in found.notes:
            found.notes.append(words)
        if leave:
            args, kwargs = call.arguments(clones(call.tensors))
            found.left = leave_out(module, leave, args, kwargs)
            module = found.left.twin
        # on the copy: the exporters call a module by its flat tensors
        module.forward = call.flat(_with_its_hooks(module), result)
        return module

    found = Network(
        "module",
        name or _class_name(source),
        call,
        make,
        result,
        parameters=parameters,
        defaults=default_values(source.forward),
    )
    found.notes += _training_note(source)
    return found


def _prepare_script(
    source: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, str],
    name: str,
) -> Network:
    import torch

    # the first is `self`
    parameters = [argument.name for argument in source.forward.schema.arguments][1:]
    if inputs:
        check_inputs(inputs, parameters)
        made = random_example(inputs)
        args = tuple(made[parameter] for parameter in parameters if parameter in made)
    if kwargs or not all(isinstance(value, torch.Tensor) for value in args):
        raise UsageError(
            "a TorchScript module is exported with positional tensors alone",
            code="torch.inputs",
            hint=f"give its inputs ({listed(parameters)}) as args, in order",
        )
    call = bind_call(parameters, args, {})
    kept = source.original_name if hasattr(source, "original_name") else _class_name(source)
    found = Network(
        "torchscript",
        name or kept,
        call,
        lambda: _copy_module(source).eval(),
        Result(call.names),
        parameters=parameters,
    )
    found.notes += [_DEPRECATED, *_training_note(source)]
    return found


def _training_note(source: Any) -> list[str]:
    if not any(module.training for module in source.modules()):
        return []
    return ["the module is in training mode: a copy in evaluation mode was exported"]


def _class_name(source: Any) -> str:
    return f"{type(source).__module__}.{type(source).__qualname__}"


def unwrap(source: Any) -> Any:
    """Returns the module inside ``torch.compile`` or a parallel wrapper."""
    from torch import nn

    while isinstance(source, nn.Module):
        if (
            type(source).__name__ == "OptimizedModule"
        ):  # importing its module would load half of PyTorch
            source = source._modules["_orig_mod"]
        elif isinstance(source, nn.DataParallel | nn.parallel.DistributedDataParallel):
            source = source.module
        else:
            break
    return source


def _with_its_hooks(module: Any) -> Callable[..., Any]:
    """Returns a function that runs a module with its own hooks, and removes the hooks from the
    module: they expect its original arguments and results.
    """
    if not (module._forward_hooks or module._forward_pre_hooks):
        forward: Callable[..., Any] = module.forward
        return forward
    inner = copy.copy(module)
    for hooks in ("_forward_hooks", "_forward_pre_hooks"):
        setattr(module, hooks, type(getattr(module, hooks))())
    called: Callable[..., Any] = inner
    return called


def clones(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Copies inputs: a module may write to them."""
    return tuple(tensor.clone() for tensor in tensors)


def _copy_module(source: Any) -> Any:
    import torch

    # tensors that a forward computed and stored (weight_norm's) are copied without their history
    every = [value for module in source.modules() for value in vars(module).values()]
    memo = {
        id(item): item.detach().clone()
        for item in every
        if isinstance(item, torch.Tensor) and not item.is_leaf
    }
    try:
        return copy.deepcopy(source, memo)
    except Exception as error:
        raise ModelError(
            f"the module cannot be copied ({source_errors.first_words(error)}), and edgekit "
            "exports a copy",
            code="torch.copy",
            hint="give a program instead: torch.export.export(model.eval(), (x,))",
        ) from error


def _prepare_program(
    source: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, str],
    name: str,
) -> Network:
    leaves = _example_inputs(source)
    sizes = {key: value for key, value in leaves.items() if hasattr(value, "shape")}
    for node in source.graph.nodes:
        place = _TRAINING.get(str(node.target))
        if place is not None and len(node.args) > place and node.args[place] is True:
            raise ModelError(
                f"the program was made of a module in training mode ({node.target} at "
                f"{source_errors.program_place(node).words()})",
                code="torch.training",
                hint="export it again: torch.export.export(model.eval(), (x,))",
            )
    if inputs:
        check_inputs(inputs, list(sizes))
        made = random_example(inputs)
        leaves |= made
        args, kwargs = _random_arguments(source, leaves)
        given = {key: made[key] for key in made if not _accepts_size(source, sizes[key], made[key])}
        if given:
            known = listed(f"{key} {ranges_text(source, size)}" for key, size in sizes.items())
            raise UsageError(
                f"the program has the inputs {known}",
                code="torch.inputs",
                hint="give these sizes, or export the program again with others",
            )
    elif not args and not kwargs:
        args, kwargs = source.example_inputs or _random_arguments(source, leaves)
    call = bind_call((), args, kwargs, names=list(leaves))
    result = Result(call.names)

    def make() -> Any:
        with captured_output():
            module = copy.deepcopy(source.module())
        module.forward = call.flat(module.forward, result)
        return module

    return Network(
        "program",
        name or _program_name(source),
        call,
        make,
        result,
        source,
        leaves=list(leaves),
    )


def _accepts_size(program: Any, known: Any, given: Any) -> bool:
    """Returns True if a program accepts a tensor's size: its own, or within its ranges."""
    if known.dim() != given.dim():
        return False
    return all(
        own == size if isinstance(own, int) else is_in_range(program, own, size)
        for own, size in zip(known.shape, given.shape, strict=True)
    )


def _example_inputs(program: Any) -> dict[str, Any]:
    """Returns the inputs by name: a random tensor of each size, or the constant."""
    import torch

    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            continue
        value = nodes[spec.arg.name].meta.get("val") if spec.arg.name in nodes else None
        found[spec.arg.name] = (
            value if isinstance(value, torch.Tensor) else getattr(spec.arg, "value", None)
        )
    return found


def _random_arguments(
    program: Any, leaves: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch
    from torch.utils import _pytree

    generator = torch.Generator().manual_seed(1)
    real = [
        random_like(leaf, generator, 2) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves.values()
    ]
    args, kwargs = _pytree.tree_unflatten(real, program.call_spec.in_spec)
    return args, kwargs


def _program_name(program: Any) -> str:
    for node in program.graph.nodes:
        for path, kind in (node.meta.get("nn_module_stack") or {}).values():
            if not path:
                return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return "program"


def _examine(network: Network) -> None:
    """Runs a copy twice on the example, and refuses differing results."""
    import torch

    module, tensors = network.make(), network.call.tensors
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    given = clones(tensors)
    try:
        network.outputs = clones(network.run(module, given))
        if network.left is not None:
            network.left.reset()  # a left-out module may keep a state
        # another seed, so that random numbers show
        again = network.run(module, clones(tensors), seed=1)
    except EdgekitError:
        raise
    except Exception as error:
        known = None if network.kind == "torchscript" else module
        raise source_errors.not_called_error(
            error, known, size_words(dict(zip(network.call.names, tensors, strict=True)))
        ) from error
    _refuse_complex(network)
    written = [
        name
        for name, a, b in zip(network.call.names, given, tensors, strict=True)
        if not np.array_equal(array(a), array(b), equal_nan=True)
    ]
    if written:
        network.notes.append(
            f"{counted(len(written), 'input')} {listed(map(repr, written), 5)}: written to by each "
            "call in PyTorch, not by the network"
        )
    left = tuple(f"{path}." for path in network.left.modules) if network.left else ()
    # a left-out module may keep its state: it stays in PyTorch
    changed = [
        name
        for name, buffer in module.named_buffers()
        if name in before and not torch.equal(buffer, before[name]) and not name.startswith(left)
    ]
    gap = _difference(network, again)
    words = f"{counted(len(changed), 'buffer')} {listed(map(repr, changed), 5)}"
    # without a changed buffer only random numbers explain different results
    if gap > _SAME and changed:
        place = source_errors.state_place(module, changed[0]) if network.kind == "module" else None
        raise source_errors.keeps_state(words, place)
    if gap > _SAME:
        _refuse_chance(network, module)
    if changed:
        network.notes.append(
            f"{words}: changed by each call in PyTorch, fixed in the network "
            f"({counted(len(changed), 'buffer')} that no result depends on)"
        )


def _difference(network: Network, outputs: Sequence[Any]) -> float:
    """Returns the difference of outputs from the example's."""
    both = zip(outputs, network.outputs, strict=True)
    return max(difference(array(a), array(b)) for a, b in both)


def _refuse_chance(network: Network, module: Any) -> None:
    """Refuses a network with differing results, unless only left-out modules use random numbers.

    Raises:
        ModelError: ``torch.random``, with module path and source line if known.
    """
    left = network.left
    if network.program is not None:
        place = source_errors.random_node(network.program.graph)
    else:
        with source_errors.random_calls(module, left.modules if left else ()) as places:
            if left is not None:
                left.reset()
            again = network.run(module, clones(network.call.tensors))
        if left is not None and not places and _difference(network, again) <= _SAME:
            return
        place = next(iter(places), None)
    raise source_errors.random_results(place)


def _refuse_complex(network: Network) -> None:
    named = {
        **dict(zip(network.call.names, network.call.tensors, strict=True)),
        **dict(zip(network.result.names, network.outputs, strict=True)),
    }
    for name, tensor in named.items():
        if tensor.is_complex():
            raise ModelError(
                f"{name!r} has complex numbers ({tensor_size(tensor)}), which ONNX networks take "
                "and return as pairs of real ones",
                code="torch.complex",
                where=name,
                hint="use torch.view_as_real and torch.view_as_complex in forward",
            )
