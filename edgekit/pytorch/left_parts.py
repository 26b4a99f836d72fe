"""Calls of left-out modules as parts of a network without PyTorch: ONNX files, which ONNX Runtime
runs, or Python parts (a source file, a factory and the module's state).
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from edgekit.errors import ModelError, UsageError
from edgekit.files import read_file
from edgekit.network.left_modules import LeftModule
from edgekit.network.source import is_factory
from edgekit.pytorch import export_cache, exporters
from edgekit.pytorch.chain import array, difference
from edgekit.pytorch.export import export_network
from edgekit.pytorch.left import LeftOut
from edgekit.pytorch.networks import prepare_network
from edgekit.pytorch.signature import type_name
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import CPU, SegmentEntry
from edgekit_device.runtime.python_part import (
    PythonEngine,
    PythonPart,
    make_module,
    write_safetensors,
)

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

_LARGEST_SOURCE = 1 << 24  # largest source file in bytes
_TOLERANCE = 1e-3


def left_file(left: LeftOut, part: LeftModule, tensors: Sequence[Tensor], release: str) -> bytes:
    """Returns the ONNX file of a left-out module's call, with its weights.

    Args:
        left: The modules that stay in PyTorch.
        part: The call.
        tensors: The module's input in an example, in the order of ``part.inputs``.
        release: The board's TensorRT, which decides the opset.

    Returns:
        The file's bytes. Its inputs and outputs are the call's; a tensor that is passed twice is a
        single input.

    Raises:
        UsageError: "compile.left": the module cannot be exported, or takes no tensor.
    """
    import torch

    call = left.calls[part.call]
    names = list(dict.fromkeys(part.inputs))

    class Alone(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            # at its own path, so that errors name it
            *around, last = call.module.split(".")
            here: torch.nn.Module = self
            for name in around:
                here.add_module(name, torch.nn.Module())
                here = here.get_submodule(name)
            here.add_module(last, left.modules[call.module])

        def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
            module = self.get_submodule(call.module)
            return tuple(call.run(module, [given[names.index(tensor)] for tensor in part.inputs]))

    typed = dict(zip(part.inputs, call.to_module_types(tensors), strict=True))
    try:
        network = prepare_network(
            Alone(), tuple(typed[name] for name in names), {}, {}, part.module
        )
        file = Path(export_network(network, release, None, None).file)
    except (ModelError, UsageError) as error:
        raise UsageError(
            f"the module stays in PyTorch and cannot become an ONNX file: {error.message}",
            code="compile.left",
            where=part.module,
            hint=f'let it travel as a Python part: save(path, python={{"{part.module}": '
            '"package.module:factory"}), or leave out only the modules inside that cannot be '
            "exported",
        ) from error
    if (file.parent / export_cache.DATA).exists():
        raise exporters.too_large(part.module)
    proto = onnx.load(file)
    exporters.rename(proto, names, part.outputs)
    exporters.tidy(proto)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


@dataclass(frozen=True)
class LeftPython:
    """A tested Python part.

    Attributes:
        part: The record of the part.
        source: The source file.
        state: The state, as safetensors.
        inputs: The input tensors, each once.
        outputs: The output tensors.
    """

    part: PythonPart
    source: bytes
    state: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs the part like a board, only from its source file and state.

        Raises:
            DeviceError: "engine.invalid", "engine.failed".
        """
        name = hashlib.sha256(self.source + self.state).hexdigest()
        segment = SegmentEntry(0, CPU, name, self.inputs, self.outputs, ())
        module = make_module(self.part.factory, self.source, self.state, name)
        return PythonEngine(module, self.part).run(segment, feed)


@dataclass(frozen=True)
class _Name:
    name: str


def left_python(
    left: LeftOut, part: LeftModule, tensors: Sequence[Tensor], factory: str
) -> LeftPython:
    """Returns a left-out module's call as a Python part.

    Args:
        left: The modules that stay in PyTorch.
        part: The call.
        tensors: The module's input in an example, in the order of ``part.inputs``.
        factory: "package.module:factory": a function without arguments, in a source file that
            imports no module of its own package, which makes the module without its state.

    Raises:
        UsageError: "compile.python": the factory is invalid, makes another module, or an argument
            of the call cannot be stored in a bundle.
    """
    call, module = left.calls[part.call], left.modules[part.module]
    if not is_factory(factory):
        raise _refusal(part, f"{factory!r} is no package.module:factory")
    try:
        file = importlib.import_module(factory.partition(":")[0]).__file__
        source = read_file(Path(str(file)), _LARGEST_SOURCE)
    except (ImportError, OSError, ValueError) as error:
        raise _refusal(part, f"its source file cannot be read: {error}") from error
    args, kwargs = call.arguments([_Name(name) for name in part.inputs])
    try:
        state = write_safetensors(module.state_dict())
        record = PythonPart(
            factory=factory,
            source=hashlib.sha256(source).hexdigest(),
            state=hashlib.sha256(state).hexdigest(),
            arguments=_tree(args, part),
            keywords=_tree(kwargs, part),
            takes={
                name: str(kind).removeprefix("torch.")
                for name, kind in zip(part.inputs, call.takes, strict=True)
            },
        )
        made = LeftPython(
            record, source, state, tuple(dict.fromkeys(part.inputs)), tuple(part.outputs)
        )
        found = made.run(dict(zip(part.inputs, map(array, tensors), strict=True)))
    except DeviceError as error:
        raise _refusal(part, error.message) from error
    # the caller's module, which has the state, is the reference
    wanted = left.run(part.call, tensors)
    for name, tensor in zip(part.outputs, wanted, strict=True):
        gap = difference(found[name], array(tensor))
        if gap > _TOLERANCE:
            raise _refusal(
                part,
                f"what {factory} makes differs from it by {gap:.2g} of the largest value "
                f"({type_name(tensor)} output {name!r})",
            )
    return made


def _tree(value: Any, part: LeftModule) -> dict[str, Any]:
    """Returns arguments in the form of a Python part's record."""
    if isinstance(value, _Name):
        return {"tensor": value.name}
    if value is None or isinstance(value, bool | int | float | str):
        return {"constant": value}
    # a subclass could not be made again on a board
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return {"dict": {key: _tree(item, part) for key, item in value.items()}}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_tree(item, part) for item in value]}
    raise _refusal(part, f"an argument of {type(value).__qualname__} cannot be in a bundle")


def _refusal(part: LeftModule, problem: str) -> UsageError:
    return UsageError(
        f"the module cannot become a Python part: {problem}",
        code="compile.python",
        where=part.module,
        hint="name a function without arguments, from a file without imports of its own package: "
        'python={"path.of.module": "package.module:factory"}',
    )
