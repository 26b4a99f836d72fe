"""Memory and streams behind the fake CUDA: device pointers are host pointers, work waits in queues.

Work queued on a stream runs when something synchronises it, so a missing synchronisation shows.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from ._offences import record

_ALIGNED = 256  # cudaMalloc's own


class Memory:
    """Allocations and streams of one process.

    Attributes:
        offences: What a real device would have crashed on, in words.
        used: Whether anything was ever allocated through the fake CUDA.
    """

    def __init__(self) -> None:
        self.offences: list[str] = []
        self.blocks: dict[int, Any] = {}
        self.host: set[int] = set()
        self.queues: dict[int, list[Callable[[], None]]] = {}
        # streams that note their work for a graph, and the graphs
        self.captures: dict[int, list[Callable[[], None]]] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.used = False
        # contexts that run: where their device memory begins and ends, their stream and thread
        self.running: dict[int, tuple[int, int, int, int]] = {}
        #: Bytes of L2 cache that can be kept for chosen data: an AGX Orin's has 4 MiB in all.
        self.persistent_cache = 3 << 20
        #: How kernels are loaded: CUmoduleLoadingMode, 1 is eager and 2 is lazy.
        self.module_loading = 0
        #: The primary context's flags: how its threads wait.
        self.schedule = 0
        self._next = 0x1000

    def offend(self, text: str) -> None:
        """Keeps an offence."""
        self.offences.append(text)
        record(text)

    def reset(self) -> None:
        """Forgets everything, for the next test."""
        MEMORY.__dict__.update(Memory().__dict__)

    def allocate(self, size: int, host: bool = False) -> int:
        """The address of a new block of `size` bytes, filled with 0xCD."""
        self.used = True
        if self.captures:
            self.offend("memory is allocated while a stream is captured")
        whole = (ctypes.c_ubyte * (max(size, 1) + _ALIGNED))()
        address = -(-ctypes.addressof(whole) // _ALIGNED) * _ALIGNED
        block = (ctypes.c_ubyte * max(size, 1)).from_buffer(
            whole, address - ctypes.addressof(whole)
        )
        ctypes.memset(block, 0xCD, size)
        self.blocks[address] = block
        if host:
            self.host.add(address)
        return address

    def free(self, address: int, host: bool = False) -> bool:
        """Frees a block; False (and an offence) where it is none of this kind."""
        if address == 0:
            return True
        if address not in self.blocks or (address in self.host) != host:
            self.offend(f"free of {address:#x}, which is no {'host' if host else 'device'} block")
            return False
        self.flush_all()
        del self.blocks[address]
        self.host.discard(address)
        return True

    def space(self, address: int) -> int | None:
        """Bytes from `address` to the end of its block; None outside every block."""
        for start, block in self.blocks.items():
            if start <= address < start + len(block):
                return start + len(block) - address
        return None

    def covers(self, address: int, size: int, what: str) -> bool:
        """Whether `size` bytes from `address` lie in one block; else an offence."""
        space = self.space(address)
        if space is None or space < size:
            self.offend(f"{what}: {size} bytes at {address:#x}, where {space} are allocated")
            return False
        return True

    def handle(self) -> int:
        """A new handle (of a stream, an event, a module, ...)."""
        self._next += 0x10
        return self._next

    def stream(self) -> int:
        """A new stream."""
        made = self.handle()
        self.queues[made] = []
        return made

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        """Queues `work`; on the default stream (0) it runs at once, after everything queued."""
        if stream == 0:
            self.flush_all()
            work()
        elif stream in self.captures:
            self.captures[stream].append(work)
        elif stream in self.queues:
            self.queues[stream].append(work)
        else:
            self.offend(f"work on {stream:#x}, which is no stream")
            work()

    def flush(self, stream: int) -> None:
        """Runs what waits on `stream`."""
        if stream in self.captures:
            self.offend("a stream is waited for while it is captured")
        queue = self.queues.get(stream, [])
        while queue:
            queue.pop(0)()

    def flush_all(self) -> None:
        """Runs everything that waits."""
        for stream in list(self.queues):
            self.flush(stream)


MEMORY = Memory()
