"""What nvpmodel, jetson_clocks and nv_tegra_release say of clocks, modes and releases."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgekit_device.board.monitor import release_warning
from edgekit_device.board.power_tools import parse_clocks, parse_modes, parse_power_mode
from edgekit_device.protocol.codec import write
from tests.security.security_fuzz import times

VERBOSE = """NVPM VERB: Current mode: NV Power Mode: 25W
3
NVPM VERB: PARAM DLA0_CORE: ARG MAX_FREQ: PATH /sys/x/clk_cap/dla0_core: REAL_VAL: 5 CONF_VAL: 614
NVPM VERB: PARAM GPU_PC: ARG PWR: PATH /sys/devices/gpu.0/power/control: REAL_VAL: auto CONF_VAL: on
NVPM VERB: PM_CONFIG: DEFAULT=15W_DESKTOP(7)
NVPM VERB: POWER_MODEL: ID=3 NAME=25W
"""
SHOWN = """SOC family:tegra234  Machine:Some Board
Online CPUs: 0-3,6
cpu0:  Online=1 Governor=schedutil MinFreq=1728 MaxFreq=1728 CurrentFreq=1728 IdleStates: WFI=0
Active GPU TPCs: 4
EMC MinFreq=204000000 MaxFreq=3199000000 CurrentFreq=3199000000 FreqOverride=1
FAN Dynamic Speed Control=nvfancontrol hwmon2_pwm1=66
FAN Dynamic Speed Control=nvfancontrol hwmon2_pwm1_enable=1
NV Power Mode: 25W
"""
RELEASE = """# R36 (release), REVISION: 4.3, GCID: 38, BOARD: generic, DATE: Wed Jan  8
# KERNEL_VARIANT: oot
TARGET_USERSPACE_LIB_DIR=nvidia
"""


def test_a_release_and_one_of_another_form(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc/nv_tegra_release"
    assert release_warning(tmp_path) == ""  # no Jetson
    file.write_text(RELEASE, "ascii")
    assert release_warning(tmp_path) == ""
    file.write_text("# S1 (stable), REV 9\n", "ascii")
    assert "S1 (stable)" in release_warning(tmp_path)


@times(60)
@given(
    st.sampled_from([VERBOSE, SHOWN, RELEASE]),
    st.integers(0, 400),
    st.sampled_from(
        ["", "9" * 6000, "\u00b2", " " * 5000, "\0", "NV Power Mode: ", "MaxFreq=\u00b2"]
    ),
    st.text(max_size=30),
)
def test_damaged_output_raises_nothing(text: str, cut: int, piece: str, junk: str) -> None:
    damaged = text[:cut] + piece + junk + text[cut + len(junk) :]
    found = (
        parse_clocks(damaged),
        parse_modes(damaged),
        parse_power_mode(damaged),
    )
    json.dumps(write(found))
