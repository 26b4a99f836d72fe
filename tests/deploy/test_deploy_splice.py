"""Memory that goes into a program's input without a copy is the same bytes."""

from __future__ import annotations

import hashlib
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.deploy import _splice
from edgekit.deploy._splice import Spliced
from edgekit.deploy._transport import Buffer, Completed, converse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="vmsplice is Linux's")

_HASH = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"


def run(stdin: list[Buffer], program: str = _HASH) -> Completed:
    child = subprocess.Popen(
        [sys.executable, "-c", program], bufsize=0, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return converse(Spliced(child), stdin, timeout=60.0, where="lab")


@pytest.fixture
def views(tmp_path: Path) -> list[Buffer]:
    """Memory of every kind and at odd addresses, between the heads of frames."""
    data = np.random.default_rng(1).integers(0, 256, 3_000_000, np.uint8)
    (tmp_path / "file").write_bytes(data[::-1].tobytes())
    with (tmp_path / "file").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    whole = data.tobytes()
    return [
        b"head\n", memoryview(whole), b"head\n", memoryview(whole)[12_345:1_000_001],
        memoryview(bytearray(whole)), memoryview(mapped)[1:], data[7:].data,
        memoryview(b"short"), memoryview(b""), np.ones(50_000, np.float64).data, b"\n",
    ]  # fmt: skip


def digest(stdin: list[Buffer]) -> str:
    return hashlib.sha256(b"".join(map(bytes, stdin))).hexdigest()


def test_the_bytes_are_the_same(views: list[Buffer], monkeypatch: pytest.MonkeyPatch) -> None:
    spliced: list[int] = []
    splice = Spliced._splice

    def noted(child: Spliced, data: memoryview) -> int:
        spliced.append(splice(child, data))
        return spliced[-1]

    monkeypatch.setattr(Spliced, "_splice", noted)
    assert run(views).out.decode().strip() == digest(views)
    assert spliced == [view.nbytes for view in views
                       if isinstance(view, memoryview) and view.nbytes > 5]  # fmt: skip


@pytest.mark.parametrize("way", ["no function", "refused", "refused later"])
def test_where_linux_does_not_the_bytes_are_copied(
    way: str, views: list[Buffer], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, calls = _splice._find(), iter(range(1000))

    def refusing(handle: int, vector: object, count: int, flags: int) -> int:
        refuse = way == "refused" or next(calls) > 1
        # no such flag: what a kernel without the call answers
        return int(found(handle, vector, count, 1 << 20 if refuse else flags))

    monkeypatch.setattr(_splice, "_find", lambda: way != "no function" and refusing)
    assert run(views).out.decode().strip() == digest(views)


def test_a_program_that_ends_early_says_why(views: list[Buffer]) -> None:
    done = run(views * 5, "import sys; sys.stdin.buffer.read(9); sys.exit('enough')")
    assert (done.status, done.err) == (1, b"enough\n")
