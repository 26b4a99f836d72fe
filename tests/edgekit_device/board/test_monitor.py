"""The sampler: what it sees of a board's files and of tegrastats, and that it surely ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgekit_device.board import tegrastats
from edgekit_device.board.monitor import Sampler
from edgekit_device.board.samples import EngineLoad, MemoryUse, RailPower, Sample
from edgekit_device.board.sampling import SampleStream
from edgekit_device.board.tegrastats import TegrastatsCommand, find_commands
from edgekit_device.protocol.codec import write
from tests.boards.toy_jobs import gone, until
from tests.edgekit_device.board.monitor_lines import LINES, fake_board, fake_tegrastats

#: says its number of start, then a line each 10 ms as asked
TALKS = f"""import os, sys, time
open({{pids!r}}, "a").write(f"{{{{os.getpid()}}}} {{{{' '.join(sys.argv[1:])}}}}\\n")
while True:
    print({LINES["6 root"] + " WARP 9"!r}, flush=True)
    time.sleep(0.01)
"""
RAILS = {"VDD_GPU_SOC": RailPower(pytest.approx(5058.0))}


def first(stream: SampleStream) -> Sample:
    samples = iter(stream)
    sample = next(samples)
    samples.close()  # type: ignore[attr-defined]
    return sample


@pytest.mark.parametrize("jetpack", [5, 6, 7])
def test_a_boards_files_are_found_in_every_layout(tmp_path: Path, jetpack: int) -> None:
    stream = SampleStream(10, fake_board(tmp_path, jetpack), [], process=os.getpid())
    sample = first(stream)
    assert sample.runtime_status == {"dla0": "active", "dla1": "suspended"}
    assert sample.clocks_hz == {"dla0_core": 1369600000}
    assert sample.temperatures_c == {"cpu": 51.25}  # the GPU's zone has no power
    assert sample.engines == {"GR3D": EngineLoad(on=True, percent=41.5, mhz=(612,))}
    assert sample.other.cooling == {"gpu-throttle-alert": 1}  # and no fan
    assert sample.other.overcurrent_events == {"oc1": 2}
    assert sample.rails_mw == RAILS  # 843 mV * 6 A; no NC, no sum of shunts
    assert sample.ram == MemoryUse(400 << 10, 1000 << 10)
    assert sample.swap.used_bytes == 10 << 10
    assert [core and core.mhz for core in sample.cpu] == [2201, None, None]
    assert stream.sources == ["sysfs", "proc"]


def test_loads_are_of_the_time_between_two_samples(tmp_path: Path) -> None:
    board = fake_board(tmp_path)
    samples = iter(SampleStream(10, board, []))
    assert next(samples).cpu[0].percent is None  # no tick has passed
    stat = "cpu0 430 0 100 9570 0 0 0 0 0 0\ncpu2 10 0 0 90 0 0 0 0 0 0\n"
    (board / "proc/stat").write_text(stat, "ascii")
    # the next sample may have been on its way while the file was written
    found = [next(samples).cpu[0].percent for _ in range(3)]
    samples.close()  # type: ignore[attr-defined]
    assert 30.0 in found
    assert {30.0, None} >= set(found)


def test_a_sampler_next_to_a_measurement(tmp_path: Path) -> None:
    sampler = Sampler(20, fake_board(tmp_path))
    began = time.perf_counter()
    sampler.start()
    output = sampler._output
    assert output is not None
    size = os.fstat(output.fileno()).st_size
    assert size  # it has begun
    until(lambda: os.fstat(output.fileno()).st_size > size)
    sampler.warming()
    size = os.fstat(output.fileno()).st_size
    until(lambda: os.fstat(output.fileno()).st_size > size)
    sampler.mark()
    size = os.fstat(output.fileno()).st_size
    until(lambda: os.fstat(output.fileno()).st_size > size)
    document = sampler.stop()
    spent = time.perf_counter() - began
    json.dumps(write(document), allow_nan=False)
    assert document.schema == "edgekit.monitor/1"
    assert document.idle
    assert all(one.t_s < document.busy_from_s for one in document.idle)
    times = [one.t_s for one in document.samples]
    assert times == sorted(times)
    assert times[-1] > 0 > document.idle[0].t_s > -spent
    assert document.facts.l4t == "36.4.3"
    assert document.facts.clock_caps_hz == {"dla0_core": 908800000, "dla1_core": 908800000}
    assert 0 < document.facts.sampler_percent < 100
    assert document.warnings == ()
    assert document.unknown == {}


def test_tegrastats_is_read_and_completed_and_ends(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake_tegrastats(tmp_path / "bin", TALKS.format(pids=str(pids)))
    program = str(tmp_path / "bin/tegrastats")
    dies = fake_tegrastats(tmp_path / "dead", "raise SystemExit(3)")
    commands = [
        TegrastatsCommand([str(dies / "tegrastats")], 10, True),
        TegrastatsCommand([program, "--interval", "10"], 10, False),
    ]
    sampler = Sampler(50, fake_board(tmp_path / "board"), commands=commands)
    sampler.start()
    output = sampler._output
    assert output is not None
    until(lambda: os.fstat(output.fileno()).st_size > 4000)
    document = sampler.stop()
    pid, arguments = pids.read_text().split(maxsplit=1)
    assert arguments.split() == ["--interval", "10"]
    assert gone(int(pid))
    assert document.sources == ("tegrastats", "sysfs")
    assert list(document.unknown) == ["WARP 9"]
    assert any("tegrastats ended" in text for text in document.warnings)
    for sample in document.samples:
        assert sample.rails_mw["VDD_CPU_CV"].now == 3600.0  # its own, not sysfs's
        assert sample.runtime_status["dla0"] == "active"  # which it does not say
    # it spoke each 10 ms: those in between were left out
    times = [one.t_s for one in document.samples]
    assert len(times) >= 3
    assert (times[-1] - times[0]) / (len(times) - 1) > 0.03


def test_a_silent_tegrastats_gives_way_to_sysfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit_device.board.sampling._SILENT_S", 0.1)
    monkeypatch.setattr(tegrastats, "_GRACE_S", 0.1)
    mute = fake_tegrastats(tmp_path / "bin", "import time\ntime.sleep(60)\n")
    stream = SampleStream(
        20, fake_board(tmp_path), [TegrastatsCommand([str(mute / "tegrastats")], 20, False)]
    )
    assert first(stream).rails_mw == RAILS
    assert "printed nothing" in stream.warnings[0]


def test_what_samples_dies_with_its_parent(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    fake_tegrastats(tmp_path / "bin", TALKS.format(pids=str(pids)))
    code = (
        "from edgekit_device.board.monitor import Sampler\n"
        "from edgekit_device.board.tegrastats import TegrastatsCommand\n"
        "import pathlib, time\n"
        f"one = TegrastatsCommand([{str(tmp_path / 'bin/tegrastats')!r}], 10, False)\n"
        f"sampler = Sampler(10, pathlib.Path({str(tmp_path)!r}), commands=[one])\n"
        "sampler.start()\n"
        "print(sampler._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    grandchild = int(until(lambda: pids.exists() and pids.read_text()).split()[0])
    assert not gone(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: gone(child) and gone(grandchild))


def test_who_may_start_tegrastats_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_tegrastats(tmp_path / "bin", "")
    (folder / "sudo").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(folder))
    program = str(folder / "tegrastats")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert find_commands(250, tmp_path) == [
        TegrastatsCommand([program, "--interval", "250"], 250, False)
    ]
    allowed = "".join(
        f"ada ALL=(root) NOPASSWD: /usr/bin/tegrastats --interval {rate}\n" for rate in (100, 1000)
    )
    (tmp_path / "setup.json").write_text(json.dumps({"sudoers": allowed, "groups": []}), "utf-8")
    best = find_commands(250, tmp_path)[0]
    assert best.words == ["sudo", "-n", "/usr/bin/tegrastats", "--interval", "100"]
    assert (best.interval_ms, best.root) == (100, True)
    assert find_commands(2000, tmp_path)[0].interval_ms == 1000
    assert find_commands(20, tmp_path)[0].interval_ms == 100
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_commands(250, tmp_path) == [
        TegrastatsCommand([program, "--interval", "250"], 250, True)
    ]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_commands(250, tmp_path) == []


def test_sample_streams_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgekit_device", "sample", "--interval-ms", "10", "--count", "2"],
        env={**os.environ, "EDGEKIT_SYSTEM": str(fake_board(tmp_path)), "EDGEKIT_ROOT": "/nowhere"},
        stdout=subprocess.PIPE,
        check=True,
    )
    head, second = map(json.loads, done.stdout.splitlines())
    assert (head["t_s"], head["interval_ms"], head["facts"]["dla_cores"]) == (0.0, 10, 2)
    assert second["t_s"] > 0
    assert second["runtime_status"] == {"dla0": "active", "dla1": "suspended"}
    assert "facts" not in second
