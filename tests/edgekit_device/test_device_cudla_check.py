"""Layouts of cuDLA's structures, and descriptors against the manifest."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.dla.formats import strides
from edgekit_device.cuda.cudla import order_entries
from edgekit_device.cuda.cudla_library import (
    DeviceAttribute,
    ModuleAttribute,
    Task,
    TensorDescriptor,
)
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from tests.edgekit_device.cudla_host_cuda import build_stub, descriptor

_SHAPE = (1, 3, 512, 960)
PICTURE = IoEntry("input", "int8", _SHAPE, "DLA_HWC4", strides(_SHAPE, "int8", "DLA_HWC4"), 0.1)
# as printed on an Orin (cuda-samples issue 192)
_SEEN = descriptor("input'", 1966080, (1, 4, 512, 960), (2, 4), (1, 3840, 0, 0))


def test_structures_are_laid_out_as_in_c(tmp_path: Path) -> None:
    stub = ctypes.CDLL(str(build_stub(tmp_path)))
    ours = [
        ctypes.sizeof(TensorDescriptor),
        TensorDescriptor.size.offset,
        TensorDescriptor.data_format.offset,
        TensorDescriptor.pixel_mapping.offset,
        TensorDescriptor.stride.offset,
        ctypes.sizeof(Task),
        Task.outputs.offset,
        Task.num_inputs.offset,
        Task.inputs.offset,
        Task.signal_events.offset,
        ctypes.sizeof(ModuleAttribute),
        ctypes.sizeof(DeviceAttribute),
    ]
    assert ours == [stub.stub_layout(which) for which in range(len(ours))]


def test_what_was_seen_on_a_board_fits() -> None:
    assert order_entries([_SEEN], [PICTURE], "input") == [PICTURE]
    other = replace(PICTURE, name="second")
    second = descriptor("second'", 1966080, (1, 3, 512, 960), (2, 4), (1, 3840))
    assert order_entries([second, _SEEN], [PICTURE, other], "input") == [other, PICTURE]


def test_a_long_name_may_be_cut_short() -> None:
    name = "x" * 100
    cut = descriptor(name[:80], 1966080, (1, 4, 512, 960), (2, 4), ())
    assert order_entries([cut], [replace(PICTURE, name=name)], "input")[0].name == name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "other"}, ("'input'", "'other'")),
        ({"format": "DLA_LINEAR"}, ("format NHWC", "DLA_LINEAR")),
        ({"dtype": "float16"}, ("type int8", "float16")),
        ({"shape": (1, 3, 512, 959)}, ("shape [1, 4, 512, 960]", "[1, 3, 512, 959]")),
        ({"strides": strides((1, 3, 512, 976), "int8", "DLA_HWC4")}, ("1966080", "1998848")),
    ],
)
def test_a_difference_names_both(changes: dict[str, object], words: tuple[str, str]) -> None:
    wanted = replace(PICTURE, **changes)  # type: ignore[arg-type]
    for name in ("dtype", "format", "shape"):
        if name in changes:
            new = strides(wanted.shape, wanted.dtype, wanted.format)
            wanted = replace(wanted, strides=new)
    with pytest.raises(DeviceError) as caught:
        order_entries([_SEEN], [wanted], "input")
    assert caught.value.code == "cudla.mismatch"
    for word in words:
        assert word in caught.value.message


def test_lines_of_another_length_and_missing_tensors_are_reported() -> None:
    lines = descriptor("input", 1966080, (1, 4, 512, 960), (2, 4), (1, 3904))
    with pytest.raises(
        DeviceError, match="line stride 3904, but the manifest has line stride 3840"
    ):
        order_entries([lines], [PICTURE], "input")
    with pytest.raises(DeviceError, match=r"1 inputs .* the manifest has 2"):
        order_entries([_SEEN], [PICTURE, replace(PICTURE, name="b")], "input")
