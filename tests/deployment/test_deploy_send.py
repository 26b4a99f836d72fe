"""Sending to real boards: bytes of the wire, cuts at any byte, boards of one channel."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import sign
from edgekit.deployment import embedded_sshd
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import send
from edgekit.deployment.ssh import connect
from edgekit.deployment.transport import frames
from edgekit.errors import BoardError
from edgekit_device.protocol.manifest import parse
from tests.boards.bundles import hand_made
from tests.boards.fixtures import StartBoard, remote
from tests.bundles.bundle_toys import document_of
from tests.deployment.conftest import Client
from tests.edgekit_device.device_board import BoardFolder
from tests.faults.tcp_relay import Relay

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]


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
        entries[name] = {
            "digest": digest,
            "dtype": "int8",
            "shape": [size],
            "bytes": size,
            "source": f"features.{name}.weight",
            "transform": "none",
        }
    layers = [[f"features.{name}.conv", "GPU", "int8", 0] for name in sizes]
    placement = {"layers": layers, "loadables": []}
    manifest: dict[str, Any] = {
        **document_of(made),
        "weights": {**document_of(made)["weights"], **entries},
        "placement": placement,
    }
    text = (json.dumps(manifest, sort_keys=True, separators=(",", ":")) + "\n").encode()
    everything = {**made.weights, **weights}
    return Bundle(parse(text), text, made.blobs, everything, sign(text, key))


def _whole(root: Path, bundle: Bundle) -> bool:
    everything = {**bundle.blobs, **bundle.weights}
    return all(
        hashlib.sha256((root / "blobs" / d[:2] / d).read_bytes()).hexdigest() == d
        for d in everything
    )


def _leftovers(root: Path) -> list[str]:
    return [p.name for name in ("tmp", "partial") for p in (root / name).glob("*")]


# of light_resnet50 (161 weights and scales) and of DenseNet-121 (over 600)
@pytest.mark.whole
@pytest.mark.parametrize("count", [161, 606])
def test_bytes_of_the_wire(
    count: int, boards: StartBoard, client: Client, relay: Any, signer: Path, tmp_path: Path
) -> None:
    server = boards(tmp_path / "board")
    sizes = {f"denseblock{n}.norm.layer{n}": 400 + n for n in range(count)}
    sizes["classifier"] = 70_000
    first = _bundle(signer, sizes)
    before = client(remote(server))
    send(before, first)
    # as after a deployment: the release serves
    here = BoardFolder(tmp_path / "board", tmp_path / "board" / "bin" / "edgekit_device.pyz")
    release = here.stage(first)
    (tmp_path / "board" / "apps" / "net" / "releases" / release / "refit.json").write_text("{}")
    here.command("switch", "--app", "net", "--release", release)

    def wire(bundle: Bundle) -> tuple[int, Any]:
        """All of a connection's bytes, from its first to its last, both ways."""
        through, counter = relay(remote(server))
        one = BoardClient(through, connect(through), before._loader)
        sent = send(one, bundle)
        one.close()
        return sum(counter.carried.values()), sent

    unchanged, sent = wire(first)
    assert sent.serving == release
    assert sent.bytes_sent == 0
    assert 2_000 < unchanged < 64_000
    second = _bundle(signer, sizes, changed="classifier")
    changed, sent = wire(second)
    assert (sent.blobs_sent, sent.bytes_sent) == (1, 70_000)
    # the manifest goes along, deflated: 606 digests alone are 26 KB
    assert 70_000 < changed < 70_000 + 70_000
    assert _whole(tmp_path / "board", second)
    # the relay does count: a new blob costs its bytes
    assert wire(_bundle(signer, {**sizes, "other": 300_000}))[0] > 300_000


def _stored_bytes(root: Path) -> int:
    """By digest: a blob may become whole, and change its place, meanwhile."""
    found: dict[str, int] = {}
    for pattern in ("partial/*", "blobs/*/*"):
        for path in root.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                found[path.name] = path.stat().st_size
    return sum(found.values())


