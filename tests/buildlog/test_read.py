"""Log files: encodings, size, and what is no log."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.buildlog.parser import parse_log
from edgekit.buildlog.reading import read_log
from edgekit.errors import UsageError
from tests.buildlog.logs import text

NAME = "trt103_trtexec_verbose.log"


def test_a_log_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text(NAME),))
    writer.start()
    log = read_log(pipe)
    writer.join()
    assert len(log.loadables) == 2


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path, code in (
        (tmp_path / "none.log", "log.missing"),
        (tmp_path, "log.unreadable"),
        (Path("/dev/zero"), "log.unreadable"),
        (tmp_path / "file" / "x", "log.missing"),
        (tmp_path / "a\0b", "log.unreadable"),
    ):
        with pytest.raises(UsageError) as caught:
            read_log(path)
        assert caught.value.code == code


def _long(count: int) -> Iterator[str]:
    for index in range(count):
        yield f"[02/03/2027-09:10:11] [V] [TRT] Tactic: 0x{index:016x} Time: 0.01 of Layer {index}"
    yield "[W] [TRT] Layer 'x' (CAST): Unsupported on DLA. Switching this layer's device type"


def test_memory_does_not_grow_with_the_log() -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        log = parse_log(_long(2000))
        _, small = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        log = parse_log(_long(8000))
        _, large = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (log.lines, len(log.fallbacks)) == (8001, 1)
    assert large < small + 100_000


@pytest.mark.parametrize(
    "piece",
    [
        "DLA Layer ",
        "Layer '",
        "' (A",
        "{ForeignNode[",
        "{a",
        "]} ",
        "-",
        "\x1b[",
        "[TRT] ",
        "  ",
        "PWN(",
        ", ",
        "a: DLA ",
        'trtexec --onnx="',
        "Managed SRAM = 1",
    ],
)
def test_one_endless_line_is_cut(tmp_path: Path, piece: str) -> None:
    file = tmp_path / "x.log"
    heading = "INFO: [TRT]: --------------- Layers running on DLA:\n"
    endless = f"[W] [TRT] DLA Layer {piece * (200_000 // len(piece))}\n"
    file.write_text(
        heading + endless + endless[10:] + piece * 40_000 + "\n"
        "[W] [TRT] Layer 'x' (CAST): Unsupported on DLA.\n"
    )
    began = time.process_time()
    assert "x" in [f.layer for f in read_log(file).fallbacks]
    # what is quadratic in a line takes ten seconds and more
    assert time.process_time() - began < 1.5


def test_lines_are_counted_if_a_chunk_ends_within_a_line_end(tmp_path: Path) -> None:
    """The next chunk began with a line feed, which was counted as an empty line."""
    path = tmp_path / "windows.log"
    first = "[V] [TRT] " + "x" * ((1 << 20) - 11)
    path.write_bytes(f"{first}\r\n{text(NAME)}".encode())
    assert path.read_bytes()[(1 << 20) - 1 : (1 << 20) + 1] == b"\r\n"
    assert read_log(path).lines == 1 + len(text(NAME).splitlines())
