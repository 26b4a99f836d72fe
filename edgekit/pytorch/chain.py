"""Runs an exported network step by step, with its left-out modules, and compares its results with
PyTorch's on the example and on random inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx

from edgekit.errors import GateError, ModelError
from edgekit.network.left_modules import CompiledPart, LeftModule, parts
from edgekit.network.session import open_session
from edgekit.pytorch.document import Agreement
from edgekit.pytorch.left import LeftOut
from edgekit.pytorch.source_errors import free_size

if TYPE_CHECKING:
    from edgekit.pytorch.signature import Values

#: The largest difference relative to the output's largest magnitude, by the module's least precise
#: type: due to another order of sums, and for short types the rounding at each node.
# INT8: another order of sums moves values between two codes, which are 1/127 apart
TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 2e-2, "bfloat16": 6e-2, "int8": 2e-2}
# fraction of integers and flags that may differ: near ties of an argmax
_TIES = 0.01
# ONNX Runtime's words for an operator of another domain
_UNKNOWN_OPERATOR = "is not a registered function"
#: Takes arrays by input name, returns arrays by output name.
RunArrays: TypeAlias = "Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]"


def compare(
    run: Callable[[Sequence[Any]], Sequence[Any]],
    outputs: Sequence[str],
    cases: Iterable[tuple[Sequence[Any], Sequence[Any]]],
    tolerance: float,
) -> Agreement:
    """Returns the difference between an exported network and PyTorch.

    Args:
        run: Runs the exported network: input tensors in order, to outputs in order.
        outputs: The names of its outputs.
        cases: Input tensors, each with PyTorch's outputs.
        tolerance: The largest allowed difference.

    Raises:
        GateError: ``torch.differs``: the difference exceeds the tolerance.
        ModelError: ``torch.dynamic_shapes``: the sizes of PyTorch's outputs depend on the inputs'
            values.
    """
    worst, name, count = 0.0, outputs[0], 0
    sizes: dict[tuple[Any, ...], Any] = {}
    for tensors, expected in cases:
        given = tuple(tuple(tensor.shape) for tensor in tensors)
        for output, theirs in zip(outputs, expected, strict=True):
            # inputs of equal sizes must give outputs of equal sizes
            if sizes.setdefault((output, given), theirs.shape) != theirs.shape:
                raise free_size(None, output)
        found = run(tensors)
        count += 1
        for output, ours, theirs in zip(outputs, found, expected, strict=True):
            gap = difference(array(ours), array(theirs))
            if gap > worst:
                worst, name = gap, output
    if worst > tolerance:
        raise GateError(
            f"the exported network's output {name!r} differs from PyTorch's by {worst:.2g} of its "
            f"largest value (tolerance {tolerance:.2g})",
            code="torch.differs",
            where=name,
            hint="try the other exporter (exporter=); a module whose code depends on the inputs' "
            "values can stay in PyTorch (leave=)",
        )
    return Agreement(inputs=count, difference=worst, tolerance=tolerance, output=name)


def array(tensor: Any) -> np.ndarray:
    """Returns a tensor's values in NumPy; bfloat16 and float64 become float32, as in the file.

    An array is returned unchanged.
    """
    if isinstance(tensor, np.ndarray):
        return tensor
    import torch

    plain = tensor.detach().cpu()
    if plain.dtype in (torch.bfloat16, torch.float64):
        plain = plain.float()
    found: np.ndarray = plain.contiguous().numpy()
    return found


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Returns the largest difference, relative to the largest magnitude of ``theirs``.

    Integers and flags give 0 or, if too many differ, infinity; so do other shapes and NaN.
    """
    if ours.shape != theirs.shape:
        return float("inf")
    if not ours.size:
        return 0.0
    if theirs.dtype.kind != "f":
        share = float(np.mean(ours != theirs))
        # near ties pass, and have no numeric difference
        return 0.0 if share <= _TIES else float("inf")
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(b)
    # NaN and infinity must be in the same places
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(np.abs(b[finite]).max())
    gap = float(np.abs(a[finite] - b[finite]).max())
    if not np.isfinite(gap):
        return float("inf")
    return gap / largest if largest else gap


@dataclass(frozen=True)
class Step:
    """A step that takes and returns tensors or arrays, with the names of both.

    PyTorch's modules return tensors, all other steps arrays.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Callable[[Sequence[Values]], Sequence[Values]]


def run_steps(steps: Iterable[Step], values: Mapping[str, Values]) -> dict[str, Values]:
    """Runs steps in order; returns their inputs and outputs by name."""
    known = dict(values)
    for step in steps:
        made = step.run([known[name] for name in step.inputs])
        known.update(zip(step.outputs, made, strict=True))
    return known


def torch_step(part: LeftModule, left: LeftOut) -> Step:
    """Returns the step of a module that stays in PyTorch."""
    return Step(part.inputs, part.outputs, lambda values: left.run(part.call, values))


def array_step(inputs: tuple[str, ...], outputs: tuple[str, ...], run: RunArrays) -> Step:
    """Returns the step of a function that takes and returns arrays."""

    def on_arrays(values: Sequence[Values]) -> list[Values]:
        found = run(dict(zip(inputs, map(array, values), strict=True)))
        return [np.asarray(found[name]) for name in outputs]

    return Step(inputs, outputs, on_arrays)


def open_steps(
    path: Path, left: Callable[[LeftModule], Step] | None, *, optimise: bool = True
) -> list[Step]:
    """Opens an exported file for ONNX Runtime and returns its steps.

    Args:
        path: The file.
        left: Returns the step of a left-out module; None for a file without such nodes.
        optimise: False disables ONNX Runtime's optimisations, which change a quantised network's
            values: they quantise biases and weights that the network does not quantise.

    Raises:
        ModelError: ``model.runtime``: ONNX Runtime cannot run the file, now or in a step.
    """
    if left is None:
        return [session_step(str(path), str(path), optimise=optimise)]
    return [
        session_step(part.model.SerializeToString(), str(path), optimise=optimise)
        if isinstance(part, CompiledPart)
        else left(part)
        for part in parts(onnx.load(path))
    ]


def session_step(data: str | bytes, where: str, *, optimise: bool = True) -> Step:
    """Returns the step of an ONNX file that ONNX Runtime runs on this machine.

    Args:
        data: The file, or its bytes.
        where: Its name in messages.
        optimise: As in :func:`open_steps`.

    Raises:
        ModelError: ``model.runtime``: ONNX Runtime cannot run it, now or in the step.
    """
    try:
        session = open_session(data, {}, optimise=optimise)
    except Exception as error:  # ONNX Runtime's exceptions share no base class
        raise _not_run_error(where, error) from error
    inputs = tuple(value.name for value in session.get_inputs())
    outputs = tuple(value.name for value in session.get_outputs())

    def run(feed: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        try:
            values: Any = session.run(None, feed)
        except Exception as error:
            raise _not_run_error(where, error) from error
        return dict(zip(outputs, values, strict=True))

    return array_step(inputs, outputs, run)


def _not_run_error(where: str, error: Exception) -> ModelError:
    text = " ".join(str(error).split())
    hint = 'try the other exporter (exporter="legacy" or "dynamo")'
    if _UNKNOWN_OPERATOR in text:
        hint = "a custom operator needs a plugin: write the ONNX file with torch.onnx.export, and "
        hint += "give it with model.plugins (docs/plugins.md)"
    return ModelError(
        f"ONNX Runtime cannot run the exported network: {text}",
        code="model.runtime",
        where=where,
        hint=hint,
    )
