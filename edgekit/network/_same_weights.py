"""Whether a file's weights are of the names, shapes and types that a model has."""

from __future__ import annotations

from pathlib import Path

from edgekit.errors import DataError
from edgekit.network._deferred import entries
from edgekit.network._types import Model

__all__ = ["check_weights"]

_SHOWN = 20


def check_weights(path: str | Path, model: Model) -> None:
    """Refuses a file whose weights cannot take the place of ``model``'s.

    Only initializers are looked at, before the graph is: weights of another shape often make a
    graph that no longer fits together, which says less. A weight that the file computes (a folded
    constant) is judged later.

    Raises:
        DataError: Code "refit.mismatch"; the hint lists the weights.
        ModelError: The file cannot be read.
    """
    import onnx

    from edgekit.network._files import read

    proto, _ = read(Path(path))
    computed = {name for node in proto.graph.node for name in node.output}
    found = {tensor.name: tensor for tensor in proto.graph.initializer}
    faults = []
    for name, value in entries(model.weights).items():
        tensor = found.get(name)
        if tensor is None:
            if name not in computed:
                faults.append(f"{name} (missing)")
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if tuple(tensor.dims) != value.shape or dtype != value.dtype:
            was = f"{value.dtype} {list(value.shape)}"
            faults.append(f"{name} ({dtype} {list(tensor.dims)}, the build has {was})")
    if faults:
        more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise DataError(
            f"{len(faults)} of the build's {len(model.weights)} weights are not in the file with "
            "the same name, shape and type",
            code="refit.mismatch",
            where=str(path),
            hint="build again, or give a file of the same network: "
            + ", ".join(faults[:_SHOWN])
            + more,
        )
