"""tegrastats's lines: every release's form is read whole, and nothing raises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit_device.board.samples import CpuCore, EngineLoad, RailPower, Sample
from edgekit_device.board.tegrastats import UnknownFields, read_line
from edgekit_device.protocol.codec import write
from tests.edgekit_device.board.monitor_lines import LINES
from tests.security.security_fuzz import times

DATA = Path(__file__).parents[2] / "data" / "orin_jp62_trt103"
MIB = 1 << 20


def sample_of(text: str) -> Sample:
    line, _ = read_line(text)
    assert line is not None
    return line.sample


@pytest.mark.parametrize("release", LINES)
def test_every_field_of_a_release_is_known(release: str) -> None:
    line, unknown = read_line(LINES[release])
    assert unknown == []
    assert line is not None
    # what a name stands for is somewhere in the sample: nothing was passed over
    known = json.dumps(write(line.sample), allow_nan=False)
    for word in LINES[release].split():
        name = word.split("@")[0].removesuffix("_FREQ")
        if name[:1].isalpha() and name not in ("off", "fg", "bg", "NC", "CV1", "RAM", "SWAP"):
            assert name in known or name in ("CPU", "MTS"), name


def test_engines_report_off_clock_and_load() -> None:
    engines = sample_of(LINES["6 root"]).engines
    assert engines["NVENC"] == EngineLoad(True, 79, (166,))
    assert engines["NVDLA0"] == EngineLoad(True, 0, (1600,))
    assert engines["NVDLA1"] == EngineLoad(False, None, ())
    assert engines["GR3D"] == EngineLoad(False, 0, (0, 0))
    older = sample_of(LINES["5 root, DLA at work"]).engines
    assert older["NVDLA0"] == EngineLoad(True, None, (1369,))
    thor = sample_of(LINES["Thor"]).engines
    assert thor["GR3D"] == EngineLoad(True, None, (1574, 0, 1574))
    assert sample_of(LINES["4 user"]).engines["GR3D"].on is None


def test_memory_cores_rails_and_temperatures() -> None:
    sample = sample_of(LINES["5 root, DLA at work"])
    assert sample.ram.used_bytes == 9010 * MIB
    assert sample.ram.total_bytes == 62780 * MIB
    assert sample.cpu == (
        CpuCore(3, 1190),
        None,
        CpuCore(17, 1190),
        CpuCore(0, 2265),
    )
    assert sample.rails_mw["VDD_CPU_CV"] == RailPower(8312.0, 7415.0)
    assert "NC" not in sample.rails_mw
    assert sample.temperatures_c == {"CV0": 61.5, "tj": 63.0}  # CV1 has no power
    newer = sample_of(LINES["7.2 root"])
    assert newer.rails_mw["VDD_GPU_SOC"].peak == 2300.0
    assert newer.ram.largest_free_block_bytes == 512 << 10
    thor = sample_of(LINES["Thor"])
    assert thor.rails_mw["VDD_GPU"].now == -392.0
    assert [core and core.mhz for core in thor.cpu] == [2601, 2601, None]
    line, _ = read_line("1750866197.25::" + LINES["4 root"])
    assert line is not None
    older = line.sample
    assert older.rails_mw["GPU"].now == 2163.0
    assert older.temperatures_c["GPU"] == 35.5
    assert line.stamp == 1750866197.25


def test_unknown_fields_are_retained_and_counted_by_their_form() -> None:
    unknown = UnknownFields()
    for value in (7, 8):
        line, fields = read_line(f"{LINES['6 root']} WARP_CORE {value}/9bar?? x@ NVX 3%@")
        assert line is not None
        assert "WARP_CORE" not in line.sample.rails_mw
        unknown.add(fields)
    assert unknown.counts == {"WARP_CORE 7/9bar?? x@ NVX 3%@": 2}


def test_what_is_no_line_of_tegrastats_is_none() -> None:
    two = f"{LINES['6 root']} {LINES['6 root']}"
    for text in ("", "hello", "GR3D_FREQ 3%", "[08/20/2026-18:35:24] [I] Throughput: 7 qps", two):
        assert read_line(text)[0] is None, text


def test_a_session_with_the_dla_at_work_is_read_whole() -> None:
    for path in DATA.glob("teg_*.log"):
        lines = path.read_text("ascii").splitlines()
        assert len(lines) > 4
        for line in lines:
            said, unknown = read_line(line)
            assert unknown == []
            assert said is not None
            assert set(said.sample.rails_mw) == {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"}


_PIECES = sorted({word for line in LINES.values() for word in line.split()})


@times(80)
@given(
    st.lists(st.sampled_from(_PIECES), max_size=40),
    st.text(max_size=40),
    st.integers(0, 400),
    st.sampled_from([" ", "", "\t", "\0", "@", "9" * 5000, "1%@" * 400, "[0%@1," * 300]),
)
def test_damaged_lines_raise_nothing(words: list[str], junk: str, cut: int, glue: str) -> None:
    line = glue.join([LINES["6 root"][:cut], *words, junk])
    said, unknown = read_line(line)
    json.dumps([said and write(said.sample), unknown], allow_nan=False)
    assert all(len(field) <= 200 for field in unknown)
