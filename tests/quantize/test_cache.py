"""TensorRT's calibration caches: read, write, and what is wrong with them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import DataError, UsageError
from edgekit.network.model import Network, Tensor
from edgekit.quantize.caches import (
    ALGORITHM,
    CalibrationCache,
    load_cache,
    make_cache,
    scales_from_cache,
    version_number,
    write_cache,
)
from edgekit.quantize.scales import Scales, make_scales
from tests.quantize.quantize_nets import branches
from tests.tries import tries

_, NETWORK = branches()


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "calib.cache"
    path.write_text(text)
    return path


def read_cache(path: Path, network: Network) -> Scales:
    return scales_from_cache(load_cache(path), network, name=str(path)).scales


def test_reads_published_lines(tmp_path: Path) -> None:
    # values as NVIDIA's qdq-translator writes them
    names = ("images", "/model.0/act/Mul_output_0")
    network = Network("n", (), {n: Tensor(n, (1,), "float32") for n in names}, (), ())
    text = "TRT-8600-EntropyCalibration2\nimages: 3c00f9f4\n/model.0/act/Mul_output_0: 3e6c9314\n"
    scales = read_cache(written(tmp_path, text), network)
    assert scales.scales["images"] == pytest.approx(0.0078722, abs=5e-7)
    assert (
        scales.scales["/model.0/act/Mul_output_0"]
        == struct.unpack(">f", bytes.fromhex("3e6c9314"))[0]
    )
    assert scales.method == "cache"
    assert scales.data == "calibration cache calib.cache, 2 of 2 tensors"


def test_tied_tensors_are_filled_in_and_the_rest_is_missing(tmp_path: Path) -> None:
    text = "TRT-100300-EntropyCalibration2\nx: 3c010a14\nb: 3d000000\njoined: 3d800000\n"
    scales = read_cache(written(tmp_path, text), NETWORK)
    assert scales.scales["b"] == 0.03125
    assert scales.scales["a"] == scales.scales["pooled"] == 0.0625
    # c lies inside the kernel of the last convolution and its activation
    assert scales.missing == ("y",)


names = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=12
).filter(lambda s: s == s.strip() and len(s.splitlines()) == 1)
floats = st.floats(2.0**-140, 2.0**100, width=32)


@settings(max_examples=tries(100))
@given(values=st.dictionaries(names, floats, min_size=1))
def test_what_is_written_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, float]
) -> None:
    path = tmp_path_factory.mktemp("cache") / "calib.cache"
    scales = make_scales(values, method="mse", data="")
    write_cache(scales, path, "8.6.2")
    network = Network("n", (), {n: Tensor(n, (1,), "float32") for n in values}, (), ())
    again = read_cache(path, network)
    assert dict(again.scales) == dict(scales.scales)
    assert again.digest == scales.digest


def test_written_text_is_tensorrts(tmp_path: Path) -> None:
    path = tmp_path / "calib.cache"
    scales = make_scales({"a:0": 0.5, "tiny": 2.0**-127, "b": 1 / 127}, method="minmax", data="")
    write_cache(scales, path, "10.3")
    # the scale 2**-127 has bits 00400000: leading zeros are left out
    assert path.read_text() == (
        "TRT-100300-EntropyCalibration2\na:0: 3f000000\ntiny: 400000\nb: 3c010204\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["calib.cache"]


@pytest.mark.parametrize(
    ("version", "number"),
    [("8.5.2", 8502), ("8.6.2", 8602), ("8.6", 8600), ("10.3", 100300), ("10.3.0.30", 100300)],
)
def test_version_numbers(version: str, number: int) -> None:
    assert version_number(version) == number


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "cache.header", ":1"),
        ("hello\nx: 3c010a14\n", "cache.header", ":1"),
        ("TRT-8600-EntropyCalibration2\nx: 3c010a14\nx 3c010a14\n", "cache.line", ":3"),
        ("TRT-8600-EntropyCalibration2\nx: zzz\n", "cache.line", ":2"),
        ("TRT-8600-EntropyCalibration2\nx: 123456789\n", "cache.line", ":2"),
        ("TRT-8600-EntropyCalibration2\nx: -3c01\n", "cache.line", ":2"),
        ("TRT-8600-EntropyCalibration2\nx: 7f800000\n", "cache.scale", ":2"),
        ("TRT-8600-EntropyCalibration2\nx: bc010a14\n", "cache.scale", ":2"),
        ("TRT-8600-EntropyCalibration2\nother: 3c010a14\n", "cache.foreign", "cache"),
    ],
)
def test_faults_name_the_line(tmp_path: Path, text: str, code: str, place: str) -> None:
    with pytest.raises(DataError) as caught:
        read_cache(written(tmp_path, text), NETWORK)
    assert caught.value.code == code
    assert caught.value.where.endswith(place)
    assert caught.value.hint


def test_a_zero_scale_means_missing(tmp_path: Path) -> None:
    text = "TRT-8600-EntropyCalibration2\nx: 3c010a14\nb: 0\n"
    assert "b" in read_cache(written(tmp_path, text), NETWORK).missing


def test_unreadable_and_unwritable_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file") as caught:
        read_cache(tmp_path / "none", NETWORK)
    assert caught.value.code == "cache.unreadable"
    (tmp_path / "binary").write_bytes(b"TRT-\xff\xfe\x00")
    with pytest.raises(DataError):
        read_cache(tmp_path / "binary", NETWORK)
    scales = make_scales({"a": 1.0}, method="mse", data="")
    with pytest.raises(DataError) as caught:
        write_cache(scales, tmp_path / "no" / "calib.cache", "10.3")
    assert caught.value.code == "cache.unwritable"
    with pytest.raises(DataError, match="line break"):
        write_cache(make_scales({"a\nb": 1.0}, method="mse", data=""), tmp_path / "c", "10.3")
    with pytest.raises(UsageError, match="not a TensorRT version"):
        write_cache(scales, tmp_path / "c", "ten")
    assert np.all([p.name != "c" for p in tmp_path.iterdir()])


@pytest.mark.parametrize("scale", [float("inf"), float("nan"), -1.0, 1e39, 1e-50])
def test_what_is_no_scale_is_refused_before_it_is_written(tmp_path: Path, scale: float) -> None:
    path = tmp_path / "calib.cache"
    for make in (
        lambda: make_cache({"a": 1.0, "b": scale}, "8.6.2"),
        lambda: CalibrationCache(8602, ALGORITHM, {"a": 1.0, "b": scale}),
    ):
        with pytest.raises(DataError) as caught:
            write_cache(make(), path)
        assert (caught.value.code, caught.value.where) == ("cache.scale", "b")
    assert not path.exists()


def test_zero_says_that_there_is_no_range(tmp_path: Path) -> None:
    write_cache(make_cache({"a": 0.0}, "8.6.2"), tmp_path / "calib.cache")
    assert load_cache(tmp_path / "calib.cache").scales == {"a": 0.0}


@pytest.mark.parametrize("name", ["", "a\ud800", "a\r"])
def test_names_that_no_line_can_hold(tmp_path: Path, name: str) -> None:
    path = tmp_path / "calib.cache"
    with pytest.raises(DataError) as caught:
        write_cache(make_cache({name: 1.0}, "8.6.2"), path)
    assert caught.value.code == "cache.name"
    assert str(caught.value).encode()
    assert not path.exists()
