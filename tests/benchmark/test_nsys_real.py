"""Exports that Nsight Systems itself made, of an NVTX-annotated program.

The kept one is of nsys 2022.4.2 (Debian's nsight-systems) and tests/benchmark/nvtx_program.py,
without a GPU: ``nsys profile --trace=nvtx``, ``nsys export --type sqlite``; names of machine and
user, and tables that are not read, were taken out.
"""

import shutil
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from edgekit.benchmark.trace.layers import linked_layers
from tests.benchmark import handmade_plan
from tests.benchmark.test_nsys import traced

RETAINED = Path(__file__).parents[1] / "data" / "nsys" / "nvtx_2022_4.sqlite"
NVTX = find_library("nvToolsExt")


def shown(slices):
    """Names by track, tracks by their first slice."""
    return [[s["name"] for s in all_of] for all_of in slices.values()]


def check(path, out):
    document, source, slices = traced(path, out)
    main, *threads = shown(slices)
    assert main == [n for f in range(4) for n in (f"frame {f}", "conv1")] + ["summary"]
    assert threads == [["{ForeignNode[conv2...relu3]}"]] * 4
    marks = [e for e in document["traceEvents"] if e["ph"] == "i"]
    assert [e["name"] for e in marks] == ["frame done"] * 4
    layers = [s for all_of in slices.values() for s in all_of if s["name"] == "conv1"]
    assert {s["args"]["domain"] for s in layers} == {"TensorRT"}
    assert source.wall is not None
    assert source.machine


def test_the_stored_export_is_read(tmp_path):
    check(RETAINED, tmp_path / "t.json")


def test_its_times_nest_in_their_frames(tmp_path):
    _, _, slices = traced(RETAINED, tmp_path / "t.json")
    every = [s for all_of in slices.values() for s in all_of]
    frames = [s for s in every if s["name"].startswith("frame")]
    inner = [s for s in every if s["args"].get("domain") == "TensorRT"]
    assert len(inner) == 2 * len(frames)
    for one in inner:
        end = one["ts"] + one["dur"]
        assert sum(f["ts"] <= one["ts"] and end <= f["ts"] + f["dur"] for f in frames) == 1


def test_a_loadable_is_the_layers_from_its_first_to_its_last(tmp_path):
    find = linked_layers(handmade_plan.plan())
    layers = [x for x in handmade_plan.plan().layers if x.device.startswith("DLA")]
    first, last = layers[0], [x for x in layers if x.segment == layers[0].segment][-1]
    found = find(f"{{ForeignNode[{first.name}...{last.name}]}}")
    assert found.device == first.device
    assert found.segment == first.segment
    assert set(first.nodes) | set(last.nodes) <= set(found.nodes)
    assert find("nobody") is None


@pytest.mark.skipif(not (shutil.which("nsys") and NVTX), reason="needs nsys and libnvToolsExt")
def test_a_fresh_export_is_read(tmp_path):
    program = Path(__file__).with_name("nvtx_program.py")
    report = tmp_path / "report.nsys-rep"
    subprocess.run(
        [
            "nsys",
            "profile",
            "--trace=nvtx",
            "--sample=none",
            "--cpuctxsw=none",
            f"--output={report}",
            sys.executable,
            program,
            NVTX,
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    made = tmp_path / "report.sqlite"
    subprocess.run(
        ["nsys", "export", "--type=sqlite", f"--output={made}", report],
        check=True,
        capture_output=True,
        timeout=300,
    )
    check(made, tmp_path / "t.json")
