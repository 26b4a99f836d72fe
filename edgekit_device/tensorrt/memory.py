"""Device memory of engines: the memory of running contexts, which engines of one device share or
the caller provides; the budget of streamed weights; the persistent L2 cache. Start with
``MemoryPlan``.

"Enqueue memory is used to hold intermediate results while processing the network"; it can be shared
"between multiple contexts not running concurrently" (TensorRT Developer Guide 10.7, section 5.3.2).
When frames are streamed, engines of one device take turns, and engines of two devices do not, so
each device has its own block. Threads that call a model at once get a block each.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence

from edgekit_device.cuda.memory import DeviceBuffer
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import AUTOMATIC, Manifest, MemorySettings
from edgekit_device.protocol.memory import ALIGNED, align, context_bytes

if TYPE_CHECKING:
    from edgekit_device.cuda.driver import Cuda
    from edgekit_device.tensorrt.runtimes import EngineRuntime, LoadedPlan


_BUDGET = "weight_streaming_budget_v2"


def device_bytes(engine: Any) -> int:
    """Returns the bytes that an engine's context needs while it runs, at its largest profile."""
    for name in ("device_memory_size_v2", "device_memory_size"):  # v2 since 10.1, only v2 since 11
        if hasattr(engine, name):
            return int(getattr(engine, name))
    return 0


def most_device_bytes(engine: Any) -> int:
    """Returns the same for any weight budget: before a budget is set, ``device_bytes`` does not
    include the memory for streaming (section 6.18).
    """
    # absent before 10.1
    return device_bytes(engine) + int(getattr(engine, "weight_streaming_scratch_memory_size", 0))


@dataclass(frozen=True)
class GivenMemory:
    """Device memory that the caller provides.

    Attributes:
        address: Its address.
        nbytes: Its size in bytes.
        tensor: The tensor that keeps it alive.
    """

    address: int
    nbytes: int
    tensor: Any


def given_memory(tensor: Any) -> GivenMemory:
    """Returns the memory of a contiguous GPU tensor of PyTorch, CuPy or Numba.

    Raises:
        DeviceError: "memory.invalid".
    """
    about = getattr(tensor, "__cuda_array_interface__", None)
    if about is None:
        raise _invalid(
            "{} is no tensor on the GPU".format(type(tensor).__name__),
            'pass such as torch.empty(BYTES, dtype=torch.uint8, device="cuda")',
        )
    # __cuda_array_interface__ has None for C-contiguous
    if about.get("strides") is not None:
        raise _invalid("the tensor is not contiguous", "pass a tensor of one dimension")
    import numpy as np

    nbytes = np.dtype(about["typestr"]).itemsize
    for size in about["shape"]:
        nbytes *= int(size)
    address = int(about["data"][0])
    if address % ALIGNED:
        raise _invalid(
            "the tensor begins at {:#x}, no multiple of {}".format(address, ALIGNED),
            "pass a tensor of its own, not a slice",
        )
    return GivenMemory(address, nbytes, tensor)


def _invalid(message: str, hint: str) -> DeviceError:
    return DeviceError(message, code="memory.invalid", where="device_memory", hint=hint)


