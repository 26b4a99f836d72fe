"""Sending to real boards: bytes of the wire, cuts at any byte, channels, OpenSSH's client."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle, allowed_signers_line, build_zipapp, ensure_key, sign
from edgekit.bundle._types import blob_view
from edgekit.deploy import Board, BoardClient, _embedded
from edgekit.deploy import _deliver as deliver
from edgekit.deploy._connect import connect
from edgekit.deploy._lanes import Heap, send_lanes
from edgekit.deploy._openssh import OpenSsh, openssh
from edgekit.deploy._send import send
from edgekit.deploy._ssh import SshTransport
from edgekit.deploy._sshconfig import Endpoint
from edgekit.errors import BoardError, BundleError
from tests.boards.bundles import hand_made
from tests.boards.fixtures import StartBoard, remote
from tests.edgekit_device.device_board import BoardFolder
from tests.faults.tcp_relay import Relay

pytestmark = pytest.mark.boards

Client = Callable[[Board], BoardClient]


@pytest.fixture(scope="session")
def send_loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "edgekit_device.pyz"
    build_zipapp(path)
    return path


@pytest.fixture(scope="session")
def send_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_key(tmp_path_factory.mktemp("key") / "signer")


@pytest.fixture
def client(send_loader: Path, send_key: Path) -> Iterator[Client]:
    opened: list[BoardClient] = []

    def open_client(board: Board) -> BoardClient:
        opened.append(BoardClient(board, connect(board), send_loader))
        opened[-1].trust([allowed_signers_line(send_key.with_name("signer.pub"))])
        return opened[-1]

    yield open_client
    for one in opened:
        one.close()


@pytest.fixture
def relay() -> Iterator[Callable[[Board], tuple[Board, Relay]]]:
    made: list[Relay] = []

    def start(board: Board) -> tuple[Board, Relay]:
        assert board.port
        made.append(Relay(board.port))
        return replace(board, port=made[-1].port), made[-1]

    yield start
    for one in made:
        one.close()


def _bundle(key: Path, sizes: dict[str, int], changed: str = "", columns: int = 64) -> Bundle:
    """A signed bundle with random weights of these bytes, besides the hand-made one's own."""
    made = hand_made(columns=columns)
    weights = {}
    entries = {}
    for name, size in sizes.items():
        seed = f"{name}{'*' if name == changed else ''}"
        data = random.Random(seed).randbytes(size)
        digest = hashlib.sha256(data).hexdigest()
        weights[digest] = data
        entries[name] = {"digest": digest, "dtype": "int8", "shape": [size], "bytes": size,
                         "source": f"features.{name}.weight", "transform": "none"}  # fmt: skip
    layers = [[f"features.{name}.conv", "GPU", "int8", 0] for name in sizes]
    placement = {"layers": layers, "loadables": []}
    manifest: dict[str, Any] = {
        **made.manifest,
        "weights": {**made.manifest["weights"], **entries},
        "placement": placement,
    }
    text = (json.dumps(manifest, sort_keys=True, separators=(",", ":")) + "\n").encode()
    everything = {**made.weights, **weights}
    return Bundle(manifest, text, made.blobs, everything, sign(text, key))


def _whole(root: Path, bundle: Bundle) -> bool:
    everything = {**bundle.blobs, **bundle.weights}
    return all(
        hashlib.sha256((root / "blobs" / d[:2] / d).read_bytes()).hexdigest() == d
        for d in everything
    )


def _leftovers(root: Path) -> list[str]:
    return [p.name for name in ("tmp", "partial") for p in (root / name).glob("*")]


# of light_resnet50 (161 weights and scales) and of DenseNet-121 (over 600)
@pytest.mark.parametrize("count", [161, 606])
def test_bytes_of_the_wire(
    count: int, boards: StartBoard, client: Client, relay: Any, send_key: Path, tmp_path: Path
) -> None:
    server = boards(tmp_path / "board")
    sizes = {f"denseblock{n}.norm.layer{n}": 400 + n for n in range(count)}
    sizes["classifier"] = 70_000
    first = _bundle(send_key, sizes)
    before = client(remote(server))
    send(before, first)
    # as after a deployment: the release serves
    here = BoardFolder(tmp_path / "board", tmp_path / "board" / "bin" / "edgekit_device.pyz")
    release = here.stage(first)
    (tmp_path / "board" / "apps" / "net" / "releases" / release / "refit.json").write_text("{}")
    here.ask("switch", "--app", "net", "--release", release)

    def wire(bundle: Bundle) -> tuple[int, Any]:
        """All of a connection's bytes, from its first to its last, both ways."""
        through, counter = relay(remote(server))
        one = BoardClient(through, connect(through), before._loader)
        begun = sum(counter.carried.values())
        sent = send(one, bundle)
        # the kernel's own count is of the same bytes; an answer's last packets may be under way
        assert sent.wire_bytes == pytest.approx(sum(counter.carried.values()) - begun, abs=4000)
        one.close()
        return sum(counter.carried.values()), sent

    unchanged, sent = wire(first)
    assert sent.serving == release
    assert sent.bytes_sent == 0
    assert 2_000 < unchanged < 64_000
    second = _bundle(send_key, sizes, changed="classifier")
    changed, sent = wire(second)
    assert (sent.blobs_sent, sent.bytes_sent) == (1, 70_000)
    assert 70_000 < changed < 70_000 + 64_000
    assert _whole(tmp_path / "board", second)
    # the relay does count: a new blob costs its bytes
    assert wire(_bundle(send_key, {**sizes, "other": 300_000}))[0] > 300_000


