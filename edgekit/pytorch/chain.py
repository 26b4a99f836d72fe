"""A network with modules that stay in PyTorch, run step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx

from edgekit.errors import ModelError
from edgekit.network.left_modules import CompiledPart, LeftModule, parts
from edgekit.network.session import open_session
from edgekit.pytorch.agreement import array
from edgekit.pytorch.left import LeftOut

if TYPE_CHECKING:
    from torch import Tensor

#: Takes arrays by input name, returns arrays by output name.
RunArrays: TypeAlias = "Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]"


@dataclass(frozen=True)
class Step:
    """Something that takes tensors and returns tensors, with the names of both."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Callable[[Sequence[Tensor]], Sequence[Tensor]]


def run_steps(steps: Iterable[Step], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Runs steps in order; returns their inputs and outputs by name."""
    known = dict(tensors)
    for step in steps:
        made = step.run([known[name] for name in step.inputs])
        known.update(zip(step.outputs, made, strict=True))
    return known


def left_step(part: LeftModule, left: LeftOut) -> Step:
    """Returns the step of a module that stays in PyTorch."""
    return Step(part.inputs, part.outputs, lambda tensors: left.run(part.call, tensors))


def array_step(inputs: tuple[str, ...], outputs: tuple[str, ...], run: RunArrays) -> Step:
    """Returns the step of a compiled part, whose results are on the CPU."""

    def on_arrays(tensors: Sequence[Tensor]) -> list[Tensor]:
        import torch

        found = run(dict(zip(inputs, map(array, tensors), strict=True)))
        # PyTorch takes no strides that go backwards, and no read-only memory
        plain = (np.require(found[name], requirements=["C", "W"]) for name in outputs)
        return [torch.from_numpy(value) for value in plain]

    return Step(inputs, outputs, on_arrays)


def steps_of_file(path: Path, left: LeftOut | None, *, optimise: bool = True) -> list[Step]:
    """Opens an exported file for ONNX Runtime and returns its steps.

    Args:
        path: The file.
        left: The modules that stay in PyTorch; None for a file without such nodes.
        optimise: False turns ONNX Runtime's optimisations off, which change a quantised network's
            values: they quantise biases and weights that the network does not.

    Raises:
        ModelError: ``model.runtime``: ONNX Runtime cannot run the file, now or in a step.
    """
    if left is None:
        return [session_step(str(path), str(path), optimise=optimise)]
    return [
        session_step(part.model.SerializeToString(), str(path), optimise=optimise)
        if isinstance(part, CompiledPart)
        else left_step(part, left)
        for part in parts(onnx.load(path))
    ]


def session_step(data: str | bytes, where: str, *, optimise: bool = True) -> Step:
    """Returns the step of an ONNX file that ONNX Runtime runs on this machine.

    Args:
        data: The file, or its bytes.
        where: What messages call it.
        optimise: As of :func:`steps_of_file`.

    Raises:
        ModelError: ``model.runtime``: ONNX Runtime cannot run it, now or in the step.
    """
    try:
        session = open_session(data, {}, optimise=optimise)
    except Exception as error:  # ONNX Runtime's own share no base class
        raise _not_run(where, error) from error
    inputs = tuple(one.name for one in session.get_inputs())
    outputs = tuple(one.name for one in session.get_outputs())

    def run(feed: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        try:
            values: Any = session.run(None, feed)
        except Exception as error:
            raise _not_run(where, error) from error
        return dict(zip(outputs, values, strict=True))

    return array_step(inputs, outputs, run)


def _not_run(where: str, error: Exception) -> ModelError:
    return ModelError(
        f"ONNX Runtime cannot run the exported network: {' '.join(str(error).split())}",
        code="model.runtime",
        where=where,
        hint='try the other exporter (exporter="legacy" or "dynamo")',
    )
