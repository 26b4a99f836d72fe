"""The board's part of the cross-check, with a trtexec of shell."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.tensorrt.trtexec import run_command
from edgekit_device.benchmark import trtexec as board
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.store.root import Root
from edgekit_device.tensorrt.refit import write_full_plan

OPTIONS = run_command("10.3.0", BenchSettings(1, 0.1, 2))
TRTEXEC = """#!/bin/sh
for one in "$@"; do case "$one" in
  --loadEngine=*) engine=${one#*=};; --exportTimes=*) times=${one#*=};; esac; done
echo "&&&& RUNNING $*"
grep -q broken "$engine" && { echo "[E] broken"; exit 1; }
grep -q hangs "$engine" && exec sleep 100
echo "[ { \\"plan\\" : \\"$(cat "$engine")\\" } ]" > "$times"
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "trtexec"
    path.write_text(TRTEXEC)
    path.chmod(0o755)
    monkeypatch.setattr(board, "find_trtexec", lambda: path)
    monkeypatch.setattr(board, "read_checked", lambda checked, digest: digest.encode())
    return path


def entry(kind="plan", stripped=False, lean=False, tensorrt="10.3.0.30", embeds=False):
    return SimpleNamespace(
        inputs=(),
        kind=kind,
        stripped=stripped,
        lean_embedded=lean,
        tensorrt=tensorrt,
        plugins_embedded=embeds,
    )


def checked(plugins=(), signer="tests", **engines):
    segments = [
        SimpleNamespace(
            index=i,
            device="DLA1" if name.startswith("dla") else "GPU",
            engine=name,
            core=1 if name.startswith("dla") else None,
        )
        for i, name in enumerate(engines)
    ]
    lanes = [SimpleNamespace(segments=segments)]
    rows = tuple(SimpleNamespace(library=one) for one in plugins)
    manifest = SimpleNamespace(backend="tensorrt", lanes=lanes, engines=engines, plugins=rows)
    return SimpleNamespace(manifest=manifest, signer=signer)


def run(tmp_path, given, **options):
    found = board.cross_check(Root(tmp_path / "root"), tmp_path, given, replace(OPTIONS, **options))
    assert list((tmp_path / "root/tmp").iterdir()) == []
    return found.engines


def test_each_plan_is_run_as_its_segment_is(program: Path, tmp_path: Path) -> None:
    kept = "2" * 64
    write_full_plan(tmp_path, kept, "lean 10.3.0.30", b"with weights")
    reported = run(
        tmp_path,
        checked(
            gpu=entry(lean=True),
            dla=entry(),
            dla2=entry("loadable"),
            **{kept: entry(stripped=True), "gpu3": entry(stripped=True)},
        ),
    )
    gpu, dla, loadable, refitted, lost = reported
    assert json.loads(gpu.times) == [{"plan": "gpu"}]
    assert "--useDLACore=1" in dla.console
    assert "--useDLACore" not in gpu.console
    assert "--versionCompatible" in gpu.console
    assert "--versionCompatible" not in dla.console
    assert json.loads(refitted.times) == [{"plan": "with weights"}]
    assert "loadable" in loadable.why
    assert "refit it again" in lost.why
    assert {one.why for one in (gpu, dla, refitted)} == {None}


def test_libraries_of_plugins_are_given_as_their_release_takes_them(
    program: Path, tmp_path: Path
) -> None:
    # the digest stands for the library's bytes
    libraries = ["...getCreators...", "static", None, "static"]
    (new,) = run(tmp_path, checked(plugins=libraries, gpu=entry(embeds=True)))
    words = new.console.split()
    assert [word.partition("=")[0] for word in words if "Plugins" in word] == [
        "--dynamicPlugins",
        "--staticPlugins",
    ]
    assert "--versionCompatible" in words
    (old,) = run(tmp_path, checked(plugins=libraries, gpu=entry(tensorrt="8.5.2.2")))
    assert old.console.count("--plugins=") == 2
    unsigned = checked(plugins=libraries, signer=None, gpu=entry())
    found = board.cross_check(Root(tmp_path / "root"), tmp_path, unsigned, OPTIONS)
    assert (found.engines, "no trusted signature" in found.why) == ((), True)


def test_one_that_fails_or_hangs_ends_and_is_reported(program: Path, tmp_path: Path) -> None:
    (failed,) = run(tmp_path, checked(broken=entry()))
    (hung,) = run(tmp_path, checked(hangs=entry()), timeout_s=0.5)
    assert (failed.status, failed.times) == (1, None)
    assert "[E] broken" in failed.console
    assert "took longer" in hung.why


def test_trtexec_ends_with_a_bench_that_is_killed(tmp_path: Path) -> None:
    os.mkfifo(alive := tmp_path / "alive")
    (program := tmp_path / "trtexec").write_text(f"#!/bin/sh\nexec sleep 600 > {alive}\n")
    program.chmod(0o755)
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from edgekit_device.benchmark import trtexec as board\n"
        "board.run_plan(Path(sys.argv[1]), [], Path(sys.argv[2]), None, 600.0)\n"
    )
    bench = subprocess.Popen([sys.executable, "-c", code, str(program), str(tmp_path)])
    with alive.open("rb") as reported:  # opens when trtexec has it open
        bench.kill()
        bench.wait()
        # it ends when nobody has it open any more
        assert select.select([reported], [], [], 300)[0], "trtexec lives on"
        assert reported.read() == b""


def test_without_a_trtexec_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "find_trtexec", lambda: None)
    found = board.cross_check(Root(tmp_path), tmp_path, checked(gpu=entry()), OPTIONS)
    assert "trtexec is not on" in found.why
