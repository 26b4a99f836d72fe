"""What INT8 of each kernel alone costs at the outputs: one pass over the inputs for all of them.

For each input the kernels run once, in order. A tensor has a row for the FP32 network and one for
each variant that differs from it there, so a variant begins at its own kernel, from what the FP32
network computed before it, and takes part in no kernel that its kernel does not reach. The rows
of all variants pass a kernel in one call, stacked along the batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from edgekit.errors import DataError
from edgekit.sensitivity._chain import Chain
from edgekit.sensitivity._types import Sensitivity

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model, Network
    from edgekit.placement import Plan
    from edgekit.quantize import Scales

__all__ = ["analyse"]

# tensors held at once; above it the variants are taken in several groups
_MEMORY = 1 << 30


def analyse(
    model: Model,
    network: Network,
    plan: Plan,
    scales: Scales | None,
    data: Iterable[Mapping[str, np.ndarray]],
    *,
    progress: Callable[[int, int], None] | None = None,
    memory: int = _MEMORY,
) -> Sensitivity:
    """Measures for each INT8 kernel what its INT8 costs, with all others in FP32.

    Weights and activations of the kernel are quantised as ``build_reference`` has them in the
    plan's build: its result is that of a build in which the kernel alone is in INT8, up to the
    order in which ONNX Runtime adds.

    Args:
        model: The FP32 model.
        network: Its layers.
        plan: Placement and precision by layer.
        scales: INT8 scales.
        data: Inputs by name, one dict an inference; read once, one at a time.
        progress: Called with (kernels run, kernels to run or 0 where the inputs' number is
            unknown).
        memory: Bytes that tensors between kernels may take at once. What one kernel takes for
            itself comes on top, and is no more than in a run of the network.

    Returns:
        The kernels, worst first, and what does not run in INT8.

    Raises:
        DataError: No data, or it does not fit, or FP32 itself gives NaN or infinity.
        BuildError: The plan does not fit the model; ONNX Runtime fails.
    """
    from edgekit.build import Kernels
    from edgekit.quantize import check_feed

    chain = Chain(Kernels(model, network, plan, scales), memory)
    total = len(data) * chain.runs if isinstance(data, Sized) else 0
    count = 0
    workers = min(os.cpu_count() or 1, 8)
    with ThreadPoolExecutor(workers) as pool:
        for feed in data:
            checked = check_feed(feed, model, where=f"input {count}")
            done = count * chain.runs
            for part in chain.take(checked, pool, workers, count):
                if progress is not None:
                    progress(done + part, total)
            count += 1
    if count == 0:
        raise DataError(
            "there is no data to measure the sensitivity on",
            code="data.empty",
            hint="give at least one input",
        )
    wished = {placed.name: placed.precision for placed in plan.layers}
    floats = {
        layer: _why(kernel.precision, kernel.unscaled, wished=wished.get(layer, ""))
        for kernel in chain.kernels
        if kernel.precision != "int8"
        for layer in kernel.layers
    }
    return Sensitivity(chain.impacts(), floats, count)


def _why(precision: str, unscaled: tuple[str, ...], *, wished: str) -> str:
    if unscaled:
        return f"no scale for {', '.join(map(repr, unscaled[:3]))}"
    if wished == "int8":
        return f"{precision}: it has no INT8 kernel, or moves what has none"
    return f"{wished or precision} in the plan"