@pytest.mark.parametrize("way", ["paramiko", "openssh"])
def test_cut_at_any_byte_the_same_command_goes_on(
    way: str,
    boards: StartBoard,
    client: Client,
    relay: Any,
    send_key: Path,
    send_loader: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliver, "_BULK", 1 << 20 if way == "openssh" else 1 << 40)
    monkeypatch.setattr(deliver, "_UNDER_WAY", 0)
    server = boards(tmp_path / "board")
    bundle = _bundle(send_key, {"large": 9_000_000, "middle": 2_000_000, "small": 5000})
    client(remote(server))
    dice = random.Random(8)
    total = 0
    for _ in range(3):
        through, line = relay(remote(server))
        one = BoardClient(through, connect(through), send_loader)
        # of the bytes that are still to go, the handshake's and the questions' among them
        line.cut_at["up"] = line.carried["up"] + dice.randrange(12_000, 3_500_000)
        with pytest.raises(BoardError) as caught:
            send(one, bundle)
        assert caught.value.code in ("board.connection-lost", "transfer.truncated")
        one.close()
        kept = sum(path.stat().st_size for path in (tmp_path / "board").glob("partial/*"))
        kept += sum(path.stat().st_size for path in (tmp_path / "board").glob("blobs/*/*"))
        assert kept >= total
        total = kept
    assert total > 0
    sent = send(client(remote(server)), bundle)
    assert sent.bytes_sent <= 11_005_000 - total + 20_000
    assert _whole(tmp_path / "board", bundle)
    assert _leftovers(tmp_path / "board") == []


def test_a_kept_part_that_is_wrong_is_sent_anew(
    boards: StartBoard, client: Client, send_key: Path, tmp_path: Path
) -> None:
    board = client(remote(boards(tmp_path / "board")))
    bundle = _bundle(send_key, {"large": 3_000_000})
    large = next(digest for digest, data in bundle.weights.items() if len(data) == 3_000_000)
    (tmp_path / "board" / "partial").mkdir(mode=0o700)
    (tmp_path / "board" / "partial" / large).write_bytes(bytes(1_000_000))
    sent = send(board, bundle)
    assert len(sent.notes) == 1
    assert large in sent.notes[0]
    everything = {**bundle.weights, **bundle.blobs}
    assert sent.bytes_sent == sum(len(memoryview(data).tobytes()) for data in everything.values())
    assert _whole(tmp_path / "board", bundle)
    # a second time nothing is left to say
    assert send(board, bundle).notes == ()


