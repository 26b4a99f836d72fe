"""What ``probe`` reads: files and outputs in the grammar of real boards, with names of our own.

The shapes are those of JetPack 4 to 7 (R32 to R39) as people have posted them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgekit_device.board import inventory
from edgekit_device.board.identity import fingerprint, query_cuda, query_cudla, query_tensorrt
from edgekit_device.board.inventory import module_version, parse_packages, tensorrt_versions
from edgekit_device.board.power_tools import (
    NvpmodelMode,
    parse_clocks,
    parse_modes,
    parse_power_mode,
)
from edgekit_device.board.probe import probe
from edgekit_device.cuda.cudla_library import find_library
from edgekit_device.protocol.codec import write

LIBRARIES = "usr/lib/aarch64-linux-gnu"


def put(root: Path, name: str, text: str = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def orin(tmp_path: Path) -> Path:
    """The files of an AGX Orin with JetPack 6.2."""
    root = tmp_path / "system"
    line = (
        "# R36 (release), REVISION: 4.3, GCID: 12345678, BOARD: generic, EABI: aarch64, DATE: x\n"
    )
    put(root, "etc/nv_tegra_release", line + "# KERNEL_VARIANT: oot\n")
    put(root, "proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    compatible = "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"
    put(root, "proc/device-tree/compatible", compatible)
    put(root, "proc/meminfo", "MemTotal:       65000000 kB\nMemAvailable:   50000000 kB\n")
    put(root, "usr/local/cuda-12.6/version.json", '{"cuda": {"version": "12.6.11"}}')
    for core, name in enumerate(("15880000.nvdla0", "158c0000.nvdla1")):
        folder = f"sys/devices/platform/bus@0/13e00000.host1x/{name}/clk_cap"
        put(root, f"{folder}/dla{core}_core", "1600000000")
    for name in (
        "libnvinfer.so.10.3.0",
        "libnvinfer_lean.so.10.3.0",
        "libcudla.so.1.0.0",
        "nvidia/libnvdla_compiler.so",
    ):
        put(root, f"{LIBRARIES}/{name}")
    for stem in ("libnvinfer", "libnvinfer_lean"):
        os.symlink(f"{stem}.so.10.3.0", root / LIBRARIES / f"{stem}.so.10")
    put(root, "usr/src/tensorrt/bin/trtexec")
    return root


def test_a_board_by_its_files_alone(orin: Path, tmp_path: Path) -> None:
    document = write(probe(tmp_path / "root", orin))
    assert document["schema"] == "edgekit.probe/1"
    assert document["l4t"] == "36.4.3"
    assert document["module"] == "NVIDIA Jetson AGX Orin Developer Kit"
    assert document["board_id"] == "p3701-0005"
    assert document["cuda"] == "12.6.11"
    assert document["tensorrt"]["full"] == document["tensorrt"]["lean"] == "10.3.0"
    assert document["tensorrt"]["dispatch"] is None
    assert [Path(name).name for name in document["dla"]["devices"]] == [
        "15880000.nvdla0",
        "158c0000.nvdla1",
    ]
    assert document["dla"]["compiler"].endswith("/nvidia/libnvdla_compiler.so")
    assert document["cudla"] == f"/{LIBRARIES}/libcudla.so.1.0.0"
    assert document["memory"]["total"] == 65_000_000 * 1024
    assert Path(document["trtexec"]["path"]).name == "trtexec"
    json.dumps(document)


def test_an_empty_system_is_unknown_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    document = write(probe(tmp_path / "root", tmp_path / "nothing"))
    for name in ("module", "board_id", "l4t", "cuda", "trtexec", "cudla", "nvrtc"):
        assert document[name] is None
    assert document["tensorrt"]["full"] is None
    assert document["notes"]
    assert set(document["fingerprint"].values()) - {document["machine"], "tensorrt"} == {""}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("# R32 (release), REVISION: 7.1, GCID: 2, BOARD: t186ref, EABI: aarch64", "32.7.1"),
        ("# R35 (release), REVISION: 3.1, GCID: 3, BOARD: t186ref", "35.3.1"),
        ("# R39 (release), REVISION: 2.0, GCID: 4, BOARD: generic", "39.2.0"),
        ("something else", None),
    ],
)
def test_l4t(tmp_path: Path, line: str, expected: str | None) -> None:
    put(tmp_path, "etc/nv_tegra_release", line)
    assert inventory.l4t(tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nvidia,p3509-0000+p3668-0001\0nvidia,tegra194\0", "p3668-0001"),
        ("nvidia,p3768-0000+p3767-0003-super\0nvidia,p3767-0003\0", "p3767-0003"),
        ("nvidia,p2972-0000\0nvidia,tegra194\0", "p2972-0000"),
        ("raspberrypi,4-model-b\0", None),
    ],
)
def test_the_module_is_what_follows_the_carrier(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    put(tmp_path, "proc/device-tree/compatible", text)
    assert inventory.board_id(tmp_path) == expected


@pytest.mark.parametrize(
    "folder", ["host1x", "13e40000.host1x", "bus@0/13e00000.host1x"], ids=["jp4", "jp5", "jp6"]
)
def test_dla_devices_wherever_they_lie(tmp_path: Path, folder: str) -> None:
    put(tmp_path, f"sys/devices/platform/{folder}/15880000.nvdla0/power/runtime_status", "active")
    put(tmp_path, f"sys/devices/platform/{folder}/16000000.pva0/power/runtime_status", "active")
    assert inventory.dla_devices(tmp_path) == [f"/sys/devices/platform/{folder}/15880000.nvdla0"]


def test_the_highest_version_of_a_library_counts(orin: Path) -> None:
    put(orin, "usr/local/lib/libnvinfer.so.10.12.0")
    put(orin, "usr/local/lib/libnvinfer.so.8.6.1")
    assert inventory.libraries(orin)["full"] == {
        "path": "/usr/local/lib/libnvinfer.so.10.12.0",
        "version": "10.12.0",
    }


def test_packages_bring_four_parts(orin: Path) -> None:
    listed = parse_packages(
        "libnvinfer10\t10.3.0.30-1+cuda12.5\tinstalled\n"
        "libnvinfer-lean10\t10.3.0.30-1+cuda12.5\tinstalled\n"
        "libnvinfer-dispatch10\t10.3.0.30-1+cuda12.5\tconfig-files\n"
        "libnvinfer-plugin10\t10.3.0.26-1+cuda12.5\tinstalled\n"
        "nvidia-l4t-dla-compiler\t36.4.3-20250107174145\tinstalled\nhalf a line\n"
    )
    assert tensorrt_versions(orin, listed) == {
        "full": "10.3.0.30",
        "lean": "10.3.0.30",
        "dispatch": None,
    }


def test_engines_are_bound_to_module_and_release(orin: Path, tmp_path: Path) -> None:
    print_ = fingerprint(tmp_path, orin, capability="8.7", tensorrt="10.3.0.30")
    assert print_["module"] == "NVIDIA Jetson AGX Orin Developer Kit p3701-0005"
    assert (print_["l4t"], print_["tensorrt"], print_["compute_capability"]) == (
        "36.4.3",
        "10.3.0.30",
        "8.7",
    )
    assert all(isinstance(value, str) for value in print_.values())


def test_a_container_knows_what_its_board_has_seen(orin: Path, tmp_path: Path) -> None:
    inside = tmp_path / "container"
    put(inside, f"{LIBRARIES}/libnvinfer.so.10.3.0")
    put(
        tmp_path / "root",
        "board.json",
        '{"module": "Toy", "board_id": "p0000-0001", "l4t": "36.4.3"}',
    )
    document = write(probe(tmp_path / "root", inside))
    assert (document["module"], document["l4t"]) == ("Toy", "36.4.3")
    assert document["fingerprint"]["module"] == "Toy p0000-0001"
    put(tmp_path / "root", "board.json", "[1, 2")
    assert probe(tmp_path / "root", inside).module is None


def test_power_modes() -> None:
    assert parse_power_mode("NV Power Mode: MAXN_SUPER\n2\n") == ("MAXN_SUPER", 2)
    verbose = (
        "NVPM VERB: Config file: /etc/nvpmodel.conf\n"
        "NVPM VERB: Current mode: NV Power Mode: 40W\n4\n"
        "NVPM VERB: PARAM GPU: ARG MAX_FREQ: PATH /sys/x: REAL_VAL: 9 CONF_VAL: 9\n"
    )
    assert parse_power_mode(verbose) == ("40W", 4)
    assert parse_power_mode("NVPM ERROR: no rights\n") == (None, None)
    listed = "NVPM VERB: POWER_MODEL: ID=0 NAME=MAXN\nNVPM VERB: POWER_MODEL: ID=3 NAME=MODE_50W\n"
    assert parse_modes(listed) == [NvpmodelMode(0, "MAXN"), NvpmodelMode(3, "MODE_50W")]


def test_clocks_of_three_releases() -> None:
    text = """\
