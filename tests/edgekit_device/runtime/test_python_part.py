"""Python parts: only signed code runs, and a state is read without unpickling."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import BlobEntry, SegmentEntry
from edgekit_device.runtime.python_part import (
    PythonPart,
    open_python,
    read_safetensors,
    write_safetensors,
)
from edgekit_device.trust.bundle import Checked
from tests.edgekit_device.tensorrt.toys import MemoryBlobs, checked, entry

pytest.importorskip("torch", reason="needs PyTorch")

SOURCE = b"""
import torch


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, *, plus):
        return x * self.factor + plus
"""


def bundle(
    *, source: bytes = SOURCE, listed: bool = True, signer: str | None = "ann", **changes: Any
) -> tuple[Checked, SegmentEntry]:
    """A checked bundle with one Python part; ``listed``: the manifest names its source file."""
    import torch

    state = write_safetensors({"factor": torch.full((1,), 2.0)})
    digests = {data: hashlib.sha256(data).hexdigest() for data in (source, state)}
    part = PythonPart(
        factory="net:Twice",
        source=digests[source],
        state=digests[state],
        arguments={"tuple": [{"tensor": "x"}]},
        keywords={"dict": {"plus": {"constant": 1}}},
        takes={"x": "bfloat16"},
    )
    record = json.dumps({**write(part), **changes}).encode()
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (source, state, record)}
    name = hashlib.sha256(record).hexdigest()
    segment = SegmentEntry(0, "CPU", name, ("x",), ("y",), ())
    made = checked(b"engine", entry("10.3.0"), signer=signer)
    known = {
        digest: BlobEntry(len(data), "source")
        for digest, data in blobs.items()
        if listed or data != source
    }
    manifest = replace(made.manifest, blobs=known)
    return Checked(replace(made.files, blobs=MemoryBlobs(blobs)), manifest, signer), segment


def test_a_part_runs_with_its_state_in_its_own_types() -> None:
    found, segment = bundle()
    x = np.arange(3, dtype=np.float32)
    result = open_python(found, segment).run(segment, {"x": x})
    assert result["y"].dtype == np.float32
    assert result["y"].tolist() == [1.0, 3.0, 5.0]


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no known signer": ({"signer": None}, "engine.untrusted", "no known key signed it"),
    "a source file that the manifest does not list": (
        {"listed": False},
        "engine.invalid",
        "the manifest has no blob",
    ),
    "code that fails": ({"source": b"1 / 0"}, "engine.invalid", "ZeroDivisionError"),
    "code that is none": ({"source": b"\xff("}, "engine.invalid", "Error"),
    "no module": ({"source": b"def Twice(): return 1"}, "engine.invalid", "load_state_dict"),
    "another state": (
        {"source": SOURCE.replace(b"self.factor =", b"self.other =")},
        "engine.invalid",
        "factor",
    ),
    "a factory that is a path": ({"factory": "../net:make"}, "engine.invalid", "package.module"),
    "an unknown type": ({"takes": {"x": "load"}}, "engine.invalid", "takes.x"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_not_run_is_refused(case: str) -> None:
    given, code, words = REFUSED[case]
    found, segment = bundle(**given)
    with pytest.raises(DeviceError) as caught:
        open_python(found, segment)
    assert caught.value.code == code
    assert words in f"{caught.value.where} {caught.value.message}"


def test_states_of_all_types_are_read_back() -> None:
    import torch

    tensors = {
        "a": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3),
        "b": torch.tensor(True),
        "c": torch.empty(0, 4, dtype=torch.float16),
        "d": torch.tensor(-5, dtype=torch.int64),
        "e": torch.randn(3, 2).t(),
    }
    found = dict(read_safetensors(write_safetensors(tensors)))
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize(
    "about",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1 << 62], "data_offsets": [0, 4]},
        {"dtype": "pickle", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]},
        {"shape": [1]},
        7,
    ],
)
def test_a_state_whose_header_lies_is_refused(about: object) -> None:
    header = json.dumps({"w": about}).encode()
    refuse(len(header).to_bytes(8, "little") + header + bytes(4))


@pytest.mark.parametrize(
    "data", [b"", bytes(7), (1 << 60).to_bytes(8, "little"), b"\x02" + bytes(7)]
)
def test_a_state_that_is_cut_off_is_refused(data: bytes) -> None:
    refuse(data)


def refuse(data: bytes) -> None:
    with pytest.raises(DeviceError) as caught:
        dict(read_safetensors(data))
    assert caught.value.code == "engine.invalid"
