"""The pools of device and pinned memory, under the collector and many threads."""

from __future__ import annotations

import gc
import sys
import threading
from itertools import count
from types import FrameType
from typing import Any

from edgekit_device._cuda_memory import Pool


class Addresses:
    """A device that gives each block an address of its own."""

    def __init__(self) -> None:
        self.freed: list[int] = []
        self._next = count(1)

    def malloc(self, size: int) -> int:
        return next(self._next)

    def free(self, address: int) -> None:
        self.freed.append(address)


class Knot:
    """What only the collector ends, as a traceback's frames do."""

    def __init__(self, lease: Any) -> None:
        self.me, self.lease = self, lease


def test_leases_that_the_collector_gives_back_wait_for_nobody() -> None:
    pool: Any = Pool(Addresses())  # type: ignore[arg-type]
    many = [pool.take(64) for _ in range(50)]
    del many  # so that ``take`` finds free memory each time

    def collects_at(place: int) -> Any:
        left = [place]

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            if frame.f_code.co_name != "take":
                return None
            left[0] -= event == "line"
            if left[0] == 0:
                gc.collect()
            return trace

        return trace

    def work() -> None:
        try:
            for place in range(1, 20):  # the collector runs at this line of ``take``
                Knot(pool.take(64))
                sys.settrace(collects_at(place))
                pool.take(64)
                sys.settrace(None)
        finally:
            sys.settrace(None)

    # one that waits would wait for ever: it may not hold up the process
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_memory_that_came_back_is_used_again_and_freed_once() -> None:
    device = Addresses()
    pool = Pool(device)  # type: ignore[arg-type]
    first, other = pool.take(64), pool.take(32)
    address = first.ptr
    del first
    again = pool.take(64)
    assert (again.ptr, pool.allocated) == (address, 2)
    addresses = sorted([again.ptr, other.ptr])
    del again, other, pool
    gc.collect()
    assert sorted(device.freed) == addresses
