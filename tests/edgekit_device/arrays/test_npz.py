""".npz in and out: what NumPy wrote is read, what could run code or fill the memory is not."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest

from edgekit_device.arrays.npz import read_npz, write_npz
from edgekit_device.errors import DeviceError

ARRAYS: dict[str, np.ndarray] = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a/b:0": np.array([[1, 2], [3, 4]], dtype=np.int64, order="F"),
    "file": np.array(7, dtype=np.float16),
    "empty": np.zeros((0, 3), np.uint8),
    "../up": np.array([True, False]),
}


def same(found: dict[str, np.ndarray]) -> None:
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_both_ways_with_numpy() -> None:
    same(dict(np.load(io.BytesIO(write_npz(ARRAYS)))))
    same(read_npz(write_npz(ARRAYS)))
    file = io.BytesIO()
    np.savez_compressed(file, x=ARRAYS["x"])
    np.testing.assert_array_equal(read_npz(file.getvalue())["x"], ARRAYS["x"])


def test_the_same_arrays_give_the_same_bytes() -> None:
    assert write_npz(ARRAYS) == write_npz(dict(ARRAYS))


def test_all_arrays_together_count_for_the_limit() -> None:
    data = write_npz({"a": np.zeros(100, np.uint8), "b": np.zeros(100, np.uint8)})
    read_npz(data, limit=len(data))
    with pytest.raises(DeviceError, match="more than 300 bytes"):
        read_npz(data, limit=300)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return (pytest.fail, ("a pickle was run",))


def _zip(**entries: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name + ".npy", data)
    return file.getvalue()


def _npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


HOSTILE = {
    "pickle": _zip(x=pickle.dumps(Evil())),
    "object array": _zip(
        x=_npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", pickle.dumps(Evil()))
    ),
    "bigger than it is": _zip(
        x=_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}", b"1234")
    ),
    "negative": _zip(x=_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", b"1234")),
    "code in the header": _zip(x=_npy("__import__('os').abort()")),
    "cut header": _zip(x=b"\x93NUMPY\x01\x00\xff\xff{"),
    "no array": _zip(x=b""),
    "no zip": b"PK\x03\x04 and then nothing",
    "bomb": _zip(
        x=_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (9000000,)}", bytes(9_000_000))
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(case: str) -> None:
    with pytest.raises(DeviceError) as caught:
        read_npz(HOSTILE[case], limit=8_000_000)
    assert caught.value.code == "npz.invalid"


def test_other_entries_are_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.txt", b"")
    with pytest.raises(DeviceError, match="unexpected entry"):
        read_npz(file.getvalue())
