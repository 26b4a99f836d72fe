"""A server's socket meets mutated messages: only DeviceErrors come out."""

from __future__ import annotations

import contextlib
import os
import socket
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
from edgekit_device.serve.client import connect
from edgekit_device.serve.memory import SharedMemory
from edgekit_device.serve.worker import _Answers
from tests.security.security_fuzz import CORPUS, limits, mutated, times
from tests.security.test_fuzz_board import survive

pytestmark = pytest.mark.slow


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

    is_static = True
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
