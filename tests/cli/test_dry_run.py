"""``--dry-run`` says what would change on a board, and ``remove`` asks; over a real sshd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.cli.main import app
from edgekit.errors import BoardError, UsageError
from tests.boards.fixtures import StartBoard, boards, home
from tests.cli.test_taken_back import BOARD, Bench
from tests.pipeline.nets import small_config

__all__ = ["boards", "home"]

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]


@pytest.fixture
def bench(boards: StartBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    root = tmp_path / "lab"
    extra = BOARD.format(b=boards().board, root=root)
    return Bench(small_config(tmp_path / "config", precision="fp16", extra=extra), root, capsys)


@contextmanager
def unchanged(bench: Bench) -> Iterator[None]:
    def state() -> list[tuple[str, str]]:
        # the loader is put on a board by each command, and blobs that are asked for are renewed
        names = ("apps", "blobs", "incoming", "jobs", "trust")
        paths = [path for name in names for path in sorted((bench.root / name).rglob("*"))]
        links = [str(path.readlink()) if path.is_symlink() else "" for path in paths]
        return list(zip(map(str, paths), links, strict=True))

    before = state()
    yield
    assert state() == before


def would(bench: Bench, *words: str) -> dict[str, Any]:
    (row,) = bench.ask("deploy", "--dry-run", *words)["releases"]
    found: dict[str, Any] = row
    return found


def test_what_would_change_is_said_and_nothing_changes(bench: Bench) -> None:
    # a key that the board does not trust yet stays that
    document = bench.ask("deploy", "--dry-run", "--trust-key")
    assert document["steps"][-1]["name"] == "deploy"
    assert document["steps"][-1]["status"] == "done"  # nothing is there to be reused
    (row,) = document["releases"]
    assert "would trust the signing key" in row["notes"][0]
    assert (row["release"], row["previous"], row["reused"]) == (None, None, False)
    assert row["bytes_sent"] > 1000
    assert not (bench.root / "apps").exists() or not any((bench.root / "apps").iterdir())
    old = bench.deploy()
    bench.network(2)
    with unchanged(bench):
        row = would(bench)
        assert (row["release"], row["previous"], row["reused"]) == (None, old, False)
        assert app(["deploy", str(bench.config), *bench.out, "--dry-run"]) == 0
        assert f"would install bundle {row['digest'][:12]} ({row['bytes_sent']:,} bytes" in (
            bench.said().out
        )
    new = bench.deploy()
    assert new.endswith(row["digest"][:12])
    with unchanged(bench):
        row = would(bench)
        assert (row["release"], row["reused"], row["bytes_sent"]) == (new, True, 0)
        document = bench.ask("rollback", "--dry-run")
        assert document["dry_run"]
        assert [(one["from"], one["to"]) for one in document["boards"]] == [(new, old)]
        assert edgekit.rollback(bench.config, dry_run=True).boards[0].now == old
        removal = bench.ask("remove", "--dry-run")
        assert [one["removed"] for one in removal["boards"]] == [[old, new]]
        assert bench.ask("remove", "--dry-run", "--release", old)["boards"][0]["removed"] == [old]
        with pytest.raises(BoardError, match="in use"):
            bench.ask("remove", "--dry-run", "--release", new)
    (went,) = bench.ask("rollback")["boards"]
    assert (went["from"], went["to"]) == (new, old)
    with unchanged(bench), pytest.raises(BoardError) as caught:
        would(bench)
    assert caught.value.code == "install.taken-back"
    with pytest.raises(BoardError) as caught:
        bench.ask("rollback", "--dry-run")
    assert caught.value.code == "release.no-previous"


@pytest.mark.whole
def test_all_releases_go_only_after_a_yes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    old = bench.deploy()
    bench.network(2)
    new = bench.deploy()
    with unchanged(bench), pytest.raises(UsageError) as caught:
        bench.ask("remove")
    assert (caught.value.code, caught.value.exit_code) == ("remove.all", 2)
    assert "2 releases on lab" in caught.value.message
    assert "--yes" in caught.value.hint
    asked: list[str] = []

    def answer(text: str, **options: Any) -> bool:
        asked.append(text)
        return len(asked) > 1

    monkeypatch.setattr("click.confirm", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with unchanged(bench), pytest.raises(UsageError, match="nothing was removed"):
        app(["remove", str(bench.config)])
    # one release that does not serve goes without a question
    assert bench.ask("remove", "--release", old)["boards"][0]["removed"] == [old]
    assert len(asked) == 1
    assert app(["remove", str(bench.config)]) == 0
    assert "1 release on lab" in asked[1]
    assert new in bench.said().out
    bench.deploy()
    (row,) = bench.ask("remove", "--yes")["boards"]
    assert len(row["removed"]) == 1


def test_a_fleet_is_rehearsed_without_its_boards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a board was connected to")

    monkeypatch.setattr("edgekit.fleet.driver.open_board", nobody)
    config = small_config(tmp_path / "config")
    inventory, state = tmp_path / "fleet.yaml", tmp_path / "state"
    names = ("a", "b", "c")
    rows = "".join(f"  - {{name: {name}, host: {name}.example.org}}\n" for name in names)
    inventory.write_text(f"version: 1\nboards:\n{rows}")
    words = ["-i", str(inventory), "--canary", "1", "--state", str(state), "--dry-run"]
    assert app(["fleet", "deploy", str(config), *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["action"] == "deploy"
    assert [row["board"] for row in document["boards"]] == [*names]
    assert document["boards"][0]["wave"] == 1
    assert app(["fleet", "deploy", str(config), *words]) == 0
    assert "3 boards would get small; nothing was changed" in capsys.readouterr().out
    assert app(["fleet", "status", "--state", str(state)]) == 0
    assert "no rollouts yet" in capsys.readouterr().out
