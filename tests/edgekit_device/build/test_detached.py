"""Builds as the host starts them: the zipapp, its own processes, TensorRT's double on the board."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgekit_device.jobs.job import job_context
from edgekit_device.store.root import Root
from tests.edgekit_device.build import toys
from tests.trt_double import board

GOLDEN = [{"seed": 3, "inputs": {"x": {"low": -1.0, "high": 1.0}}, "lane": None}]


class Remote:
    """A board with one release; commands run as over SSH."""

    def __init__(self, folder: Path, loader: Path, version: str, **settings: Any) -> None:
        self.python = board.board_python(folder / "bin", version, **settings)
        self.root = folder / "root"
        self.loader = loader
        (folder / "any").mkdir()
        with job_context(Root(self.root), folder / "any", {}) as context:
            context.store(toys.toy_onnx())
            context.store(toys.cache_text())

    def __call__(self, command: str, *more: str, stdin: Any = None) -> Any:
        done = subprocess.run(
            [str(self.python), str(self.loader), command, "--root", str(self.root), *more],
            input=b"" if stdin is None else json.dumps(stdin).encode(),
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode in (0, 4), done.stderr.decode()
        return json.loads(done.stdout)

    def build(self, request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        started = self("job-start", stdin={"kind": "build", "request": request})
        after, seen = 0, None
        while seen is None or seen["state"] in ("queued", "running"):
            seen = self(
                "job-watch", "--job", started["job"], "--after", str(after), "--wait-s", "20"
            )
            after = seen["next"]
        return started, self("job-result", "--job", started["job"])


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
def test_a_detached_build_and_its_repetition(version: str, tmp_path: Path, loader: Path) -> None:
    on = Remote(tmp_path, loader, version)
    attempts = [{"flags": ["STRIP_PLAN", "VERSION_COMPATIBLE"], "gives_up": ""}]
    request = toys.request(toys.engine(attempts=attempts), golden=GOLDEN)
    started, result = on.build(request)
    assert result["schema"] == "edgekit.build.result/1"
    (entry,) = result["engines"]
    assert entry["stripped"] == (version != "8.6.1")
    assert result["golden"][0]["outputs"]["y"]["shape"] == [1, 5]
    again, same = on.build(request)
    assert (again["job"], again["reused"]) == (started["job"], True)
    assert same == result
    assert board.offences(on.python) == []


def test_a_build_that_fails_says_why_over_the_wire(tmp_path: Path, loader: Path) -> None:
    on = Remote(tmp_path, loader, "10.3.0", broken="Could not find any implementation for conv1")
    _, answer = on.build(toys.request())
    assert answer["error"]["code"] == "build.failed"
    assert "Could not find any implementation for conv1" in answer["error"]["message"]
