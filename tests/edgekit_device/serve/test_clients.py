"""Clients that stall, lie, crowd or go: nobody else pays, and every refusal has its code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edgekit_device
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.server import (
    MAX_HEAD,
    Closed,
    MessageReader,
    connect_to,
    pack,
    parse_head,
    query_server,
    send_with,
)
from edgekit_device.protocol.serving import MemoryRegion, RunRequest
from edgekit_device.serve.memory import SharedMemory, map_sealed
from edgekit_device.serve.worker import _Answers, frame
from tests.boards.toy_jobs import until
from tests.edgekit_device.serve.board import ServedBoard


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
        until(lambda: served.status()["running"])
        with served.later("ok", "ok") as others:
            until(lambda: served.status()["queue"] == 2)
            with pytest.raises(DeviceError) as caught:
                caller.run()
            assert caught.value.code == "serve.busy"
            assert served.process is not None
            served.process.send_signal(signal.SIGTERM)
            # its door is shut, and its clients stay until they have their answers
            until(lambda: query_server(served.app.folder) is None)
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
        until(lambda: served.status()["running"])
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
    until(lambda: served.status()["release"])
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
    until(lambda: served.status()["running"])
    leaver.close()  # in the middle of its own request
    with served.later("ok") as answers:
        until(lambda: served.status()["queue"])
        go.touch()
    assert answers[0]["release"]
    assert (served.status()["errors"], served.status()["restarts"]) == (0, 0)
    stalled.close()
    good.close()
    memory.close()


def test_three_hundred_clients_at_once_are_answered_or_told_busy(served: ServedBoard) -> None:
    served.start("--queue", "100")
    until(lambda: served.status()["release"])
    go = served.app.folder / "go"
    with served.later(f"until {go}"):
        until(lambda: served.status()["running"])
        with served.later(*["ok"] * 300) as answers:
            # a hundred wait; the connections of those that were refused make room for others
            until(lambda: answers.count(None) == 100)
            go.touch()
    refused = [one for one in answers if isinstance(one, Exception)]
    assert {getattr(one, "code", repr(one)) for one in refused} == {"serve.busy"}
    assert len(refused) == 200
    assert all(one["release"] for one in answers if one not in refused)
    assert served.status()["clients"] == 1  # who asks


def test_idle_connections_make_room_for_those_that_wait(served: ServedBoard) -> None:
    served.start()
    until(lambda: served.status()["release"])
    path = served.app.folder / "serve.sock"
    name = {"ok": np.float32(1)}
    with contextlib.ExitStack() as idle, edgekit_device.connect(path) as before:
        assert before(name) == {}
        crowd = []
        for _ in range(400):
            peer = connect_to(path, 60.0)
            assert peer is not None
            crowd.append(idle.enter_context(peer))
        with edgekit_device.connect(path) as newcomer:
            assert newcomer(name) == {}
        assert served.status()["clients"] <= 256
        assert before(name) == {}  # it was idle for longest: its next call connects again
        crowd[0].settimeout(60)
        assert crowd[0].recv(1) == b""


def test_a_connection_waits_while_the_queue_of_connections_is_full(tmp_path: Path) -> None:
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as door, contextlib.ExitStack() as opened:
        door.bind(str(path))
        door.listen(0)
        first = connect_to(path, 60.0)
        assert first is not None
        opened.enter_context(first)
        with pytest.raises(DeviceError) as caught:
            connect_to(path, 0.1)
        assert caught.value.code == "serve.silent"
        taken: list[socket.socket] = []
        later = threading.Timer(0.2, lambda: taken.append(door.accept()[0]))
        later.start()
        second = connect_to(path, 60.0)
        assert second is not None
        opened.enter_context(second)
        later.join()
        opened.enter_context(taken[0])


def test_a_busy_worker_hears_of_the_clients_that_left_and_of_no_others(
    served: ServedBoard,
) -> None:
    served.start()
    until(lambda: served.status()["release"])
    go = served.app.folder / "go"
    leaver = served.client()
    leaver.run()
    with served.later(f"until {go}"):
        until(lambda: served.status()["running"])
        leaver.close()
        for _ in range(400):  # more than its socket takes
            peer = connect_to(served.app.folder / "serve.sock", 60.0)
            assert peer is not None
            peer.close()
        until(lambda: served.status()["clients"] <= 2)
        go.touch()
    heard = served.root.folder / "left"
    until(lambda: heard.exists() and heard.read_text() == "xx")  # the leaver, and who waited
    assert served.status()["restarts"] == 0


def test_a_client_that_left_frees_its_memory_while_the_engine_runs() -> None:
    runs, ends = threading.Event(), threading.Event()

    class Slow:
        inputs = outputs = ()
        is_static = True

        def __call__(self, inputs: object) -> dict[str, np.ndarray]:
            runs.set()
            assert ends.wait(60)
            return {}

    ours, theirs = socket.socketpair()
    request = pack(RunRequest((), MemoryRegion(0, 0)))[4:]
    memories = [SharedMemory(1 << 20) for _ in range(3)]

    def mapped(memory: SharedMemory) -> int:
        inode = str(os.fstat(memory.descriptor).st_ino)
        return sum(
            # a mapped file's name may have any separator but a line feed, which the kernel escapes
            line.split()[4:5] == [inode]
            for line in Path("/proc/self/maps").read_text().split("\n")
        )

    with ours, theirs:
        answers = threading.Thread(target=_Answers(Slow(), "r").serve, args=(theirs,))  # type: ignore[arg-type]
        answers.start()
        reader = MessageReader()
        ends.set()
        send_with(ours, frame(1, request), [memories[0].descriptor])
        reader.wait(ours)
        assert mapped(memories[0]) == 2  # ours and the worker's
        runs.clear()
        ends.clear()
        send_with(ours, frame(2, request), [memories[1].descriptor])
        assert runs.wait(60)
        send_with(ours, frame(1, b"") + frame(2, b""))
        until(lambda: mapped(memories[0]) == 1)
        ends.set()
        reader.wait(ours)
        until(lambda: mapped(memories[1]) == 1)  # its own run needed it until now
        ours.close()
        answers.join()
    for memory in memories:
        memory.close()


def test_a_removed_socket_is_made_again_and_a_removed_app_ends_the_server(
    served: ServedBoard,
) -> None:
    served.start()
    until(lambda: served.status()["release"])
    old = served.client()
    (served.app.folder / "serve.sock").unlink()
    assert until(lambda: query_server(served.app.folder)).pid == served.status()["pid"]
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
    until(lambda: served.status()["release"])
    served.switch(second)
    until(lambda: served.status()["last_error"])
    (served.app.releases_folder / second / "told").write_text("")
    assert served.process is not None
    served.process.send_signal(signal.SIGHUP)
    until(lambda: served.serves(second))


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
