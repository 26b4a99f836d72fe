"""Clients that stall, lie, crowd or go: nobody else pays, and every refusal has its code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.server import (
    MAX_HEAD,
    Closed,
    MessageReader,
    pack,
    parse_head,
    send_with,
    serving,
)
from edgekit_device.serve.memory import SharedMemory, map_sealed
from tests.edgekit_device.serve_board import ServedBoard, wait_for


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBoard]:
    made = ServedBoard(tmp_path / "root")
    made.switch(made.release(1))
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


def test_a_full_queue_says_busy_and_a_stop_answers_what_was_taken(served: ServedBoard) -> None:
    served.start("--queue", "2")
    go = served.app.folder / "go"
    caller = served.client()
    with served.later(f"until {go}") as first:
        wait_for(lambda: served.status()["running"])
        with served.later("ok", "ok") as others:
            wait_for(lambda: served.status()["queue"] == 2)
            with pytest.raises(DeviceError) as caught:
                caller.run()
            assert caught.value.code == "serve.busy"
            assert served.process is not None
            served.process.send_signal(signal.SIGTERM)
            # its door is shut, and its clients stay until they have their answers
            wait_for(lambda: serving(served.app.folder) is None)
            with pytest.raises(DeviceError) as caught:
                caller.run()
            assert caught.value.code == "serve.stopping"
            go.touch()
    release = served.app.link("current")
    assert [answer["release"] for answer in [*first, *others]] == [release] * 3
    said, log = served.stop()
    assert said == {"app": "toy", "served": 3, "errors": 0}
    assert f"process {os.getpid()} of {os.getuid()}" in log
    assert not (served.app.folder / "serve.sock").exists()
    caller.close()


def test_a_request_may_say_how_long_it_waits(served: ServedBoard) -> None:
    served.start()
    go = served.app.folder / "go"
    caller = served.client()
    with served.later(f"until {go}"):
        wait_for(lambda: served.status()["running"])
        with pytest.raises(DeviceError) as caught:
            caller.run(within_s=0.05)
        assert caught.value.code == "serve.timeout"
        for wrong in (0, -1, "1", 1e9, None):
            with pytest.raises(DeviceError) as caught:
                caller.run(within_s=wrong)
            assert (caught.value.code, caught.value.where) == ("serve.protocol", "within_s")
        go.touch()
    assert caller.run(within_s=300)["release"]
    caller.close()


def test_clients_that_misbehave_cost_nobody_else(served: ServedBoard) -> None:
    served.start()
    wait_for(lambda: served.status()["release"])
    path = str(served.app.folder / "serve.sock")
    good = served.client()

    def raw(data: bytes, *descriptors: int) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(300)
        peer.connect(path)
        with contextlib.suppress(OSError):
            send_with(peer, data, descriptors)
        return peer

    memory = SharedMemory(64)
    mine = memory.descriptor
    stalled = raw(struct.pack(">I", 100) + b"{")
    status = pack({"edgekit": 1, "op": "status"})
    ended = {
        "too long": raw(struct.pack(">I", MAX_HEAD + 1)),
        "empty": raw(struct.pack(">I", 0)),
        "descriptors": raw(status, mine, mine, mine, mine),
        "unclaimed": raw(status, mine),
        "flood": raw(b""),
    }
    with contextlib.suppress(OSError):
        while True:  # never reads an answer
            ended["flood"].sendall(status * 50)
    for name, peer in ended.items():
        with peer, contextlib.suppress(ConnectionError):
            while peer.recv(65536):
                assert name in ("flood", "unclaimed")
        assert good.run()["release"]
    for text, code in (
        (b"no", "serve.protocol"),
        (b"[1]", "serve.protocol"),
        (b'{"edgekit": 2}', "serve.version"),
        (b'{"edgekit": 1, "op": ["run"]}', "serve.protocol"),
        (b'{"edgekit": 1, "op": "run", "op": "run"}', "serve.protocol"),
        (b'{"edgekit": 1, "op": "run"}', "serve.memory"),
    ):
        with raw(struct.pack(">I", len(text)) + text) as peer:
            answer = peer.recv(65536)
        assert json.loads(answer[4:])["error"]["code"] == code
    go = served.app.folder / "go"
    leaver = served.client()
    leaver.peer.setblocking(False)
    with pytest.raises(Closed):
        leaver.run(f"until {go}")
    wait_for(lambda: served.status()["running"])
    leaver.close()  # in the middle of its own request
    with served.later("ok") as answers:
        wait_for(lambda: served.status()["queue"])
        go.touch()
    assert answers[0]["release"]
    assert (served.status()["errors"], served.status()["restarts"]) == (0, 0)
    stalled.close()
    good.close()
    memory.close()


def test_a_removed_socket_is_made_again_and_a_removed_app_ends_the_server(
    served: ServedBoard,
) -> None:
    served.start()
    wait_for(lambda: served.status()["release"])
    old = served.client()
    (served.app.folder / "serve.sock").unlink()
    assert wait_for(lambda: serving(served.app.folder)).pid == served.status()["pid"]
    new = served.client()
    assert old.run()["release"] == new.run()["release"]
    old.close()
    new.close()
    served.app.folder.rename(served.app.folder.with_name("gone"))
    assert served.process is not None
    said, log = served.process.communicate(timeout=300)
    assert served.process.returncode == 0
    assert "the app was removed" in log.decode()
    assert json.loads(said)["served"] == 2


def test_sighup_loads_again_what_had_failed(served: ServedBoard) -> None:
    second = served.release(2, "fails")
    served.start()
    wait_for(lambda: served.status()["release"])
    served.switch(second)
    wait_for(lambda: served.status()["last_error"])
    (served.app.releases_folder / second / "told").write_text("")
    assert served.process is not None
    served.process.send_signal(signal.SIGHUP)
    wait_for(lambda: served.serves(second))


def test_systemd_is_notified_when_it_serves_and_that_it_lives(
    served: ServedBoard, tmp_path: Path
) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.settimeout(300)
        served.start(env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "400000"})
        first = [""]
        while first[0] != "READY=1":
            first = systemd.recv(4096).decode().split("\n")
        assert first == ["READY=1", f"STATUS={served.app.link('current')}", "WATCHDOG=1"]
        assert "WATCHDOG=1" in systemd.recv(4096).decode().split("\n")
        served.stop()
        last = ""
        while "STOPPING=1" not in last:
            last = systemd.recv(4096).decode()


def test_a_descriptor_stays_for_the_message_that_needs_it() -> None:
    ours, theirs = socket.socketpair()
    memory = SharedMemory(64)
    with ours, theirs:
        send_with(ours, pack({"a": 1}))
        send_with(ours, pack({"b": 2}), [memory.descriptor])
        reader = MessageReader()
        found = []
        while len(found) < 2:
            reader.receive(theirs)
            while True:
                message = reader.take()
                if message is None:
                    break
                found.append(parse_head(message))
        claimed = reader.claim()
        assert found == [{"a": 1}, {"b": 2}]
        assert claimed is not None
        assert os.path.samestat(os.fstat(claimed), os.fstat(memory.descriptor))
        assert not os.get_inheritable(claimed)
        os.close(claimed)
        ours.close()
        with pytest.raises(Closed):
            reader.receive(theirs)
    memory.close()


def test_memory_that_could_be_cut_short_is_refused(tmp_path: Path) -> None:
    memory = SharedMemory(5000)
    with pytest.raises(PermissionError):
        os.ftruncate(memory.descriptor, 0)
    with map_sealed(memory.descriptor) as view:
        assert len(view) == memory.nbytes >= 5000
    loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(loose, 4096)
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 4096)
    reading, writing = os.pipe()
    for descriptor in (loose, file, reading):
        with pytest.raises(DeviceError) as caught:
            map_sealed(descriptor)
        assert caught.value.code == "serve.memory"
    for descriptor in (loose, file, reading, writing):
        os.close(descriptor)
    memory.close()
    with pytest.raises(DeviceError, match=re.escape("too large for the server")):
        SharedMemory(1 << 40)
