"""Whether a file's or a model's weights are of the names, shapes and types that are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from edgekit._listed import listed
from edgekit.errors import DataError
from edgekit.network._deferred import entries
from edgekit.network._types import Model

__all__ = ["WeightType", "check_weights", "differences", "mismatch", "weight_types"]

#: NumPy type name and shape.
WeightType: TypeAlias = tuple[str, tuple[int, ...]]

_SHOWN = 20


def weight_types(model: Model) -> dict[str, WeightType]:
    """Returns type and shape of every weight by name, without computing any."""
    return {
        name: (value.dtype.name, tuple(value.shape))
        for name, value in entries(model.weights).items()
    }


def check_weights(
    path: str | Path,
    needed: Callable[[Collection[str]], Mapping[str, WeightType]] | Mapping[str, WeightType],
) -> None:
    """Refuses a file whose weights cannot take the place of a model's.

    Only initializers are looked at, before the graph is: weights of another shape often make a
    graph that no longer fits together, which says less. A weight that the file computes (a folded
    constant) is judged later.

    Args:
        path: The ONNX file.
        needed: The weights by name; or what says them for the names that the file has.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists the weights.
        ModelError: The file cannot be read.
    """
    import onnx

    from edgekit.network._files import read

    proto, _ = read(Path(path))
    computed = {name for node in proto.graph.node for name in node.output}
    found = {
        tensor.name: (
            onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).name,
            tuple(tensor.dims),
        )
        for tensor in proto.graph.initializer
    }
    if callable(needed):
        needed = needed(found)
    known = {name: kind for name, kind in needed.items() if name in found or name not in computed}
    faults = differences(found, known)
    if faults:
        raise mismatch(faults, len(needed), str(path))


def differences(found: Mapping[str, WeightType], needed: Mapping[str, WeightType]) -> list[str]:
    """Returns a line for each weight of ``needed`` that is missing or of another type or shape."""
    faults = []
    for name, wanted in needed.items():
        if name not in found:
            faults.append(f"{name} (missing)")
        elif found[name] != wanted:
            (dtype, shape), (was, sizes) = found[name], wanted
            faults.append(f"{name} ({dtype} {list(shape)}, the build has {was} {list(sizes)})")
    return faults


def mismatch(faults: Sequence[str], total: int, where: str) -> DataError:
    """Returns the error that lists weights which cannot be used.

    Args:
        faults: A line for each.
        total: Number of weights that were looked for.
        where: The file they were looked for in.
    """
    return DataError(
        f"{len(faults)} of the build's {total} weights are not in the file with "
        "the same name, shape and type",
        code="refit.mismatch",
        where=where,
        hint="build again, or give a file of the same network: " + listed(faults, _SHOWN),
    )