def test_cut_at_any_byte_the_same_command_goes_on(
    boards: StartBoard,
    client: Client,
    relay: Any,
    signer: Path,
    loader: Path,
    tmp_path: Path,
) -> None:
    server = boards(tmp_path / "board")
    bundle = _bundle(signer, {"large": 9_000_000, "middle": 2_000_000, "small": 5000})
    client(remote(server))
    dice = random.Random(8)
    total = cuts = 0
    # a board that has much else to do may have stored nothing of the little that came
    while cuts < 3 or not total:
        cuts += 1
        assert cuts < 30
        through, line = relay(remote(server))
        one = BoardClient(through, connect(through), loader)
        # of the bytes that are still to go, the handshake's and the questions' among them
        line.cut_at["up"] = line.carried["up"] + dice.randrange(12_000, 3_500_000)
        with pytest.raises(BoardError) as caught:
            send(one, bundle)
        assert caught.value.code in ("board.connection-lost", "transfer.truncated")
        one.close()
        retained = _stored_bytes(tmp_path / "board")
        assert retained >= total
        total = retained
    sent = send(client(remote(server)), bundle)
    assert sent.bytes_sent <= 11_005_000 - total + 20_000
    assert _whole(tmp_path / "board", bundle)
    assert _leftovers(tmp_path / "board") == []


def test_a_retained_part_that_is_wrong_is_sent_anew(
    boards: StartBoard, client: Client, signer: Path, tmp_path: Path
) -> None:
    board = client(remote(boards(tmp_path / "board")))
    bundle = _bundle(signer, {"large": 3_000_000})
    large = next(digest for digest, data in bundle.weights.items() if len(data) == 3_000_000)
    (tmp_path / "board" / "partial").mkdir(mode=0o700)
    (tmp_path / "board" / "partial" / large).write_bytes(bytes(1_000_000))
    sent = send(board, bundle)
    everything = {**bundle.weights, **bundle.blobs}
    assert sent.bytes_sent == sum(len(memoryview(data).tobytes()) for data in everything.values())
    assert _whole(tmp_path / "board", bundle)
    # a second time nothing is left to send
    assert send(board, bundle).blobs_sent == 0


def test_a_board_that_opens_one_channel_at_a_time(
    boards: StartBoard,
    client: Client,
    signer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = embedded_sshd._config
    monkeypatch.setattr(embedded_sshd, "_config", lambda *of: config(*of) + "MaxSessions 1\n")
    board = client(remote(boards(tmp_path / "board")))
    bundle = _bundle(signer, {"one": 300_000, "two": 300_000, "three": 300_000})
    send(board, bundle)
    assert _whole(tmp_path / "board", bundle)
    assert _leftovers(tmp_path / "board") == []


def test_an_interrupt_in_progress_ends_the_sending_and_the_next_goes_on(
    boards: StartBoard, client: Client, signer: Path, tmp_path: Path
) -> None:
    board = client(remote(boards(tmp_path / "board")))
    bundle = _bundle(signer, {"large": 9_000_000})

    def interrupt(phase: str, done: int, total: int) -> None:
        if phase == "send" and done > 6_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send(board, bundle, progress=interrupt)
    sent = send(board, bundle)
    assert sent.bytes_sent < 9_000_000
    assert _whole(tmp_path / "board", bundle)


def test_frames_begin_after_what_is_retained_and_progress_ends_with_all() -> None:
    blobs = {f"{n:064x}": bytes(1000 * n) for n in range(1, 20)}
    received: list[tuple[str, int, int]] = []
    stream = b"".join(frames(blobs, {f"{19:064x}": 500}, lambda *step: received.append(step)))
    lines = [json.loads(line) for line in stream.split(b"\0") if line.strip()[:1] == b"{"]
    assert [line["bytes"] for line in lines] == [1000 * n for n in range(19, 0, -1)]
    assert [line["from"] for line in lines if "from" in line] == [500]
    total = sum(map(len, blobs.values()))
    assert received[0] == ("send", 19_000, total)
    assert received[-1] == ("send", total, total)
