"""Mirrors and a server's socket meet mutated answers: only DeviceErrors come out."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import TensorEntry
from edgekit_device.protocol.server import MAX_HEAD, Closed, MessageReader, parse_head, read_request
from edgekit_device.protocol.serving import RunRequest
from edgekit_device.release import mirrors
from edgekit_device.release.download import stream
from edgekit_device.release.mirrors import Credentials
from edgekit_device.release.sources import Mirror
from edgekit_device.serve.client import connect
from edgekit_device.serve.memory import SharedMemory
from edgekit_device.serve.worker import _Answers
from tests.security.security_fuzz import CORPUS, limits, mutated, seeds, times
from tests.security.test_fuzz_board import survive

pytestmark = pytest.mark.slow

BLOB = b"one two\n"
HERE = "127.0.0.1:8"
LOGINS = (Credentials(), Credentials({HERE: ("user", "word")}))


class Wire:
    """A socket whose other side has said everything already."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self.data)

    def sendall(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass


@contextlib.contextmanager
def answering(said: list[bytes]) -> Iterator[None]:
    """Every new connection says the next of the answers; there is no network."""
    left = iter(said)

    def reach(self: http.client.HTTPConnection) -> None:
        data = next(left, None)
        if data is None:
            raise ConnectionRefusedError("refused")
        self.sock = Wire(data)  # type: ignore[assignment]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "connect", reach)
        patch.setattr(mirrors, "FIRST_WAIT_S", 0.0)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(name, raising=False)
        yield


ANSWERS = st.lists(mutated("web"), min_size=1, max_size=4)


@times(250)
@given(said=ANSWERS, login=st.sampled_from(LOGINS))
def test_what_mirrors_say(said: list[bytes], login: Credentials) -> None:
    source = Mirror(f"http://{HERE}/m/", login, None)
    with answering(said):
        survive(lambda: source.offer("net"))
        source.close()


@times(150)
@given(said=ANSWERS, start=st.sampled_from([0, 4]))
def test_blobs_of_a_mirror(said: list[bytes], start: int) -> None:
    source = Mirror(f"http://{HERE}/m/", Credentials(), None)
    digest = hashlib.sha256(BLOB).hexdigest()
    found: list[bytes] = []

    def read() -> None:
        for piece in stream(source, digest, start, len(BLOB), lambda: None):
            found.append(bytes(piece))

    with answering(said):
        survive(read)
        source.close()
    assert len(b"".join(found)) <= len(BLOB) - start


@pytest.mark.parametrize("seed", seeds("web"))
def test_each_answer_by_itself(seed: bytes) -> None:
    source = Mirror(f"http://{HERE}/m/", LOGINS[1], None)
    with answering([seed] * 12):
        survive(lambda: source.offer("net"))
        source.close()


@times(200)
@given(data=mutated("wire"), cuts=st.lists(st.integers(1, 40), max_size=6))
def test_messages_of_a_servers_socket(data: bytes, cuts: list[int]) -> None:
    ours, theirs = socket.socketpair()
    reader = MessageReader()
    with ours, theirs, limits():
        at = 0
        with contextlib.suppress(Closed):
            for cut in [*cuts, len(data)]:
                if not data[at : at + cut]:
                    break
                theirs.sendall(data[at : at + cut])
                at += cut
                reader.receive(ours)
                while (message := reader.take()) is not None:
                    assert 0 < len(message) <= MAX_HEAD
                    with contextlib.suppress(DeviceError):
                        read_request(RunRequest, parse_head(message))
        assert reader.descriptors == []


class Echo:
    """A model of one input and one output."""

    outputs = (TensorEntry("y", "float32", (1, 4), "LINEAR", (16, 4)),)

    def __call__(self, inputs: Any) -> dict[str, np.ndarray]:
        for value in inputs.values():
            np.array(value, copy=True).sum()
        return {"y": np.zeros((1, 4), np.float32)}


@times(250)
@given(data=mutated("request"))
def test_requests_to_a_worker(data: bytes) -> None:
    memory = SharedMemory(256)
    answers = _Answers(Echo(), "000001-aaaaaaaaaaaa")  # type: ignore[arg-type]
    descriptor = os.dup(memory.descriptor)
    try:
        survive(lambda: answers._answer(1, data, descriptor))
    finally:
        os.close(descriptor)
        answers.known.clear()
        memory.close()


def framed(heads: list[bytes]) -> list[bytes]:
    return [len(head).to_bytes(4, "big") + head for head in heads]


HEADS = st.lists(mutated("head"), min_size=1, max_size=3).map(framed)


@times(150)
@given(said=HEADS | st.lists(mutated("wire"), min_size=1, max_size=2), first=st.booleans())
def test_what_a_server_says_to_its_client(
    tmp_path_factory: pytest.TempPathFactory, said: list[bytes], first: bool
) -> None:
    others: list[socket.socket] = []
    described = framed([(CORPUS / "head/described.json").read_bytes()])
    path: Path = tmp_path_factory.getbasetemp() / "serve.sock"
    left = iter([b"".join([*(described if first else []), *said])])

    def reach(path: Path, timeout_s: float) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(120)
        theirs.sendall(next(left, b""))
        theirs.shutdown(socket.SHUT_WR)
        others.append(theirs)
        return ours

    def ask() -> None:
        with connect(path) as client:
            client({"x": np.zeros((1, 4), np.float32)})
            client.status()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgekit_device.serve.client.connect_to", reach)
        survive(ask)
    for other in others:
        other.close()
