"""The pools of device and pinned memory, under the collector and many threads."""

from __future__ import annotations

import gc
import random
import sys
import threading
from itertools import count
from types import FrameType
from typing import Any

import pytest

from edgekit_device.cuda.memory import BufferPool
from edgekit_device.errors import DeviceError

pytestmark = pytest.mark.usefixtures("quick_collections")


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


@pytest.mark.whole
def test_leases_that_the_collector_gives_back_wait_for_nobody() -> None:
    pool: Any = BufferPool(Addresses())  # type: ignore[arg-type]
    many = [pool.take(64) for _ in range(50)]
    del many  # so that ``take`` finds free memory each time

    def collects_at(place: int) -> Any:
        left = [place]

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            if frame.f_code.co_name != "take":
                return None
            left[0] -= event == "line"
            if left[0] == 0:
                gc.collect(1)  # what was made just now is young
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
    thread.join(300)
    assert not thread.is_alive()


def test_memory_that_came_back_is_used_again_and_freed_once() -> None:
    device = Addresses()
    pool = BufferPool(device)  # type: ignore[arg-type]
    first, other = pool.take(64), pool.take(32)
    address = first.ptr
    del first
    again = pool.take(64)
    assert (again.ptr, pool.allocated) == (address, 2)
    addresses = sorted([again.ptr, other.ptr])
    del again, other, pool
    gc.collect()
    assert sorted(device.freed) == addresses


class Sizes(Addresses):
    """Knows what is allocated."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}

    def malloc(self, size: int) -> int:
        address = super().malloc(size)
        self.held[address] = size
        return address

    def free(self, address: int) -> None:
        del self.held[address]


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_sizes_that_change_do_not_pile_up(order: str) -> None:
    device = Sizes()
    pool = BufferPool(device)  # type: ignore[arg-type]
    sizes = [1000 * n for n in range(1, 65)]
    if order == "down":
        sizes.reverse()
    elif order == "mixed":
        random.Random(0).shuffle(sizes)
    biggest = 0
    for size in sizes * 2:
        lease = pool.take(size)
        assert lease.nbytes == size
        assert device.held[lease.ptr] >= size
        biggest = max(biggest, size)
        assert sum(device.held.values()) <= 3 * biggest
        del lease


def test_frames_in_flight_of_one_shape_allocate_once() -> None:
    pool = BufferPool(Sizes())  # type: ignore[arg-type]
    wanted = [100, 150, 4000, 20, 8_000_000]
    before = 0
    for round_ in range(6):
        frames = [[pool.take(size) for size in wanted] for _ in range(3)]
        assert len({lease.ptr for frame in frames for lease in frame}) == 3 * len(wanted)
        before = before if round_ > 1 else pool.allocated
        assert pool.allocated == before
        del frames


def test_memory_that_is_refused_is_not_in_use() -> None:
    device = Sizes()
    pool: Any = BufferPool(device)  # type: ignore[arg-type]

    def refuse(size: int) -> int:
        raise DeviceError("no", code="cuda.no-memory")

    device.malloc = refuse  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match="no"):
        pool.take(1 << 30)
    del device.malloc  # type: ignore[method-assign]
    for size in range(1000, 65_000, 1000):
        pool.take(size)
    assert sum(device.held.values()) <= 3 * 65_000