class SharedMemory:
    """Device memory for contexts that take turns: a block has the size of the largest need, and
    there are as many blocks as contexts ever ran at once. The caller's memory is a single block,
    for which threads wait.

    Attributes:
        nbytes: Size of a block; 0 for contexts that need none.
    """

    def __init__(self, cuda: Cuda) -> None:
        self.nbytes = 0
        self._cuda = cuda
        self._given: Optional[GivenMemory] = None
        self._blocks: Dict[int, DeviceBuffer] = {}
        self._free: List[int] = []
        self._turn = threading.Condition()

    def reserve(self, nbytes: int) -> None:
        """Makes blocks at least this large.

        Raises:
            DeviceError: "memory.small" if the caller's memory is smaller.
        """
        with self._turn:
            if align(nbytes) <= self.nbytes:
                return
            # the caller's memory was divided when the first engines opened, and cannot grow
            if self._given:
                raise DeviceError(
                    "an engine needs {:,} bytes of device memory, but {:,} of those that were "
                    "given are this device's".format(align(nbytes), self.nbytes),
                    code="memory.small",
                    where="device_memory",
                )
            self.nbytes = align(nbytes)
            # running contexts keep their old blocks, which are freed afterwards
            for address in self._free:
                del self._blocks[address]
            self._free = []

    def give(self, given: GivenMemory, offset: int, nbytes: int) -> None:
        """Uses a part of the caller's memory as the single block, and keeps it alive."""
        self._given, self.nbytes, self._free = given, nbytes, [given.address + offset]

    def open(self) -> None:
        """Allocates the first block if there is none, so that a lack of memory shows at once.

        Raises:
            DeviceError: "cuda.no-memory".
        """
        if not self._blocks and self._given is None:
            with self.block():
                pass

    @contextmanager
    def block(self, wait: bool = True) -> Iterator[int]:
        """Yields a block's address for exclusive use by a run.

        Args:
            wait: True to wait for the caller's memory.

        Raises:
            DeviceError: "cuda.no-memory", or "memory.small" if the caller's memory is in use and
                ``wait`` is false.
        """
        if not self.nbytes:
            yield 0
            return
        address = self._take(wait)
        try:
            yield address
        finally:
            with self._turn:
                # a block from before a ``reserve`` is too small for later runs
                block = self._blocks.get(address)
                if block is None or block.nbytes >= self.nbytes:
                    self._free.append(address)
                else:
                    del self._blocks[address]
                self._turn.notify()

    def _take(self, wait: bool) -> int:
        with self._turn:
            while self._given and not self._free:
                if not wait:
                    raise DeviceError(
                        "the device memory that was given is in use by another engine",
                        code="memory.small",
                        where="device_memory",
                        hint="load the model without device_memory for CUDA graphs",
                    )
                self._turn.wait()
            # the caller's memory, or an idle block
            if self._free:
                return self._free.pop()
            made = DeviceBuffer(self._cuda, self.nbytes)
            self._blocks[made.ptr] = made
            return made.ptr


class EngineMemory:
    """The memory of an engine's contexts.

    Args:
        loaded: The engine, with complete weights.
        shared: Memory that it shares; None if TensorRT allocates memory for each context.
        cache_bytes: Bytes of persistent L2 cache of its first context. "The total persistent cache
            among all contexts should not exceed" the device's (section 5.3.4), so others get none.
    """

    def __init__(
        self,
        loaded: LoadedPlan,
        shared: Optional[SharedMemory] = None,
        cache_bytes: int = 0,
    ) -> None:
        self._trt = loaded.trt
        self._engine = loaded.engine
        self._shared = shared
        self._cache_bytes = self._cache_left = cache_bytes
        self._lock = threading.Lock()
        self.nbytes = device_bytes(loaded.engine)

    def context(self, cached: bool = True) -> Any:
        """Returns a new context; None if TensorRT fails.

        Args:
            cached: True if it may have the engine's part of the persistent cache.
        """
        if self._shared is None:
            made = self._engine.create_execution_context()
        # contexts without memory: each run lends a block before it is enqueued
        elif hasattr(self._trt, "ExecutionContextAllocationStrategy"):  # since 10.0
            strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
            made = self._engine.create_execution_context(strategy)
        else:
            made = self._engine.create_execution_context_without_device_memory()
        if cached and made is not None:
            with self._lock:
                # only once: the limits of all contexts together must not exceed the device's
                cache, self._cache_left = self._cache_left, 0
            if cache:
                made.persistent_cache_limit = cache
        return made

    @contextmanager
    def block(self, wait: bool = True) -> Iterator[int]:
        """Yields a run's memory, as ``SharedMemory.block``; 0 for contexts with their own."""
        if self._shared is None:
            yield 0
            return
        with self._shared.block(wait) as address:
            yield address

    def lend(self, context: Any, address: int) -> None:
        """Gives a block to a context, before it is enqueued."""
        if self._shared is None or not self.nbytes:
            return
        if hasattr(context, "set_device_memory"):  # since 10.1
            context.set_device_memory(address, self.nbytes)
        else:
            context.device_memory = address

    def facts(self, known: EngineRuntime) -> EngineRuntime:
        """Returns the engine's runtime facts with its memory."""
        engine = self._engine
        # the budget can be read since 10.1
        streamed = hasattr(engine, _BUDGET) and int(engine.streamable_weights_size) > 0
        return replace(
            known,
            context_memory="own" if self._shared is None else "shared",
            context_bytes=self.nbytes,
            persistent_cache_bytes=self._cache_bytes,
            weight_budget_bytes=int(getattr(engine, _BUDGET)) if streamed else None,
        )


