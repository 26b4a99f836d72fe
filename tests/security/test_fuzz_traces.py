"""What ``edgekit trace`` reads: only an EdgekitError comes out, in bounded time and memory."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given

from edgekit.benchmark.trace.chrome import validate_trace
from edgekit.benchmark.trace.layers import profile_process
from edgekit.benchmark.trace.nsys import NsysSource
from edgekit.benchmark.trace.nsys_export import open_export
from edgekit.benchmark.trace.sources import (
    PreparedSource,
    TraceSource,
    read_trace,
    read_trace_or_bench,
    times_process,
    write_trace,
)
from edgekit.benchmark.trtexec import read_times
from edgekit.placement.profiles.reader import read_profile
from tests.security.security_fuzz import CORPUS, mutated, times
from tests.security.test_fuzz_host import survive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def written(folder: Path, source: TraceSource) -> None:
    """Whatever was read must make a sound trace."""
    out = folder / "out.json"
    write_trace(out, [source], name="fuzz")
    assert validate_trace(json.loads(out.read_text())) == []


@times(40)
@given(data=mutated("trace"))
def test_traces(data: bytes, folder: Path) -> None:
    path = folder / "trace.json"
    path.write_bytes(data)
    survive(lambda: written(folder, read_trace(path)))


@times(40)
@given(data=mutated("bench"))
def test_bench_documents(data: bytes, folder: Path) -> None:
    path = folder / "other.json"
    path.write_bytes(data)
    survive(lambda: written(folder, read_trace_or_bench(path)[0]))


@times(40)
@given(data=mutated("times"))
def test_iterations(data: bytes, folder: Path) -> None:
    path = folder / "times.json"
    path.write_bytes(data)
    survive(lambda: written(folder, PreparedSource("t", [times_process(read_times(path), pid=1)])))


@times(40)
@given(data=mutated("profile"), info=mutated("layers"))
def test_profiles_with_layer_information(data: bytes, info: bytes, folder: Path) -> None:
    path, layers = folder / "profile.json", folder / "layers.json"
    path.write_bytes(data)
    layers.write_bytes(info)
    sound = CORPUS / "profile" / "iprofiler.json"
    for profile, layer_info in ((path, None), (sound, layers), (path, layers)):

        def read(profile: Path = profile, layer_info: Path | None = layer_info) -> None:
            found = read_profile(profile, layer_info=layer_info)
            written(folder, PreparedSource("p", [profile_process(found, pid=1, dla_cores=2)]))

        survive(read)


@times(40)
@given(data=mutated("nsys"))
def test_exports_of_nsight_systems(data: bytes, folder: Path) -> None:
    path = folder / "a.sqlite"
    path.write_bytes(data)

    def read() -> None:
        with closing(open_export(path)) as export:
            written(folder, NsysSource(export, "a"))

    survive(read)
