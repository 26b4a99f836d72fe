"""Blobs that go on where they were cut: kept parts, wrong ones, two channels at once."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.release.collect import collect
from edgekit_device.store.partial import Partial, partials, received_bytes
from edgekit_device.store.root import Root
from edgekit_device.store.transfer import FrameInput
from tests.edgekit_device.device_board import BoardFolder, frames, run_command

LARGE = 3_000_000


@pytest.fixture
def root(tmp_path: Path) -> Root:
    folder = tmp_path / "root"
    folder.mkdir(mode=0o700)
    return Root(folder)


def _blob(size: int = LARGE) -> tuple[str, bytes]:
    data = os.urandom(size)
    return hashlib.sha256(data).hexdigest(), data


def _rest(digest: str, data: bytes, start: int) -> bytes:
    line = json.dumps({"digest": digest, "bytes": len(data), "from": start}).encode()
    return line + b"\n" + data[start:] + b"\n"


def _receive(root: Root, stream: bytes) -> dict[str, int]:
    counted: dict[str, int] = run_command(root, ["receive"], io.BytesIO(stream))
    return counted


def _refused(root: Root, stream: bytes) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        _receive(root, stream)
    return caught.value


def _retained(root: Root, digest: str) -> bytes:
    return (root.folder / "partial" / digest).read_bytes()


def _leftovers(root: Root) -> list[str]:
    return [p.name for name in ("tmp", "partial") for p in (root.folder / name).glob("*")]


@pytest.mark.parametrize("cut", [0, 1, 524_288, 1_500_001, LARGE - 1])
def test_a_cut_blob_goes_on_where_it_was_cut(root: Root, cut: int) -> None:
    digest, data = _blob()
    whole = frames([(digest, data)])
    error = _refused(root, whole[: len(whole) - 1 - LARGE + cut])
    assert error.code == "transfer.truncated"
    assert not root.store.has(digest)
    assert received_bytes(root.folder, digest) == cut
    if cut:
        assert _retained(root, digest) == data[:cut]
    answer = _receive(root, _rest(digest, data, cut))
    assert answer == {"received": 1, "bytes": LARGE - cut}
    assert root.store.path(digest).read_bytes() == data
    assert _leftovers(root) == []


def test_a_retained_part_that_is_wrong_is_thrown_away(root: Root) -> None:
    digest, data = _blob()
    _refused(root, frames([(digest, data)])[:2_000_000])
    part = root.folder / "partial" / digest
    retained = bytearray(part.read_bytes())
    retained[1000] ^= 1
    part.write_bytes(retained)
    error = _refused(root, _rest(digest, data, len(retained)))
    assert (error.code, error.where) == ("blob.digest-mismatch", digest)
    assert "discarded" in error.message
    assert not root.store.has(digest)
    assert _leftovers(root) == []
    _receive(root, frames([(digest, data)]))
    assert root.store.path(digest).read_bytes() == data


def test_a_part_that_is_longer_than_the_blob_does_no_harm(root: Root) -> None:
    digest, data = _blob()
    (root.folder / "partial").mkdir()
    (root.folder / "partial" / digest).write_bytes(data + b"rubbish")
    _receive(root, _rest(digest, data, LARGE))
    assert root.store.path(digest).read_bytes() == data


def test_an_offset_beyond_what_is_retained_is_refused(root: Root) -> None:
    digest, data = _blob()
    _refused(root, frames([(digest, data)])[:1_000_000])
    before = _retained(root, digest)
    error = _refused(root, _rest(digest, data, len(before) + 1))
    assert error.code == "transfer.offset"
    assert _retained(root, digest) == before


@pytest.mark.parametrize(
    "change",
    [
        {"from": -1},
        {"from": LARGE + 1},
        {"from": True},
        {"from": "0"},
        {"bytes": 2.0},
        {"bytes": -1},
        {"bytes": True},
        {"digest": 1},
        {"bytes": 1 << 80},
        {"digest": "../" * 20},
        {"digest": "A" * 64},
        {"more": 1},
    ],
)
def test_frames_that_lie_about_places_are_refused(root: Root, change: dict[str, object]) -> None:
    frame = {"digest": "a" * 64, "bytes": LARGE, "from": 0, **change}
    stream = json.dumps(frame).encode() + b"\n" + bytes(LARGE) + b"\n"
    assert _refused(root, stream).code == "protocol.invalid"
    assert _leftovers(root) == []


def test_more_or_fewer_bytes_than_promised_are_refused(root: Root) -> None:
    digest, data = _blob()
    (good, small), line = _blob(10), json.dumps({"digest": digest, "bytes": LARGE}).encode()
    more = frames([(good, small)])[:-1] + line + b"\n" + data + b"more\n\n"
    assert _refused(root, more).code == "protocol.invalid"
    # what was whole before stays
    assert root.store.has(digest)
    assert root.store.has(good)
    other, data = _blob()
    fewer = json.dumps({"digest": other, "bytes": LARGE + 5}).encode() + b"\n" + data + b"\n"
    assert _refused(root, fewer).code == "transfer.truncated"
    short = json.dumps({"digest": other, "bytes": LARGE - 5}).encode() + b"\n" + data + b"\n"
    assert _refused(root, short).code == "blob.digest-mismatch"
    assert not root.store.has(other)
    assert _refused(root, b"x" * 10_000).code == "protocol.invalid"


@pytest.mark.parametrize("size", [1000, LARGE], ids=["small", "large"])
def test_bytes_of_another_digest_are_refused(root: Root, size: int) -> None:
    digest, data = _blob(size)
    error = _refused(root, frames([(digest, data[:-1] + bytes([data[-1] ^ 1]))]))
    assert (error.code, error.where) == ("blob.digest-mismatch", digest)
    assert not root.store.has(digest)


def test_many_small_blobs_are_retained_before_a_cut(root: Root) -> None:
    blobs = [_blob(size) for size in [0, 1, *[100] * 50, 1 << 20]]
    stream = frames(blobs)
    assert _refused(root, stream[:-1]).code == "transfer.truncated"
    assert root.store.missing([digest for digest, _ in blobs]) == []
    for digest, data in blobs:
        assert root.store.path(digest).read_bytes() == data
    assert _leftovers(root) == []


def test_more_small_blobs_than_a_process_may_have_open(board: BoardFolder) -> None:
    blobs = [_blob(100) for _ in range(150)]
    few = ["sh", "-c", 'ulimit -n 48; exec "$@"', "sh", *board.argv("receive")]
    done = subprocess.run(few, input=frames(blobs), capture_output=True, check=True)
    assert json.loads(done.stdout) == {"received": 150, "bytes": 15_000}
    assert all(board.blob(digest).read_bytes() == data for digest, data in blobs)


def test_two_channels_send_the_same_blob(root: Root) -> None:
    digest, data = _blob()
    with Partial.open(root.folder, digest), pytest.raises(DeviceError) as caught:
        Partial.open(root.folder, digest, wait_s=0.05)
    assert caught.value.code == "board.busy"
    # the one that waited finds the blob there, and passes over what it is sent
    held = Partial.open(root.folder, digest)
    answers: list[object] = []
    other = threading.Thread(
        target=lambda: answers.append(_receive(root, frames([(digest, data)])))
    )
    other.start()
    os.pwrite(held.handle, data, 0)
    root.store.path(digest).parent.mkdir(parents=True)
    os.replace(held.path, root.store.path(digest))
    held.close()
    other.join(120.0)
    assert answers == [{"received": 1, "bytes": LARGE}]
    assert root.store.path(digest).read_bytes() == data
    assert _leftovers(root) == []


def test_old_parts_go_unless_they_are_young(root: Root) -> None:
    old, young = _blob(), _blob()
    for digest, data in (old, young):
        _refused(root, frames([(digest, data)])[:1_000_000])
    os.utime(root.folder / "partial" / old[0], (1000, 1000))
    size = received_bytes(root.folder, old[0])
    assert collect(root).freed_bytes == size
    assert [digest for digest, _ in partials(root.folder)] == [young[0]]


def test_a_host_that_is_gone_without_a_word_is_not_waited_for() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stdin, open(writing, "wb"):
        with pytest.raises(DeviceError) as caught:
            FrameInput(stdin, silence_s=0.05).line()
        assert caught.value.code == "transfer.stalled"


@pytest.fixture
def receiving(board: BoardFolder) -> Iterator[tuple[subprocess.Popen[bytes], str, bytes]]:
    """A real command in the middle of a blob."""
    digest, data = _blob()
    process = subprocess.Popen(board.argv("receive"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    # when this much was taken, the command is in the middle of the blob: the pipe holds far less
    process.stdin.write(frames([(digest, data)])[:2_500_000])
    process.stdin.flush()
    yield process, digest, data
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_transfer_goes_on_where_it_was(
    board: BoardFolder,
    receiving: tuple[subprocess.Popen[bytes], str, bytes],
    number: signal.Signals,
) -> None:
    process, digest, data = receiving
    # others are not disturbed, and do not take a living command's part away
    other, more = _blob(10)
    board.send({other: more})
    process.send_signal(number)
    process.communicate()
    retained = received_bytes(board.root, digest)
    assert retained > 1_000_000
    board.command("receive", stdin=_rest(digest, data, retained))
    assert board.blob(digest).read_bytes() == data
    assert not list((board.root / "tmp").iterdir())
    assert not list((board.root / "partial").iterdir())