SOC family:tegra234  Machine:NVIDIA Toy Kit
Online CPUs: 0-7
cpu0:  Online=1 Governor=schedutil MinFreq=800000 MaxFreq=2000000 CurrentFreq=900000 IdleStates:
cpu8:  Online=0 Governor=schedutil MinFreq=700000 MaxFreq=2000000 CurrentFreq=700000 IdleStates:
cpu9: Governor=schedutil MinFreq=700000 MaxFreq=2000000 CurrentFreq=700000 IdleStates: c7=0
GPU MinFreq=600000000 MaxFreq=600000000 CurrentFreq=600000000
Active GPU TPCs: 4
EMC MinFreq=200000000 MaxFreq=3000000000 CurrentFreq=3000000000 FreqOverride=1
DLA0_CORE:   Online=1 MinFreq=0 MaxFreq=1300000000 CurrentFreq=1300000000
FAN Dynamic Speed Control=nvfancontrol hwmon0_pwm1=48
NV Power Mode: MODE_30W
"""
    clocks = parse_clocks(text)
    assert set(clocks) == {"cpu0", "cpu8", "cpu9", "gpu", "emc", "dla0_core"}
    assert clocks["cpu0"].current == 900_000_000
    assert (clocks["cpu0"].online, clocks["cpu8"].online) == (True, False)
    assert clocks["cpu9"].online is None
    assert [clocks[name].locked for name in ("gpu", "emc", "dla0_core")] == [True, True, False]


def test_libcudla_is_found_where_the_loader_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import _ctypes

    monkeypatch.setenv("EDGEKIT_CUDLA", _ctypes.__file__)  # any library will do
    assert query_cudla() == find_library() == _ctypes.__file__
    monkeypatch.setenv("EDGEKIT_CUDLA", str(tmp_path / "none.so"))
    if find_library() is None:
        assert query_cudla() is None


def toy_module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    put(folder, f"{name}.py", text)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))


BUILDER = """
__version__ = "10.3.0"
class Logger:
    ERROR = 1
    def __init__(self, severity): pass
