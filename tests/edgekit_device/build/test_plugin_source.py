"""The job "plugin": a plugin's folder compiled with CMake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgekit_device.build import plugin_source
from edgekit_device.build.plugin_source import CompiledPlugin, run
from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import JobCancelled, JobContext
from tests.edgekit_device.build import toys

CMAKE = """\
cmake_minimum_required(VERSION 3.13)
project(mine LANGUAGES C)
add_library(mine SHARED src/mine.c)
"""
FILES = {"CMakeLists.txt": CMAKE, "src/mine.c": "int getCreators(void) { return 0; }\n"}

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    with toys.job(tmp_path / "job", {}) as context:

        def start(files: Mapping[str, str], name: str = "MyOp") -> CompiledPlugin:
            stored = {path: context.store(text.encode()) for path, text in files.items()}
            request = {"schema": plugin_source.SCHEMA, "name": name, "files": stored}
            made = JobContext(context.root, context.folder, request, context.work)
            start.context = made  # type: ignore[attr-defined]
            return run(made)

        yield start


def log(job: Any) -> str:
    return str((job.context.folder / "log.txt").read_text())


def failure(job: Any, files: Mapping[str, str]) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        job(files)
    return caught.value


@needs_cmake
def test_a_folder_becomes_a_library(job: Any) -> None:
    made = job(FILES)
    data = bytes(job.context.root.store.read(made.library))
    assert (made.file, made.bytes, data[:4]) == ("libmine.so", len(data), b"\x7fELF")
    assert "+ " in log(job)
    assert "Linking C shared library libmine.so" in log(job)
    events = (job.context.folder / "events.jsonl").read_text().splitlines()
    seen = [(one["phase"], one["done"], one["total"]) for one in map(json.loads, events)]
    assert seen[0] == ("configuring", 0, 0)
    assert seen[-1] == ("compiling", 100, 100)


@needs_cmake
def test_a_library_with_versioned_names_is_one(job: Any) -> None:
    versions = "set_target_properties(mine PROPERTIES VERSION 1.2.3 SOVERSION 1)\n"
    made = job({**FILES, "CMakeLists.txt": CMAKE + versions})
    assert made.file == "libmine.so"


@needs_cmake
def test_what_the_compiler_refuses_is_in_the_error(job: Any) -> None:
    error = failure(job, {**FILES, "src/mine.c": "int getCreators(void) { return missing; }\n"})
    assert error.code == "plugin.compile"
    assert "compiling failed" in error.message
    assert "'missing' undeclared" in error.message.replace("‘", "'").replace("’", "'")
    assert "edgekit jobs log" in error.hint
    assert "undeclared" in log(job)


@needs_cmake
def test_what_cmake_refuses_is_in_the_error(job: Any) -> None:
    error = failure(
        job, {**FILES, "CMakeLists.txt": CMAKE + "find_package(TensorRTOfNowhere REQUIRED)\n"}
    )
    assert error.code == "plugin.compile"
    assert "configuring failed" in error.message
    assert "CMake Error" in error.message


@needs_cmake
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("add_library(other SHARED src/mine.c)\n", "made 2 files (libmine.so, libother.so)"),
        (None, "made no shared library"),
    ],
)
def test_a_plugin_is_one_library(more: str | None, said: str, job: Any) -> None:
    text = CMAKE.replace("SHARED", "STATIC") if more is None else CMAKE + more
    error = failure(job, {**FILES, "CMakeLists.txt": text})
    assert error.code == "plugin.compile"
    assert said in error.message


def test_a_board_without_cmake_says_so(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    error = failure(job, FILES)
    assert error.code == "plugin.cmake"
    assert "apt-get install cmake" in error.hint


@needs_cmake
def test_it_ends_within_its_limit(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_source, "LIMIT_S", 0.0)
    error = failure(job, FILES)
    assert error.code == "plugin.compile"
    assert "took longer than" in error.message


@needs_cmake
def test_it_can_be_cancelled(job: Any, tmp_path: Path) -> None:
    # the configuration cancels its own job, and would wait then
    cancel = tmp_path / "job/root/jobs/0123456789abcdef/cancel"
    text = f'file(WRITE "{cancel}" "1")\nexecute_process(COMMAND sleep 120)\n'
    with pytest.raises(JobCancelled):
        job({**FILES, "CMakeLists.txt": text + CMAKE})


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../../x", "..", ".", "a/..", "a\n", "", "./a"]
)
def test_a_path_out_of_the_folder_is_refused(path: str, job: Any) -> None:
    error = failure(job, {"CMakeLists.txt": CMAKE, path: "x"})
    assert error.code == "plugin.request"


def test_sources_that_are_too_large_are_refused(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_source, "MAX_SOURCE", 100)
    error = failure(job, {**FILES, "large": "x" * 100})
    assert error.code == "plugin.request"
