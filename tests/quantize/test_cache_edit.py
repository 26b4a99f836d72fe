"""Calibration caches: what TensorRT publishes, compared, merged, edited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.errors import DataError, UsageError
from edgekit.quantize.caches import (
    CalibrationCache,
    diff,
    edit,
    load_cache,
    merge,
    parse_cache,
    write_cache,
)

# the first lines of data/model/qat2ptq.cache, github.com/NVIDIA-AI-IOT/cuDLA-samples, dffbd62
CUDLA = """\
TRT-8600-EntropyCalibration2
images: 3c00f9f4
/model.0/act/Mul_output_0: 3e6c9314
/model.1/act/Mul_output_0: 3e870ad0
/model.2/cv1/act/Mul_output_0: 3df899ac
"""
# as TensorRT 8.4 wrote it for a SegFormer, its unnamed layers and a tensor without a range included
# (a public build log; the values are those that it shows)
SEGFORMER = """\
TRT-8401-EntropyCalibration2
input: 3caa54fc
371: 3caa54fc
(Unnamed Layer* 64) [Shuffle]_output: 0
366: 0
404: 3d5c11b5
(Unnamed Layer* 82) [Shuffle]_output: 3c56713e
"""
# NVIDIA's PeopleNet-like detectors name tensors "input_1:0"
COLONS = """\
TRT-8001-EntropyCalibration2
input_1:0: 3c010a14
block_1a_conv_1/convolution:0: 3d8a8ed6
a name with spaces: 3f800000
"""


@pytest.mark.parametrize("text", [CUDLA, SEGFORMER, COLONS])
def test_published_caches_come_back_byte_for_byte(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calib.cache"
    path.write_bytes(text.encode())
    write_cache(load_cache(path), tmp_path / "again.cache")
    assert (tmp_path / "again.cache").read_bytes() == text.encode()


def test_headers_and_names() -> None:
    cache = parse_cache(COLONS)
    assert (cache.version, cache.algorithm) == (8001, "EntropyCalibration2")
    assert list(cache.scales)[:2] == ["input_1:0", "block_1a_conv_1/convolution:0"]
    # 3c010a14 is told to be 0.00787594 by TensorRT's log of that cache
    assert cache.scales["input_1:0"] == pytest.approx(0.00787594, abs=5e-9)
    assert parse_cache(SEGFORMER).scales["366"] == 0


@pytest.mark.parametrize(
    "text",
    [
        CUDLA.replace("\n", "\r\n"),
        CUDLA.upper().replace("TRT-8600-ENTROPYCALIBRATION2", "TRT-8600-EntropyCalibration2"),
        CUDLA.replace("\n", "\n\n"),
        CUDLA.rstrip("\n"),
        "\ufeff" + CUDLA,
    ],
    ids=["crlf", "upper", "blank", "unfinished", "bom"],
)
def test_other_writings_mean_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calib.cache"
    path.write_bytes(text.encode())
    assert list(load_cache(path).scales.values()) == list(parse_cache(CUDLA).scales.values())


def test_the_last_of_two_lines_counts_and_is_reported() -> None:
    cache = parse_cache("TRT-8600-EntropyCalibration2\na: 3f800000\nb: 3f800000\na: 40000000\n")
    assert dict(cache.scales) == {"a": 2.0, "b": 1.0}
    assert "line 4" in cache.notes[0]


@pytest.mark.parametrize("name", ["EntropyCalibration", "MinMaxCalibration", "LegacyCalibration"])
def test_caches_of_other_calibrators_are_read_and_reported(name: str) -> None:
    cache = parse_cache(f"TRT-8600-{name}\na: 3f800000\n")
    assert cache.algorithm == name
    assert not cache.notes
    assert "calibrate again" in cache.complaint("8.6.2")
    assert cache.for_tensorrt("8.6.2").header == "TRT-8602-EntropyCalibration2"


def test_a_header_of_another_major_release_is_reported() -> None:
    cache = parse_cache(CUDLA)
    assert not cache.complaint("8.5.2")
    assert "TRT-100300-EntropyCalibration2" in cache.complaint("10.3")
    assert not cache.for_tensorrt("10.3").complaint("10.7")


def of(**scales: float) -> CalibrationCache:
    return CalibrationCache(8600, "EntropyCalibration2", scales)


def test_diff_names_what_changed() -> None:
    found = diff(of(a=1.0, b=2.0, c=1.0, d=4.0), of(b=2.0, c=3.0, d=4.1, e=5.0))
    assert (dict(found.added), dict(found.removed)) == ({"e": 5.0}, {"a": 1.0})
    assert [row[0] for row in found.changed] == ["c", "d"]
    assert found.equal == 1
    assert diff(of(d=4.0), of(d=4.1), tolerance=0.05).same_scales
    assert not diff(of(d=4.0), of(d=4.1), tolerance=0.02).same_scales
    assert not diff(of(d=0.0), of(d=4.1), tolerance=9.0).same_scales


scales = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.125, 8, width=32), min_size=1)


@given(first=scales, second=scales)
def test_merging_keeps_every_tensor_and_one_of_its_scales(
    first: dict[str, float], second: dict[str, float]
) -> None:
    for policy, choose in {
        "last": lambda n: second.get(n, first.get(n)),
        "first": lambda n: first.get(n, second.get(n)),
        "max": lambda n: max(first.get(n, 0), second.get(n, 0)),
    }.items():
        merged = merge([of(**first), of(**second)], policy=policy)
        assert dict(merged.scales) == {n: choose(n) for n in {**first, **second}}
        assert list(merged.scales)[: len(first)] == list(first)
    differs = any(first[n] != second[n] for n in first.keys() & second.keys())
    if differs:
        with pytest.raises(DataError) as caught:
            merge([of(**first), of(**second)], policy="error", names=["one", "two"])
        assert caught.value.code == "cache.conflict"
        assert "two" in caught.value.message
    else:
        assert diff(of(**first), merge([of(**second), of(**first)], policy="error")).removed == {}


def test_no_range_hides_no_range_of_another_cache() -> None:
    for policy in ("last", "first", "max", "error"):
        assert dict(merge([of(a=0.0), of(a=1.0), of(a=0.0)], policy=policy).scales) == {"a": 1.0}
    merged = merge([of(a=0.0), parse_cache(COLONS)])
    assert merged.version == 8600
    assert "headers differ" in merged.notes[0]
    for broken, code in (([], "no cache to merge"), ([of(a=1.0)], "unknown policy")):
        with pytest.raises(UsageError, match=code):
            merge(broken, policy="newest")


def test_edits_drop_rename_and_set() -> None:
    cache = parse_cache(SEGFORMER)
    edited = edit(
        cache,
        drop=["366", "(Unnamed Layer* 64) [Shuffle]_output", "*82*"],
        rename={"input": "x", "371": "input"},
        amax={"404": 127.0, "new": 12.7},
    )
    assert list(edited.scales) == ["x", "input", "404", "new"]
    assert edited.scales["404"] == 1.0
    assert edited.scales["new"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ({"drop": ["40"]}, "cache.unknown"),
        ({"drop": ["x*"]}, "cache.unknown"),
        ({"rename": {"40": "x"}}, "cache.unknown"),
        ({"rename": {"404": "input"}}, "cache.taken"),
        ({"amax": {"404": 0.0}}, "cache.amax"),
        ({"amax": {"404": float("nan")}}, "cache.amax"),
        ({"amax": {"404": 1e300}}, "cache.amax"),
        ({"amax": {"404": 1e-60}}, "cache.amax"),
    ],
)
def test_edits_that_fit_nothing_are_refused(edits: dict[str, object], code: str) -> None:
    with pytest.raises(UsageError) as caught:
        edit(parse_cache(SEGFORMER), **edits)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert caught.value.hint


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "calib.cache"
    path.write_text(CUDLA)
    code = """
        import os, pathlib, signal, sys
        from edgekit.quantize.caches import load_cache, write_cache
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        cache = load_cache(sys.argv[1])
        def stopped(self, content):
            with open(self, "wb") as file:
                file.write(content[:20])
                file.flush()
                os.kill(os.getpid(), signal.SIGINT)
                signal.pause()
        pathlib.Path.write_bytes = stopped
        write_cache(cache, sys.argv[1], "10.3")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode in (-signal.SIGINT, 130)
    assert path.read_text() == CUDLA
    assert [p.name for p in tmp_path.iterdir()] == ["calib.cache"]