class Builder:
    num_DLA_cores = 2
    def __init__(self, logger): {body}
"""


def test_cores_are_queried_of_the_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_module(tmp_path, monkeypatch, "tensorrt", BUILDER.format(body="pass"))
    assert query_tensorrt("tensorrt") == (("10.3.0", 2), "")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import faulthandler, os; faulthandler.disable(); os.abort()", "SIGABRT"),
        ("raise RuntimeError('no driver')", "no driver"),
    ],
)
def test_a_builder_that_takes_its_process_down_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, says: str
) -> None:
    toy_module(tmp_path, monkeypatch, "tensorrt", BUILDER.format(body=body))
    found, problem = query_tensorrt("tensorrt")
    assert found == ("10.3.0", None)
    assert says in problem
    document = write(probe(tmp_path / "root"))
    assert document["dla"]["cores"] is None
    assert any(says in note for note in document["notes"])
    assert document["tensorrt"]["python"]["full"] == "10.3.0"


def test_a_version_is_read_without_running_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '__version__ = "8.6.1"\nraise SystemExit("it was imported")\n'
    toy_module(tmp_path, monkeypatch, "tensorrt_lean", text)
    assert module_version("tensorrt_lean") == "8.6.1"
    assert module_version("tensorrt_of_nobody") is None


def test_a_driver_that_is_not_there_is_reported() -> None:
    found, problem = query_cuda()
    assert bool(found.compute_capability) != bool(problem)
