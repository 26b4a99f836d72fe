"""The self-test of a board, asked of boards that have the strict double of TensorRT."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.selftest import start_selftest, write_answers
from edgekit.deployment.transport import LocalTransport
from edgekit_device.selftest import CHECKS, ITEMS, scrub
from tests.trt_double.board import board_python, board_trtexec, offences

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "edgekit_device.pyz"
    build_zipapp(path)
    return path


@pytest.fixture
def query(tmp_path: Path, pyz: Path) -> Iterator[Ask]:
    """Runs the self-test on a board with a TensorRT of the double's."""
    opened: list[BoardClient] = []

    def run(version: str, **settings: Any) -> dict[str, Any]:
        python = board_python(tmp_path / version, version, **settings)
        text = python.read_text().replace("exec ", f"export PATH={python.parent}:$PATH\nexec ")
        python.write_text(text)
        board_trtexec(python)
        board = Board("lab", root=str(tmp_path / "root"), python=str(python), kind="local")
        opened.append(BoardClient(board, LocalTransport("lab"), pyz))
        job = start_selftest(opened[-1]).job
        list(opened[-1].watch_job(job))
        assert offences(python) == []
        found = write_answers(opened[-1].job_result(job), opened[-1], tmp_path / "answers.json")
        return found.to_json()

    yield run
    for one in opened:
        one.close()


def by_id(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["id"]: item for item in document["items"]}


@pytest.mark.few(1)
@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
def test_every_question_has_an_answer(version: str, query: Ask, tmp_path: Path) -> None:
    document = query(version)
    assert document["schema"] == "edgekit.selftest/1"
    items = by_id(document)
    assert list(items) == [item.id for item in ITEMS]
    reported = {name: (item["status"], item["found"]) for name, item in items.items()}
    for name in ("probe", "build-gpu", "build-hybrid", "dla-core-1", "load-full", "inspector-dla"):
        assert items[name]["status"] == "answered", reported[name]
    assert set(items["can-run-on-dla"]["found"]) == {"conv", "act", "conv2"}
    # version compatible plans carry a runtime of their own, which this board has just built
    assert items["lean-load"]["status"] == "answered", reported["lean-load"]
    # the lean module of 8.6 has no Refitter
    expected = "failed" if version == "8.6.1" else "answered"
    assert items["lean-refit"]["status"] == expected, reported["lean-refit"]
    # what engines built here are bound to is the same for whoever asks
    assert document["fingerprint"] == items["probe"]["found"]["fingerprint"]
    assert document["fingerprint"]["tensorrt"] == version
    assert len(items["graph"]["found"]["launched_ms"]) == 10
    for name in ("lent-memory", "lent-memory-dla"):
        found = items[name]["found"]
        assert found["bit_equal"] is True, reported[name]
        assert found["context_bytes"] > 0
        assert found["persistent_cache_bytes"] > 0
        assert found["module_loading"] == "lazy"
    for name in ("trtexec-gpu", "trtexec-dla"):
        found = items[name]["found"]
        assert found["why"] is None, reported[name]
        assert any("GPU Compute Time: min = " in line for line in found["lines"])
        assert '"computeMs" : ' in found["times"]
    # no cuDLA and no Jetson here: failures are answers, with a reason
    assert items["cudla"]["status"] in ("failed", "skipped")
    assert items["nsys-dla"]["status"] == "failed"
    text = (tmp_path / "answers.json").read_text()
    assert {**json.loads(text), "ok": True, "file": document["file"]} == document
    assert str(tmp_path / "root") not in text


@pytest.mark.whole
def test_a_board_without_tensorrt_skips_what_needs_it(query: Ask) -> None:
    items = by_id(query("10.3.0", flavours=()))
    assert items["probe"]["status"] == "answered"
    assert items["build-hybrid"]["status"] == "failed"
    assert items["dla-core-1"]["status"] == "skipped"


def test_items_are_sound() -> None:
    ids = [item.id for item in ITEMS]
    assert len(set(ids)) == len(ids)
    for number, item in enumerate(ITEMS):
        assert item.do in CHECKS
        assert set(item.needs) <= set(ids[:number])


def test_names_are_taken_out_of_texts_and_keys() -> None:
    names = ["/home/ada", "orinbox", "ada"]
    document = {"a": "at /home/ada/.edgekit on orinbox", "ada": ["ada", 3, None], "b": "adapter"}
    assert scrub(document, names) == {
        "a": "at <private>/.edgekit on <private>",
        "<private>": ["<private>", 3, None],
        "b": "adapter",
    }


def test_the_page_names_the_same_questions() -> None:
    page = Path(__file__).parents[2] / "docs" / "not-yet-on-hardware.md"
    text = page.read_text(encoding="utf-8")
    assert [item.id for item in ITEMS if f"`{item.id}`" not in text] == []