class _Ways:
    """Says which way each ``receive`` went."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[str] = []
        for kind, name in ((SshTransport, "run"), (OpenSsh, "begin")):
            monkeypatch.setattr(kind, name, self._wrapped(kind.__name__, getattr(kind, name)))

    def _wrapped(self, name: str, run: Any) -> Any:
        def wrapped(transport: Any, argv: Any, **options: Any) -> Any:
            if "receive" in argv:
                self.taken.append(name)
            return run(transport, argv, **options)

        return wrapped


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_bytes_of_the_wire_are_counted_apart_and_in_vain(
    boards: StartBoard,
    client: Client,
    relay: Any,
    send_key: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliver, "_BULK", 1 << 20)
    through, counter = relay(remote(boards(tmp_path / "board")))
    board = client(through)
    begun = sum(counter.carried.values())
    bundle = _bundle(send_key, {"large": 3_000_000})
    large = next(digest for digest, data in bundle.weights.items() if len(data) == 3_000_000)
    (tmp_path / "board" / "partial").mkdir(mode=0o700)
    (tmp_path / "board" / "partial" / large).write_bytes(bytes(1_000_000))
    sent = send(board, bundle)
    assert len(sent.notes) == 1  # so two thirds went in vain
    assert sent.wire_bytes is not None
    assert sent.wire_bytes > 5_000_000
    assert sent.wire_bytes == pytest.approx(sum(counter.carried.values()) - begun, abs=4000)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_much_goes_through_openssh_to_the_same_host_key(
    boards: StartBoard,
    client: Client,
    send_key: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliver, "_BULK", 1 << 20)
    server = boards(tmp_path / "board")
    other = boards(tmp_path / "other")
    ways = _Ways(monkeypatch)
    board = client(remote(server))
    send(board, _bundle(send_key, {"large": 3_000_000}))
    assert ways.taken == ["OpenSsh"]
    # another machine at the address, as far as OpenSSH can see: nothing goes there
    transport = board._transport
    assert isinstance(transport, SshTransport)
    right = transport.bulk()
    assert right is not None
    wrong = replace(right, endpoint=replace(right.endpoint, port=other.board.port))
    done = wrong.run(["true"])
    assert (done.status, done.out) == (255, b"")
    assert b"host key" in done.err.lower() or b"verification failed" in done.err
    # then the connection that is there carries it, on several channels
    monkeypatch.setattr(transport, "bulk", lambda: wrong)
    ways.taken.clear()
    bundle = _bundle(send_key, {"one": 9_000_000, "two": 9_000_000})
    sent = send(board, bundle)
    assert ways.taken == ["OpenSsh", "SshTransport", "SshTransport"]
    assert sent.bytes_sent == 18_000_000
    assert _whole(tmp_path / "board", bundle)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_the_connection_for_much_is_made_while_the_bundle_is_offered(
    boards: StartBoard,
    client: Client,
    send_key: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deliver, "_BULK", 1 << 20)
    root = tmp_path / "board"
    server = boards(root)
    board = client(remote(server))
    order: list[str] = []
    children: list[Any] = []
    begin, ask = OpenSsh.begin, BoardClient._offer

    def noted(way: OpenSsh, argv: Any) -> Any:
        order.append("begin")
        begun = begin(way, argv)
        children.append(begun._child)
        return begun

    def asked(board: BoardClient, document: Any) -> Any:
        order.append("offer")
        return ask(board, document)

    monkeypatch.setattr(OpenSsh, "begin", noted)
    monkeypatch.setattr(BoardClient, "_offer", asked)
    first = _bundle(send_key, {"large": 3_000_000})
    send(board, first)
    assert order == ["begin", "offer"]
    release = BoardFolder(root, root / "bin" / "edgekit_device.pyz").stage(first)
    # who has sent it before, and whom the board tells of the release, begin nothing for it
    for one in (board, client(remote(server))):
        order.clear()
        assert send(one, first).bytes_sent == 0
        assert "begin" not in order
    # where nobody knows, what was begun ends with the offer, and with an error of it
    board._staged.clear()
    order.clear()
    assert send(board, first).bytes_sent == 0
    assert order == ["begin", "offer"]
    with pytest.raises(BundleError):
        send(board, replace(_bundle(send_key, {"other": 3_000_000}), signature=b"none"))
    assert len(children) == 3
    assert all(child.poll() is not None and child.stdin.closed for child in children)
    assert release in str(next(root.glob("apps/net/releases/*")))
    # one that the board has given up is begun anew
    waited = _bundle(send_key, {"third": 3_000_000})
    with board.ahead(waited.digest, 3_000_000):
        children[-1].stdin.write(b"nonsense\n")
        children[-1].wait(30.0)
        assert children[-1].returncode == 4
        board.receive({digest: blob_view(data) for digest, data in waited.weights.items()})
    assert len(children) == 5
    assert _whole(root, replace(waited, blobs={}))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_openssh_takes_the_proxy_command_of_the_connection(
    boards: StartBoard, home: Path, client: Client, tmp_path: Path
) -> None:
    server = boards(tmp_path / "board")
    marker = home / "100% proxy.log"
    program = home / "carry.py"
    program.write_text(
        "import os, socket, sys, threading\n"
        "open(sys.argv[1], 'a').write('used ')\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536):\n"
        "        s.sendall(data)\n"
        "    s.shutdown(1)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536):\n"
        "    os.write(1, data)\n"
    )
    line = f"{sys.executable} {program} '{str(marker).replace('%', '%%')}' {server.board.port}"
    (home / ".ssh" / "config").write_text(f"Host far\n  ProxyCommand {line}\n")
    board = client(remote(server, host="far", port=22))
    transport = board._transport
    assert isinstance(transport, SshTransport)
    before = marker.read_text()
    way = transport.bulk()
    assert way is not None
    done = way.run(["cat"], stdin=[b"through"])
    assert (done.status, done.out) == (0, b"through"), done.err
    assert marker.read_text() == before + "used "


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs OpenSSH's client")
def test_both_connections_agree_on_the_same_key_exchange(
    boards: StartBoard, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "paramiko.transport")
    transport = client(remote(boards(tmp_path / "board")))._transport
    assert isinstance(transport, SshTransport)
    way = transport.bulk()
    assert way is not None
    with way._known_hosts() as known_hosts:
        program, *words = way._argv(known_hosts)
        argv = [program, "-v", *words, "true"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
    ours = {name.split("@")[0] for name in re.findall(r"Kex: (\S+)", caplog.text)}
    theirs = {name.split("@")[0] for name in re.findall(r"kex: algorithm: (\S+)", done.stderr)}
    assert len(ours) == 1
    # OpenSSH may know ML-KEM where Python's cryptography does not yet
    assert theirs in (ours, {"mlkem768x25519-sha256"})


def test_jump_hosts_are_left_to_the_connection() -> None:
    there = Endpoint("far", 22, "me")
    assert openssh(replace(there, jumps=("near",)), ("ssh-ed25519", b"key"), "far") is None
    for change in (
        {"host": "-oProxyCommand=x"},
        {"user": "-x"},
        {"keys": (Path('a"b'),)},
        {"keys": (Path("${HOME}/k"),)},
    ):
        odd = replace(there, **change)  # type: ignore[arg-type]
        assert openssh(odd, ("ssh-ed25519", b"key"), "far") is None


def test_channels_share_the_blobs_and_stop_together() -> None:
    blobs = {f"{n:064x}": bytes(1000 * n) for n in range(1, 20)}
    told: list[int] = []
    heap = Heap(blobs, {f"{19:064x}": 500}, lambda phase, done, total: told.append(done))
    streams: list[bytes] = []
    send_lanes(heap, lambda frames: streams.append(b"".join(frames)), 4)
    lines = [json.loads(line) for stream in streams for line in stream.split(b"\0")
             if line.strip()[:1] == b"{"]  # fmt: skip
    assert sorted(line["digest"] for line in lines) == sorted(blobs)
    assert [line["from"] for line in lines if "from" in line] == [500]
    assert told[-1] == sum(map(len, blobs.values())) == heap.to_send + 500

    def broken(frames: Iterator[Any]) -> None:
        for count, _ in enumerate(frames):
            if count > 3:
                raise BoardError("it broke", code="board.disk-full")

    with pytest.raises(BoardError) as caught:
        send_lanes(Heap(blobs, {}, None), broken, 3)
    assert caught.value.code == "board.disk-full"


def test_one_channel_is_enough() -> None:
    served: list[bytes] = []
    taken = threading.Lock()

    def ask(frames: Iterator[Any]) -> None:
        if not taken.acquire(blocking=False):
            raise BoardError("no channel", code="board.no-channel")
        served.append(b"".join(frames))

    blobs = {f"{n:064x}": bytes(1000) for n in range(9)}
    send_lanes(Heap(blobs, {}, None), ask, 4)
    assert served[0].count(b"digest") == 9
    with pytest.raises(BoardError) as caught:  # none is not
        send_lanes(Heap(blobs, {}, None), ask, 4)
    assert caught.value.code == "board.no-channel"


@pytest.mark.parametrize("most", [1, 2])
def test_a_board_that_opens_few_channels_at_once(
    most: int,
    boards: StartBoard,
    client: Client,
    send_key: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = _embedded._config
    monkeypatch.setattr(_embedded, "_config", lambda *of: config(*of) + f"MaxSessions {most}\n")
    monkeypatch.setattr(deliver, "_LANE", 1 << 16)
    board = client(remote(boards(tmp_path / "board")))
    bundle = _bundle(send_key, {"one": 300_000, "two": 300_000, "three": 300_000})
    send(board, bundle)
    assert _whole(tmp_path / "board", bundle)
    assert _leftovers(tmp_path / "board") == []


def test_a_ctrl_c_in_progress_ends_every_channel() -> None:
    ended: list[str] = []
    began = threading.Barrier(2, timeout=20.0)

    def ask(frames: Iterator[Any]) -> None:
        name = threading.current_thread().name
        try:
            next(frames)
            began.wait()
            for _ in frames:
                pass
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        else:
            ended.append(name)

    def interrupt(phase: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    class Endless(Heap):
        def frames(self, tell: bool) -> Iterator[Any]:
            while True:
                yield from super().frames(tell)
                self.rewind()

    with pytest.raises(KeyboardInterrupt):
        send_lanes(Endless({"a" * 64: bytes(10**6)}, {}, interrupt), ask, 2)
    assert sorted(ended) == ["KeyboardInterrupt", "_Stopped"]
