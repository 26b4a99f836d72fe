"""Whether an exported file computes what PyTorch computes: both run on the example and on random
inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from edgekit.errors import GateError
from edgekit.pytorch.document import Agreement
from edgekit.pytorch.source_errors import free_size

#: The largest difference, by the output's largest magnitude, for the module's least precise type:
#: sums in another order, and for short types their rounding at each node.
# INT8: sums in another order move a value that lies between two codes, which are 1/127 apart
TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 2e-2, "bfloat16": 6e-2, "int8": 2e-2}
# of integers and flags, the share that may differ: near ties of an argmax
_TIES = 0.01


def compare(
    run: Callable[[Sequence[Any]], Sequence[Any]],
    outputs: Sequence[str],
    cases: Iterable[tuple[Sequence[Any], Sequence[Any]]],
    tolerance: float,
) -> Agreement:
    """Returns how far an exported network is from PyTorch.

    Args:
        run: Runs the exported network: input tensors in order, to outputs in order.
        outputs: The names of its outputs.
        cases: Input tensors, each with PyTorch's outputs.
        tolerance: The largest difference that passes.

    Raises:
        GateError: ``torch.differs``: they differ by more.
        ModelError: ``torch.dynamic_shapes``: PyTorch's outputs have another size in each case.
    """
    worst, name, count = 0.0, outputs[0], 0
    sizes: dict[str, Any] = {}
    for tensors, expected in cases:
        for output, theirs in zip(outputs, expected, strict=True):
            if sizes.setdefault(output, theirs.shape) != theirs.shape:
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
    """Returns a tensor's values in NumPy; bfloat16 and float64 become float32, as in the file."""
    import torch

    plain = tensor.detach().cpu()
    if plain.dtype in (torch.bfloat16, torch.float64):
        plain = plain.float()
    found: np.ndarray = plain.contiguous().numpy()
    return found


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Returns the largest difference, by the largest magnitude of ``theirs``.

    Integers and flags differ not at all (0) or too often (infinity), as do other shapes and NaN.
    """
    if ours.shape != theirs.shape:
        return float("inf")
    if not ours.size:
        return 0.0
    if theirs.dtype.kind != "f":
        share = float(np.mean(ours != theirs))
        # ties pass, and what passes is no difference of numbers
        return 0.0 if share <= _TIES else float("inf")
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(np.abs(b[finite]).max())
    gap = float(np.abs(a[finite] - b[finite]).max())
    if not np.isfinite(gap):
        return float("inf")
    return gap / largest if largest else gap