class MemoryPlan:
    """The memory of all engines of a bundle, also of engines that open later.

    Args:
        settings: The bundle's settings.
        devices: The device of each of its plans, as its segments name them.
        expected: Bytes that contexts need by device, as far as they are known before.
        tensor: The caller's memory for all contexts, as a tensor on the GPU; None without.

    Attributes:
        notes: Sentences about settings without effect on this board.

    Raises:
        DeviceError: "memory.invalid".
    """

    def __init__(
        self,
        settings: MemorySettings,
        devices: Sequence[str],
        expected: Optional[Mapping[str, int]] = None,
        tensor: Any = None,
    ) -> None:
        self.notes: List[str] = []
        self._settings = settings
        self._devices = list(devices)
        # variants that open later are counted when the caller's memory is divided
        self._expected = dict(expected or {})
        self._given = None if tensor is None else given_memory(tensor)
        self._pools: Dict[str, SharedMemory] = {}
        self._cut = False
        self._cuda: Any = None

    @classmethod
    def of(cls, manifest: Manifest, tensor: Any = None) -> MemoryPlan:
        """Returns the memory plan of a bundle's engines, of all its variants."""
        entries = manifest.engines
        every = {(segment.engine, segment.device) for segment in manifest.segments()}
        plans = sorted(key for key in every if key[0] in entries and entries[key[0]].kind == "plan")
        devices = [device for _, device in plans]
        return cls(manifest.memory, devices, context_bytes(plans, entries), tensor)

    def engine(self, loaded: LoadedPlan, cuda: Cuda, device: str) -> EngineMemory:
        """Returns the memory of an engine with complete weights, before it has any context.

        Raises:
            DeviceError: "engine.failed" if TensorRT refuses the budget; "memory.small".
        """
        self._cuda = cuda
        # first: the budget changes the memory that a context needs
        self._set_budget(loaded)
        # a single engine cannot share
        alone = self._devices.count(device) < 2 or not self._settings.shared
        if self._given is None and alone:
            return EngineMemory(loaded, None, self._cache(cuda))
        pool = self._pools.setdefault(device, SharedMemory(cuda))
        pool.reserve(device_bytes(loaded.engine))
        return EngineMemory(loaded, pool, self._cache(cuda))

    def open(self) -> None:
        """Allocates the shared memory, once the engines that open together are known.

        Raises:
            DeviceError: "cuda.no-memory", or "memory.small" if the caller's memory is too small.
        """
        if self._given is None:
            for pool in self._pools.values():
                pool.open()
        elif self._pools and not self._cut:
            # once: afterwards contexts use their parts of the memory
            self._cut = True
            self._split_given(self._given)

    def _split_given(self, given: GivenMemory) -> None:
        """Gives each device its part of the caller's memory."""
        sizes = dict(self._expected)
        for device, pool in self._pools.items():
            sizes[device] = max(pool.nbytes, sizes.get(device, 0))
        needed = sum(sizes.values())
        if given.nbytes < needed:
            raise DeviceError(
                "the engines need {:,} bytes of device memory, but {:,} were given".format(
                    needed, given.nbytes
                ),
                code="memory.small",
                where="device_memory",
                hint="needed: {}".format(
                    ", ".join("{:,} on {}".format(size, name) for name, size in sizes.items())
                ),
            )
        offset = 0
        for device, size in sizes.items():
            self._pools.setdefault(device, SharedMemory(self._cuda)).give(given, offset, size)
            offset += size

    def _cache(self, cuda: Cuda) -> int:
        part = self._settings.persistent_cache
        if not part:
            return 0
        most = cuda.persistent_cache()
        if not most:
            self._note("deploy.memory.persistent_cache has no effect: this GPU has no such cache")
        # an equal part for the first context of each engine
        return int(most * part) // max(len(self._devices), 1)

    def _set_budget(self, loaded: LoadedPlan) -> None:
        wanted, engine = self._settings.weight_budget, loaded.engine
        if wanted is None:
            return
        if not hasattr(engine, _BUDGET):
            self._note("deploy.memory.weights_mib has no effect: this TensorRT is older than 10.1")
            return
        whole = int(engine.streamable_weights_size)
        if not whole:
            self._note(
                "deploy.memory.weights_mib has no effect: the engine was built without "
                "weight streaming"
            )
            return
        if wanted == AUTOMATIC:
            wanted = int(engine.get_weight_streaming_automatic_budget())
        # more than all weights means all weights
        budget = min(wanted, whole)
        loaded.listener.forget()
        engine.weight_streaming_budget_v2 = budget
        # the setter gives no result: a refusal shows only in the value
        if int(engine.weight_streaming_budget_v2) != budget:
            raise loaded.listener.error(
                "TensorRT does not take a budget of {:,} bytes of {:,} for weights".format(
                    budget, whole
                ),
                "engine.failed",
            )

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
