"""A network of 300 MB with external data, through the command line: no step holds it whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.network import streaming
from edgekit.pipeline.progress import SilentProgress
from edgekit.pipeline.steps import memory
from tests.boards.fixtures import need_sshd

_SIDE = 2048
_LAYERS = 18
_LARGEST = 4 * _SIDE * _SIDE
_BOUND = 4 * _LARGEST + 600_000_000


def write_network(folder: Path, name: str, seed: int, count: int = _LAYERS) -> Path:
    """Matrix products whose weights lie in a file next to the model."""
    nodes, stubs = [], []
    rng = np.random.default_rng(seed)
    with (folder / f"{name}.bin").open("wb") as file:
        for index in range(count):
            value = rng.standard_normal((_SIDE, _SIDE), np.float32) / np.float32(_SIDE**0.5)
            stub = TensorProto(name=f"w{index}", data_type=1, dims=value.shape)
            stub.data_location = TensorProto.EXTERNAL
            rows = (("location", f"{name}.bin"), ("offset", file.tell()), ("length", value.nbytes))
            for key, entry in rows:
                stub.external_data.add(key=key, value=str(entry))
            file.write(value.data)
            stubs.append(stub)
            nodes += [
                helper.make_node("MatMul", [f"x{index}", f"w{index}"], [f"m{index}"], f"m{index}"),
                helper.make_node("Relu", [f"m{index}"], [f"x{index + 1}"], f"r{index}"),
            ]
    ends = [helper.make_tensor_value_info(n, 1, [1, 4, _SIDE]) for n in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], stubs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def peak_of(folder: Path, *words: str) -> tuple[int, str]:
    """Runs a command; returns the most memory that it had, file pages included, and its output."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edgekit", *words],
        cwd=folder,
        env={**os.environ, "EDGEKIT_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    status, peak = Path(f"/proc/{process.pid}/status"), 0
    while process.poll() is None:
        # the kernel keeps the maximum, so that a look now and then is enough
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1]) << 10
        time.sleep(0.02)
    assert process.stdout is not None
    output = process.stdout.read()
    process.stdout.close()
    assert process.returncode == 0, output
    return peak, output


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.whole
def test_each_step_stays_within_its_memory(tmp_path: Path) -> None:
    need_sshd()
    write_network(tmp_path, "net", 0)
    other = write_network(tmp_path, "other", 1)
    assert (tmp_path / "net.bin").stat().st_size == _LAYERS * _LARGEST > 300_000_000
    config = tmp_path / "net.yaml"
    config.write_text(
        "version: 1\nname: large\nmodel: {onnx: net.onnx}\ntarget: jetson-agx-orin-64gb\n"
        "precision: fp16\ncalibration: {count: 4}\n"
    )
    commands = {
        "check": ["check", "net.yaml"],
        "rewrite": ["rewrite", "net.yaml"],
        "plan": ["plan", "net.yaml"],
        "bundle": ["bundle", "net.yaml", "-o", "full.ekb"],
        "deploy": ["deploy", "net.yaml"],
        "refit": ["refit", "net.yaml", "--weights", other.name],
        "deploy of a file": ["deploy", "net.yaml", "--bundle", "full.ekb", "--force"],
    }
    found = {name: peak_of(tmp_path, *words) for name, words in commands.items()}
    peaks = {name: peak for name, (peak, _) in found.items()}
    assert max(peaks.values()) < _BOUND, peaks
    # weights are not touched
    assert max(peaks["check"], peaks["rewrite"], peaks["plan"]) < 200_000_000, peaks
    before, text, _ = found["bundle"][1].partition(
        "[5/6] build: this step takes up to 0.7 GB of memory "
        "(four times the largest weight and 0.6 GB)"
    )
    assert text
    assert "[4/6] plan: " in before


def write_system(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_free_memory_is_the_least_of_machine_and_control_groups(tmp_path: Path) -> None:
    assert memory.free_memory(tmp_path) is None
    write_system(tmp_path, {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:  8000 kB\n"})
    assert memory.free_memory(tmp_path) == 8000 << 10
    # version 2: a group above has the limit; file pages can be taken back
    group = "sys/fs/cgroup/user"
    write_system(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user/shell\n",
            f"{group}/shell/memory.max": "max\n",
            f"{group}/shell/memory.current": "4000\n",
            f"{group}/memory.max": "5000000\n",
            f"{group}/memory.current": "4500000\n",
            f"{group}/memory.stat": "anon 1\nactive_file 1000000\ninactive_file 1500000\n",
        },
    )
    assert memory.free_memory(tmp_path) == 3_000_000
    # version 1: the groups below are counted apart; no limit is a number that no machine has
    group = "sys/fs/cgroup/memory"
    write_system(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu:/\n4:memory:/job\n0::/\n",
            f"{group}/memory.limit_in_bytes": "9223372036854771712\n",
            f"{group}/memory.usage_in_bytes": "4500000\n",
            f"{group}/job/memory.limit_in_bytes": "2000000\n",
            f"{group}/job/memory.usage_in_bytes": "1500000\n",
            f"{group}/job/memory.stat": "active_file 7\ntotal_active_file 100000\n",
        },
    )
    assert memory.free_memory(tmp_path) == 600_000


class Notes(SilentProgress):
    """Collects what is said at once, and which steps had ended before."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        self.said.append(f"end of {name}")


def test_calibrate_and_build_of_a_large_network_say_what_they_take_before_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LARGE_BYTES", 1 << 20)
    monkeypatch.setattr(memory, "free_memory", lambda: 900_000_000)
    write_network(tmp_path, "net", 0, count=2)
    (tmp_path / "net.yaml").write_text(
        "version: 1\nname: net\nmodel: {onnx: net.onnx}\ntarget: jetson-agx-orin-64gb\n"
        "precision: int8\ncalibration: {count: 2}\n"
    )
    notes = Notes()
    edgekit.build(tmp_path / "net.yaml", progress=notes)
    said = [text for text in notes.said if "memory" in text or text.startswith("end of")]
    need = "this step takes up to 1.1 GB of memory (twice the weights in FP32 and 1 GB)"
    need += "; 0.9 GB are available"
    for step in ("calibrate", "build"):
        place = said.index(f"end of {step}")
        assert said[place - 1].startswith(f"{need}, so the system may end it")
    assert sum("memory" in text for text in said) == 2
    notes.said.clear()
    edgekit.build(tmp_path / "net.yaml", progress=notes)
    assert not any("memory" in text for text in notes.said)
