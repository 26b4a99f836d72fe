"""Sizes of outputs are known before a run, and every tensor lies on the device: or it is refused.

The loader gives TensorRT a buffer for each output before it runs. An output whose shape depends on
values (NonZero, NonMaxSuppression) has none then: ``get_tensor_shape`` keeps its -1 although every
input's shape is set (NvInferRuntime.h, IExecutionContext::getTensorShape). A tensor whose values
make shapes is read on the host (ICudaEngine::getTensorLocation): a device pointer would not do.
"""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from ._errors import DeviceError
from ._types import IoEntry

__all__ = ["check_sizes", "settled"]


def check_sizes(
    engine: Any, context: Any, inputs: Sequence[IoEntry], outputs: Sequence[IoEntry]
) -> None:
    """Looks for tensors that this loader has no buffers for.

    Args:
        engine: The engine.
        context: A context of its profile 0, whose inputs' shapes are set here where they vary.
        inputs: The engine's inputs.
        outputs: Its outputs.

    Raises:
        DeviceError: "engine.io", naming every such tensor.
    """
    faults = [
        "{!r} is read or written on the host, since its values make shapes".format(io.name[:80])
        for io in (*inputs, *outputs)
        if _on_host(engine, io.name)
    ]
    if not faults:
        for io in inputs:
            if -1 in tuple(engine.get_tensor_shape(io.name)):
                _, best, _ = engine.get_tensor_profile_shape(io.name, 0)
                context.set_input_shape(io.name, best)
        faults = [
            "the shape of {!r} depends on values".format(io.name[:80])
            for io in outputs
            if -1 in tuple(context.get_tensor_shape(io.name))
        ]
    if faults:
        raise DeviceError(
            "the engine has inputs or outputs that have no size beforehand: {}".format(
                "; ".join(faults)
            ),
            code="engine.io",
            where=", ".join(io.name[:80] for io in outputs[:3]),
            hint="end the network before such a node (NonZero, NonMaxSuppression) and do the rest "
            "on the processor, or keep a fixed number of results (TopK)",
        )


def _on_host(engine: Any, name: str) -> bool:
    try:
        return str(engine.get_tensor_location(name).name) == "HOST"
    except TypeError:  # the lean runtime's module of 8.6 lacks the enum's type
        return bool(engine.is_shape_inference_io(name))


def settled(io: IoEntry, found: Sequence[int]) -> Tuple[int, ...]:
    """An output's shape in this run, which its buffer is made for.

    Raises:
        DeviceError: "engine.io" where it is unknown, or another than its fixed one.
    """
    shape = tuple(int(size) for size in found)
    fits = len(io.shape) == len(shape) and all(
        size >= 0 and want in (-1, size)
        for want, size in zip(io.shape, shape)  # noqa: B905
    )
    if not fits:
        raise DeviceError(
            "{!r} has the shape {} for these inputs, and {} was promised".format(
                io.name[:80], list(shape), list(io.shape)
            ),
            code="engine.io",
            where=io.name[:80],
            hint="build the bundle again",
        )
    return shape
