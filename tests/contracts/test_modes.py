"""What the modes of the commands answer that need no board, of one small network."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.fleet.ansible import run
from edgekit.results.recording import record
from tests.benchmark import handmade_plan
from tests.buildlog import timing_log
from tests.cli.board_fakes import FakeBoard, lend
from tests.contracts.boards import signing_key
from tests.contracts.brief import brief, digest_of
from tests.contracts.conftest import ROOT, Answer, Golden
from tests.contracts.normalise import normalised
from tests.fleet.fleet_doubles import write_inventory
from tests.fleet.test_fleet_ansible_run import PLAYED, recap
from tests.pipeline.nets import small_config, small_net
from tests.results.measurements import bench, times

ORIN = ("--target", "jetson-agx-orin-64gb")
LOG = "[TRT] ---------- Layers Running on GPU ----------\n[TRT] [GpuLayer] conv2\n"
# as trtexec --exportProfile writes it
PROFILE = [
    {"count": 10},
    *[
        {"name": name, "timeMs": 10 * ms, "averageMs": ms, "medianMs": ms, "percentage": 25.0}
        for name, ms in (
            ("conv1 + relu1", 0.02),
            ("pool", 0.004),
            ("conv2 + relu2", 0.03),
            ("gap", 0.003),
        )
    ],
]

Ask = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of small.onnx and small.yaml, and the current one."""
    small_config(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def found() -> dict[str, Any]:
    return {}


@pytest.fixture
def ask(command: Callable[..., Answer], found: dict[str, Any]) -> Ask:
    """Runs a command; its answer is found under the command line without the network and board.

    The bytes of the files that it wrote are added.
    """

    def run(*arguments: str, writes: tuple[str, ...] = ()) -> None:
        name = " ".join(one for one in arguments if one not in ("small.onnx", *ORIN))
        # before long texts are shortened to digests
        found[name] = normalised(command(*arguments).contract, {str(Path.cwd()): "<tmp>"})
        found[name] |= {file: digest_of(Path(file)) for file in writes}

    return run


def test_modes_of_check(folder: Path, ask: Ask, found: dict[str, Any], golden: Golden) -> None:
    (folder / "build.log").write_text(LOG)
    for mode in (
        ("--by-layer",),
        ("--layer", "conv2"),
        ("--sparsity",),
        ("--max-loadables", "0"),
        ("--compare-log", "build.log"),
        ("--fail-under", "100"),
    ):
        ask("check", "small.onnx", *ORIN, *mode)
    golden("modes/check", found)


def test_modes_of_plan(folder: Path, ask: Ask, found: dict[str, Any], golden: Golden) -> None:
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    for mode in (
        ("--why", "conv2"),
        ("--what-if", "pin conv* GPU; mode 30W"),
        ("--pareto", "latency,energy"),
        ("--modes", "MAXN,30W"),
        ("--targets", "jetson-agx-xavier,jetson-orin-nano-8gb"),
        ("--profile", "profile.json", "--precision", "fp16"),
    ):
        ask("plan", "small.onnx", *ORIN, *mode)
    ask("plan", "small.onnx", *ORIN, "--annotate", "noted.onnx", writes=("noted.onnx",))
    golden("modes/plan", found)


def test_modes_of_calibrate(folder: Path, ask: Ask, found: dict[str, Any], golden: Golden) -> None:
    few = ("--count", "2", "--method", "minmax")
    calibrate = ("calibrate", "small.onnx", *ORIN)
    ask(*calibrate, *few, "--save", "calib.cache", writes=("calib.cache",))
    ask(*calibrate, *few, "--sensitivity", "--accuracy", "cosine=0.99995")
    ask("calibrate", "show", "calib.cache", "--model", "small.onnx")
    edit = ("--set", "x=3.5", "--drop", "y", "--rename", "g=gap", "--tensorrt", "8.6")
    ask("calibrate", "merge", "calib.cache", "-o", "edited.cache", *edit, writes=("edited.cache",))
    merge = ("calib.cache", "edited.cache", "-o", "merged.cache")
    ask("calibrate", "merge", *merge, writes=("merged.cache",))
    ask("calibrate", "merge", *merge, "--policy", "error")
    ask("calibrate", "diff", "calib.cache", "edited.cache")
    lower = ("--cache", "calib.cache", "-o", "qdq.onnx")
    ask("calibrate", "to-qdq", "small.onnx", *ORIN, *lower, writes=("qdq.onnx",))
    raised = ("-o", "plain.onnx", "--save", "back.cache", "--precisions", "layers.txt")
    ask(
        "calibrate",
        "from-qdq",
        "qdq.onnx",
        *ORIN,
        *raised,
        writes=("plain.onnx", "back.cache", "layers.txt"),
    )
    # 55 dB are a difference of 2e-3 of the values: another CPU's rounding shows in it
    golden("modes/calibrate", found, tolerance=1e-4)


def test_modes_of_rewrite(folder: Path, ask: Ask, found: dict[str, Any], golden: Golden) -> None:
    rewrite = ("rewrite", "small.onnx", *ORIN)
    ask(*rewrite, "-o", "out.onnx", "--record", "record.json", writes=("out.onnx", "record.json"))
    for file in ("out.onnx", "record.json"):
        ask("rewrite", "small.onnx", "--verify", file)
    small_net(folder / "other.onnx", seed=1)
    ask("rewrite", "other.onnx", "--verify", "record.json")
    ask(*rewrite, "--enable", "none")
    golden("modes/rewrite", found)


def test_modes_of_trace(folder: Path, ask: Ask, found: dict[str, Any], golden: Golden) -> None:
    nsys = str(ROOT / "tests/data/nsys/nvtx_2022_4.sqlite")
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    ask("trace", "--nsys", nsys, "-o", "nsys.json", writes=("nsys.json",))
    ask("trace", "small.yaml", "--profile", "profile.json", "-o", "two.json", writes=("two.json",))
    golden("modes/trace", found)


def test_files_of_other_programs(
    folder: Path, ask: Ask, found: dict[str, Any], golden: Golden
) -> None:
    """What trtexec, tegrastats and TensorRT's log say, alone and with a measurement."""
    (folder / "profile.json").write_text(json.dumps(PROFILE))
    layers = [{"Name": "conv1 + relu1", "LayerType": "DLA", "Outputs": [{"Name": "pool.in"}]}]
    (folder / "layers.json").write_text(json.dumps({"Layers": layers}))
    (folder / "build.log").write_text("\n".join(timing_log.stem()) + "\n")
    shutil.copy(ROOT / "tests/data/orin_jp62_trt103/teg_conc_solo_dla0.log", "board.log")
    measured = handmade_plan.measurement() | {
        "schema": "edgekit.bench/1",
        "name": "app",
        "clock": "board-measured",
        "warmup_ms": 500.0,
        "duration_s": 10.0,
        "iterations": 5000,
        "target": ORIN[1],
        "power_mode": "MAXN",
        "energy": None,
        "monitor": None,
    }
    for name in ("release", "events", "pipelined_events"):  # of the loader's measurement alone
        del measured[name]
    (folder / "bench.json").write_text(json.dumps(measured))
    ask("plan", "--profile", "build.log")
    rows = ("--profile", "profile.json", "--layer-info", "layers.json")
    ask("plan", "small.onnx", *ORIN, *rows)
    ask("trace", *rows, "-o", "rows.json", writes=("rows.json",))
    ask("trace", "--tegrastats", "board.log", "-o", "board.json", writes=("board.json",))
    ask("bench", "bench.json", "--tegrastats", "board.log")
    golden("modes/files", brief(found))


def test_networks_that_are_cut_and_scaled(
    folder: Path, ask: Ask, found: dict[str, Any], golden: Golden
) -> None:
    (folder / "calib.cache").write_text("TRT-100300-EntropyCalibration2\nx: 3c010a14\n")
    cut = ("--outputs", "r1", "--shape", "x:1x3x16x16")
    ask("check", "small.onnx", *ORIN, *cut, "--cache", "calib.cache")
    ask("plan", "small.onnx", *ORIN, "--cache", "calib.cache", "--missing", "fp16")
    ask("plan", "small.onnx", *ORIN, "--pin", "conv*=GPU", "--bound", "latency_us=1")
    ask("plan", "small.onnx", *ORIN, *cut, "--max-transitions", "0", "--pool", "local_dram=1MiB")
    golden("modes/options", brief(found))


def test_modes_of_history(folder: Path, ask: Ask, found: dict[str, Any], golden: Golden) -> None:
    for seed in range(3):
        record(bench(times(50, 2.0 + seed / 10, seed=seed)))
    for mode in (
        (),
        ("show", "last"),
        ("show", "9"),
        ("mark", "2", "release"),
        ("export", "1"),
        ("prune", "--keep", "1", "--dry-run"),
        ("prune", "--keep", "1"),
    ):
        ask("history", *mode)
    ask("compare", "baseline:release", "last")
    golden("modes/history", found, words={"at": "<date>"})


def test_other_metrics_and_a_repair(
    folder: Path, ask: Ask, found: dict[str, Any], golden: Golden
) -> None:
    for seed in range(2):
        record(bench(times(250, 2.0 + seed / 10, seed=seed)))
    ask("compare", "1", "2", "--metric", "latency.p90", "--confidence", "0.9")
    ask("history", "--repair")
    golden("modes/repair", found, words={"at": "<date>"})


def test_a_rollout_by_ansible(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ask: Ask, found: dict[str, Any], golden: Golden
) -> None:
    """Where a few lines of Python are ansible-playbook, and one board's disk is full."""
    with (folder / "small.yaml").open("a") as config:
        config.write(f"deploy: {{sign_with: {signing_key(folder)}}}\n")
    (program := folder / "ansible-playbook").write_text(
        PLAYED.format(python=sys.executable, act=recap(b01=None, b02="full") + "; sys.exit(2)")
    )
    program.chmod(0o755)
    monkeypatch.setattr(run, "find_program", lambda name: str(program))
    write_inventory(folder / "fleet.yaml", 2)
    ask(
        "fleet",
        "deploy",
        "small.yaml",
        "-i",
        "fleet.yaml",
        "--driver",
        "ansible",
        "--name",
        "first",
        "--state",
        "state",
    )
    golden("modes/ansible", found, words={"bundles": "<digests>"})


def test_doctor_prepares_a_board(
    monkeypatch: pytest.MonkeyPatch, ask: Ask, found: dict[str, Any], golden: Golden
) -> None:
    board = FakeBoard("lab")
    lend(monkeypatch, board)
    board.answers = {"state": "shown", "applied": "applied"}
    ask("doctor", "lab", "--setup")
    ask("doctor", "lab", "--setup", "--yes")
    board.answers = {"state": "shown", "applied": "undone"}
    ask("doctor", "lab", "--setup", "--undo", "--yes")
    golden("modes/doctor", found)
