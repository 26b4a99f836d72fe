"""Sizes of an engine's tensors that are open at build time: profiles, outputs whose size is known
only during the run, and shape tensors on the host, whose values set shapes.

An output whose shape depends on values (NonZero, NonMaxSuppression) has no shape before the run:
``get_tensor_shape`` keeps its -1 although every input's shape is set (NvInferRuntime.h,
IExecutionContext::getTensorShape). TensorRT then asks an IOutputAllocator for memory. A shape
tensor is read or written on the host (ICudaEngine::getTensorLocation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit_device.arrays.formats import convert
from edgekit_device.cuda.memory import (
    BufferPool,
    DeviceTensor,
    MemoryLease,
    Tensor,
    at_shape,
    io_bytes,
)
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry, matches_shape

if TYPE_CHECKING:
    import numpy as np


def is_on_host(engine: Any, name: str) -> bool:
    """Returns True for a shape tensor, whose address is on the host."""
    try:
        return str(engine.get_tensor_location(name).name) == "HOST"
    except TypeError:  # the lean runtime's module of 8.6 lacks the enum's type
        # in 8.6 only shape tensors are on the host
        return bool(engine.is_shape_inference_io(name))


def final_shape(io: IoEntry, found: Sequence[int]) -> Tuple[int, ...]:
    """Returns an output's shape in this run, for its buffer.

    Raises:
        DeviceError: "engine.io" if it is unknown, or differs from its fixed sizes.
    """
    shape = tuple(int(size) for size in found)
    # a negative size would make the buffer too small
    if not (matches_shape(shape, io.shape) and min(shape, default=0) >= 0):
        raise DeviceError(
            "{!r} has the shape {} for these inputs instead of {}".format(
                io.name[:80], list(shape), list(io.shape)
            ),
            code="engine.io",
            where=io.name[:80],
            hint="build the bundle again",
        )
    return shape


class _OutputMemory:
    """The memory that an output allocator gave in this run, and the shape that it received."""

    def __init__(self, device: BufferPool) -> None:
        self._device = device
        self.lease: Optional[MemoryLease] = None
        self.shape: Tuple[int, ...] = (-1,)
        self.error: Optional[DeviceError] = None

    def take(self, size: int) -> int:
        # the library calls this: an exception would be lost, or end the process
        try:
            # address 0 means a failure (guide 10.7, section 9.5): an empty output needs an address,
            # too
            self.lease = self._device.take(max(int(size), 1))
        except DeviceError as error:
            self.error = error
            return 0
        return self.lease.ptr

    def forget(self) -> None:
        self.lease, self.shape, self.error = None, (-1,), None


class SizedOutput:
    """Provides memory for an output whose size is known only during the run.

    Attributes:
        allocator: For ``context.set_output_allocator``.
    """

    def __init__(self, trt: Any, device: BufferPool) -> None:
        class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
            # reference counting alone never frees a class, so it must not hold device memory
            def __init__(self, memory: _OutputMemory) -> None:
                trt.IOutputAllocator.__init__(self)
                self.memory = memory

            def reallocate_output(self, name: str, memory: Any, size: int, alignment: int) -> int:
                return self.memory.take(size)

            def reallocate_output_async(
                self, name: str, memory: Any, size: int, alignment: int, stream: Any
            ) -> int:
                return self.memory.take(size)

            def notify_shape(self, name: str, shape: Any) -> None:
                self.memory.shape = tuple(int(each) for each in shape)

        self._device = device
        self._memory = _OutputMemory(device)
        self.allocator = Allocator(self._memory)

    def begin(self) -> None:
        """Discards the previous run's tensor, which may still be in use."""
        self._memory.forget()

    @property
    def error(self) -> Optional[DeviceError]:
        """The error of a failed allocation in this run; None without."""
        return self._memory.error

    def tensor(self, io: IoEntry) -> DeviceTensor:
        """Returns the output after the run.

        Raises:
            DeviceError: "engine.io" if TensorRT reported no shape, or a wrong shape.
        """
        # once per run: the caller owns the memory afterwards
        memory = self._memory
        shape = final_shape(io, memory.shape)
        # TensorRT may need no memory for an empty output
        lease = memory.lease or self._device.take(1)
        # a lease copies all its bytes to the host, so it is limited to the tensor's: TensorRT may
        # have asked for more
        nbytes = lease.nbytes = io_bytes(at_shape(io, shape))
        memory.forget()
        return DeviceTensor(
            lease.ptr, nbytes, io.dtype, shape, io.format, io.strides, io.scale, lease
        )


class Profiles:
    """An engine's profiles.

    Attributes:
        dynamic: Names of the inputs whose shape must be set.
    """

    def __init__(self, engine: Any, inputs: Sequence[IoEntry]) -> None:
        self._engine = engine
        self._inputs = tuple(inputs)
        self.dynamic = [io.name for io in inputs if -1 in tuple(engine.get_tensor_shape(io.name))]

    def of(self, feeds: Mapping[str, Tensor]) -> Tuple[int, Dict[str, Tuple[int, ...]]]:
        """Returns the first optimisation profile (its index) that takes the shapes, and the shapes.

        Raises:
            DeviceError: "input.missing" or "input.shape".
        """
        shapes: Dict[str, Tuple[int, ...]] = {}
        for io in self._inputs:
            if io.name not in feeds:
                raise DeviceError(
                    "input {!r} is missing".format(io.name[:80]),
                    code="input.missing",
                    where=io.name[:80],
                )
            shapes[io.name] = tuple(feeds[io.name].shape)
        for io in self._inputs:
            if not matches_shape(shapes[io.name], io.shape):
                raise _shape_error(io, shapes[io.name], list(io.shape))
        if not self.dynamic:
            return 0, shapes
        for number in range(int(self._engine.num_optimization_profiles)):
            for name in self.dynamic:
                low, _, high = self._engine.get_tensor_profile_shape(name, number)
                sides = zip(tuple(low), shapes[name], tuple(high))  # noqa: B905
                if not all(int(least) <= size <= int(most) for least, size, most in sides):
                    break
            else:
                return number, shapes
        (first,) = [io for io in self._inputs if io.name == self.dynamic[0]]
        raise _shape_error(first, shapes[first.name], "no profile of the engine supports it")


def _shape_error(io: IoEntry, found: Tuple[int, ...], wanted: Any) -> DeviceError:
    return DeviceError(
        "{!r} has shape {}, but the engine needs {}".format(io.name[:80], list(found), wanted),
        code="input.shape",
        where=io.name[:80],
    )


def host_values(io: IoEntry, value: Tensor, keep: List[Any]) -> np.ndarray:
    """Returns an input that TensorRT reads on the host."""
    import numpy as np

    array = value.numpy() if isinstance(value, DeviceTensor) else np.asarray(value)
    # TensorRT reads the address later: ``keep`` holds the array until the run is over
    made: np.ndarray = np.ascontiguousarray(convert(array, io.dtype, None, io.scale, io.name))
    keep.append(made)
    return made
