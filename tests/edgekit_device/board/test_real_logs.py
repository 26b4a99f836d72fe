"""What boards really print, where somebody has it: EDGEKIT_LOGS names a folder of such files.

The files are others' and stay there; nothing of them is copied here but what their names say.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from edgekit_device.board.inventory import l4t
from edgekit_device.board.power_tools import parse_clocks, parse_modes, parse_power_mode
from edgekit_device.board.sysfs import DlaCores
from edgekit_device.board.tegrastats import read_line
from edgekit_device.protocol.codec import write

FOLDER = os.environ.get("EDGEKIT_LOGS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="EDGEKIT_LOGS names no folder of logs")


def logs(pattern: str) -> list[Path]:
    found = sorted(Path(FOLDER).rglob(pattern))
    assert found, f"no {pattern} in {FOLDER}"
    return found


def test_every_power_mode_is_read() -> None:
    for path in logs("nvpmodel_q*.txt"):
        text = path.read_text("utf-8")
        said = re.search(r"NV Power Mode: (\S+)", text)
        name, number = parse_power_mode(text)
        assert name == (said.group(1) if said else None), path.name
        if said and re.search(r"NV Power Mode: \S+\n\d+$", text, re.MULTILINE):
            assert isinstance(number, int), path.name


def test_modes_of_a_verbose_listing_have_ids() -> None:
    for path in logs("nvpmodel_q_verbose*.txt"):
        text = path.read_text("utf-8")
        assert len(parse_modes(text)) == len(set(re.findall(r"POWER_MODEL: ID=(\d+)", text)))


def test_every_clock_is_read() -> None:
    for path in logs("jetson_clocks_show*.txt"):
        text = path.read_text("utf-8")
        clocks = parse_clocks(text)
        lines = [x for x in text.splitlines() if "MaxFreq=" in x and not x.startswith("#")]
        assert len(clocks) == len(lines), path.name
        for name, one in clocks.items():
            assert one.min <= one.max, (path.name, name)
            assert 1e6 < one.max < 1e10, (path.name, name)  # Hz, whatever unit it was in
        assert {"gpu", "emc"} <= set(clocks), path.name


def test_every_release_of_jetson_linux_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    for path in logs("nv_tegra_release*.txt"):
        lines = [x for x in path.read_text("utf-8").splitlines() if x.startswith("# R")]
        assert lines
        for line in lines:
            (folder / "nv_tegra_release").write_text(line + "\n", "utf-8")
            major, minor = re.findall(r"R(\d+) \(release\), REVISION: ([\d.]+)", line)[0]
            assert l4t(tmp_path) == f"{major}.{minor}"


def test_every_line_of_tegrastats_is_read_whole() -> None:
    for path in [*logs("tegrastats_*.txt"), *logs("teg_*.log")]:
        lines = [x for x in path.read_text("utf-8").splitlines() if not x.startswith("#")]
        for line in lines:
            said, unknown = read_line(line)
            assert said is not None, (path.name, line)
            assert unknown == [], path.name
            assert {"ram", "swap", "cpu", "engines", "temperatures_c"} <= set(write(said.sample)), (
                path.name
            )


def test_the_dlas_state_is_read(tmp_path: Path) -> None:
    for path in logs("dla_runtime_status*.txt"):
        said = re.findall(r"cat (/sys/\S+)\n(\w+)", path.read_text("utf-8"))
        assert said
        for place, state in said:
            file = tmp_path / place.lstrip("/")
            file.parent.mkdir(parents=True)
            file.write_text(state + "\n", "ascii")
        assert list(DlaCores(tmp_path).states().values()) == [state for _, state in said]
