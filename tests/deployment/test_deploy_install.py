"""Installing real bundles on real boards: what travels, what serves, what a failure leaves."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import ensure_key, sign
from edgekit.deployment.agent import _SentCommand
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import install
from edgekit.errors import BoardError, BundleError
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.release.offer import OfferAnswer
from tests.boards.bundles import HandMade, hand_made
from tests.boards.fixtures import StartBoard, remote
from tests.bundles.bundle_toys import toy_bundle
from tests.deployment.conftest import Client
from tests.processes import processes

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]


@pytest.fixture
def lab(boards: StartBoard, client: Client) -> BoardClient:
    return client(remote(boards()))


def run(board: BoardClient, bundle: HandMade) -> bool:
    """Whether the board's current release computes what the bundle should."""
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)
    file = io.BytesIO()
    np.savez(file, x=x)
    y = np.load(io.BytesIO(board.infer("net", file.getvalue())))["y"]
    return np.allclose(y, x @ bundle.matrix, rtol=1e-5, atol=1e-5)


def says(board: BoardClient, change: Mapping[str, object], patch: pytest.MonkeyPatch) -> None:
    """Has the board say something else of itself, as it answers an offer."""

    def offer(*bundle: object) -> OfferAnswer:
        answer = BoardClient.offer(board, *bundle)  # type: ignore[arg-type]
        return replace(answer, hello=replace(answer.hello, **change))

    patch.setattr(board, "offer", offer)


def leftovers(root: Path) -> list[str]:
    """Unfinished files anywhere under the board's folder."""
    names = [path.name for path in root.rglob("*") if path.parent.name == "tmp"]
    return names + [path.name for path in root.rglob("*.tmp")]


def test_install_then_reinstall_sends_next_to_nothing(lab: BoardClient, signer: Path) -> None:
    bundle = hand_made(columns=20_000)
    signature = sign(bundle.manifest_bytes, signer)
    first = install(bundle, lab, signature=signature)
    assert first.blobs_sent == 3
    assert first.bytes_sent >= bundle.payload_bytes
    assert first.previous is None
    assert first.deployment.health is not None
    assert run(lab, bundle)
    second = install(bundle, lab, signature=signature)
    assert (second.blobs_sent, second.blobs_reused) == (0, 3)
    assert second.bytes_reused == bundle.payload_bytes
    assert second.bytes_sent < 5000 < first.bytes_sent
    assert second.id == first.id


def test_other_weights_ship_only_what_changed_and_rollback_returns(
    lab: BoardClient, signer: Path
) -> None:
    old, new = hand_made(seed=1), hand_made(seed=2)
    first = install(old, lab, signature=sign(old.manifest_bytes, signer))
    second = install(new, lab, signature=sign(new.manifest_bytes, signer))
    # the engine is the same; weight and golden output are not
    assert (second.blobs_sent, second.blobs_reused) == (2, 1)
    assert second.previous == first.id
    assert run(lab, new)
    assert lab.rollback("net").current == first.id
    assert run(lab, old)


@pytest.mark.whole
@pytest.mark.slow
def test_keep_limits_the_releases_on_the_board(lab: BoardClient, signer: Path) -> None:
    for seed in range(4):
        bundle = hand_made(seed=seed)
        last = install(bundle, lab, signature=sign(bundle.manifest_bytes, signer), keep=2)
    state = lab.app_releases("net")
    assert len(state.releases) == 2
    assert state.current == last.id


def test_any_folder_name_will_do(
    boards: StartBoard,
    client: Client,
    signer: Path,
    tmp_path: Path,
) -> None:
    bundle = hand_made()
    name = '-two  words it\'s "q" $(touch never) `id` * \\ ; ümläut\nnew line '
    root = tmp_path / name / name
    board = client(remote(boards(), root=str(root)))
    install(bundle, board, signature=sign(bundle.manifest_bytes, signer))
    assert run(board, bundle)
    assert (root / "apps" / "net" / "current").is_symlink()
    assert [path.name for path in tmp_path.rglob("never")] == []


@pytest.mark.parametrize("root", ["-dash", "~/deep er/$HOME"])
def test_folders_relative_to_the_accounts_home(
    root: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # over SSH this would write into the real account's home, so here the commands run locally
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    board = client(Board("here", root=root, python=sys.executable, kind="local"))
    assert board.hello().root == str(tmp_path / root.removeprefix("~/"))


def test_unsigned_foreign_and_tampered_bundles_are_refused(
    lab: BoardClient, signer: Path, tmp_path: Path
) -> None:
    good, evil = hand_made(seed=1), hand_made(seed=2)
    release = install(good, lab, signature=sign(good.manifest_bytes, signer))
    stranger = sign(evil.manifest_bytes, ensure_key(tmp_path / "stranger"))
    for signature, code in (
        (None, "bundle.unsigned"),
        (stranger, "bundle.unknown-signer"),
        (sign(good.manifest_bytes, signer), "bundle.bad-signature"),
    ):
        with pytest.raises(BundleError) as caught:
            install(evil, lab, signature=signature)
        assert caught.value.code == code
        assert caught.value.exit_code == 4
        assert caught.value.where.startswith("lab")
    state = lab.app_releases("net")
    assert [entry.id for entry in state.releases] == [release.id]
    # refused before anything of it was sent
    assert set(evil.weights) <= set(lab.missing(evil.weights))


def test_failed_selftest_keeps_the_old_release_and_removes_the_new(
    lab: BoardClient, signer: Path
) -> None:
    old, bad = hand_made(seed=1), hand_made(seed=2, good=False)
    release = install(old, lab, signature=sign(old.manifest_bytes, signer))
    with pytest.raises(BoardError) as caught:
        install(bad, lab, signature=sign(bad.manifest_bytes, signer))
    assert caught.value.code == "selftest.failed"
    state = lab.app_releases("net")
    assert state.current == release.id
    assert [entry.id for entry in state.releases] == [release.id]
    assert run(lab, old)


@pytest.mark.slow
def test_once_all_is_sent_the_board_goes_on_without_its_operator(
    lab: BoardClient, signer: Path
) -> None:
    old, new = hand_made(seed=1), hand_made(seed=2)
    first = install(old, lab, signature=sign(old.manifest_bytes, signer))
    jobs: list[str] = []

    def interrupt(current: str, done: int, total: int) -> None:
        if current == "refit":
            raise KeyboardInterrupt

    signature = sign(new.manifest_bytes, signer)
    with pytest.raises(KeyboardInterrupt):
        install(new, lab, signature=signature, progress=interrupt, on_start=jobs.append)
    # the same command joins what runs, or finds it done
    again = install(new, lab, signature=signature, again=False, on_start=jobs.append)
    assert len(set(jobs)) == 1
    assert again.previous == first.id
    assert run(lab, new)
    facts = lab.status("net").apps["net"]
    assert facts.deployment.job == jobs[0]
    assert [line.state for line in facts.history] == ["committed", "committed"]
    reused = install(new, lab, signature=signature, again=False)
    assert (reused.reused, reused.bytes_sent, reused.id) == (True, 0, again.id)


def test_what_a_changed_board_refuses_is_tested_anew_by_the_same_deployment(
    boards: StartBoard, client: Client, signer: Path, tmp_path: Path
) -> None:
    bundle = hand_made()
    board = client(remote(boards(tmp_path / "board")))
    signature = sign(bundle.manifest_bytes, signer)
    first = install(bundle, board, signature=signature, again=False)
    (record,) = (tmp_path / "board").rglob("health.json")
    health = json.loads(record.read_text())
    health["fingerprint"]["runtime_version"] = "1.0.0"  # as if ONNX Runtime was upgraded since
    record.write_text(json.dumps(health))
    with pytest.raises(BoardError) as caught:
        run(board, bundle)
    assert caught.value.code == "board.changed"
    assert "runtime_version 1.0.0 -> " in caught.value.message
    assert "edgekit deploy CONFIG" in caught.value.hint
    facts = board.status("net").apps["net"]
    assert (facts.current, facts.changed.release) == (first.id, first.id)
    again = install(bundle, board, signature=signature, again=False)
    assert (again.id, again.reused, again.blobs_sent) == (first.id, False, 0)
    assert run(board, bundle)
    assert board.status("net").apps["net"].changed is None
    assert install(bundle, board, signature=signature, again=False).reused


def test_full_disk_is_said_and_the_old_release_serves(
    boards: StartBoard,
    client: Client,
    signer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "small"
    root.mkdir()
    server = boards(tmp_path / "board")
    with _small_disk(root, tmp_path) as python:
        board = client(replace(remote(server), root=str(root), python=python))
        old, new = hand_made(seed=1), hand_made(seed=2, columns=200_000)
        release = install(old, board, signature=sign(old.manifest_bytes, signer))
        full = board.hello().free_bytes
        # the second time as when something else fills the disk after it was asked
        for free in (full, 1 << 60):
            says(board, {"free_bytes": free}, monkeypatch)
            with pytest.raises(BoardError) as caught:
                install(new, board, signature=sign(new.manifest_bytes, signer))
            assert caught.value.code == "board.disk-full"
            assert caught.value.where.startswith("lab")
        assert board.app_releases("net").current == release.id
        assert run(board, old)
        assert leftovers(root) == []


class _small_disk:
    """A small tmpfs where one may be mounted, otherwise a limit on the size of files."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root, self.scratch, self.mounted = root, scratch, False

    def __enter__(self) -> str:
        argv = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(self.root)]
        if os.geteuid() == 0:
            self.mounted = subprocess.run(argv, capture_output=True, check=False).returncode == 0
        if self.mounted:
            return sys.executable
        wrapper = self.scratch / "python with a limit"
        script = f'#!/bin/sh\nulimit -f 8192\nexec "{sys.executable}" "$@"\n'
        wrapper.write_text(script, encoding="utf-8")
        wrapper.chmod(0o755)
        return str(wrapper)

    def __exit__(self, *exc: object) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.root)], check=True)


def test_board_without_the_runtime_is_reported_before_anything_is_sent(
    lab: BoardClient, signer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = hand_made()
    for change, code in (
        ({"onnxruntime": None}, "bundle.no-runtime"),
        ({"backends": ("tensorrt",)}, "bundle.backend"),
    ):
        says(lab, change, monkeypatch)
        with pytest.raises(BundleError) as caught:
            install(bundle, lab, signature=sign(bundle.manifest_bytes, signer))
        assert caught.value.code == code
    assert len(lab.missing(bundle.blobs)) == len(bundle.blobs)


def test_stripped_bundle_goes_only_where_its_weights_are(lab: BoardClient, signer: Path) -> None:
    full = hand_made()
    stripped = replace(full, weights={}, signature=sign(full.manifest_bytes, signer))
    with pytest.raises(BundleError) as caught:
        install(stripped, lab)
    assert caught.value.code == "bundle.stripped"
    assert "W" in caught.value.message
    install(full, lab, signature=stripped.signature)
    assert install(stripped, lab).bytes_reused == full.payload_bytes


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["ssh", "local"])
def test_interrupt_ends_what_runs_on_the_board(
    kind: str,
    boards: StartBoard,
    client: Client,
    signer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "ssh":
        # its processes are found by their command lines
        board = client(remote(boards(), python=sys.executable))
    else:
        root = str(tmp_path / "root")
        board = client(Board("here", root=root, python=sys.executable, kind="local"))
    bundle = hand_made()
    install(bundle, board, signature=sign(bundle.manifest_bytes, signer))
    root = board.hello().root
    name = Path(root, "bin", "edgekit_device.pyz").resolve().name
    (agent,) = processes(name, root)
    seen: list[int] = []

    def interrupt(process: object, timeout: float | None) -> int | None:
        until = time.monotonic() + 120.0
        while len(found := processes(name, root)) < 2 and time.monotonic() < until:
            os.sched_yield()
        seen.extend(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(_SentCommand, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        board.bench("net", BenchSettings(duration_s=600.0))
    assert len(seen) == 2
    until = time.monotonic() + 120.0
    while len(processes(name, root)) > 1 and time.monotonic() < until:
        os.sched_yield()
    assert list(processes(name, root)) == [agent]
    board.close()
    assert processes(name, root) == {}


@pytest.mark.whole
@pytest.mark.parametrize("name", ["release.json", "health.json", "manifest.json"])
def test_what_another_version_wrote_of_a_release_is_refused_and_mended_by_a_deployment(
    boards: StartBoard, client: Client, signer: Path, tmp_path: Path, name: str
) -> None:
    root = tmp_path / "board"
    lab, bundle = client(remote(boards(root))), hand_made()
    signature = sign(bundle.manifest_bytes, signer)
    first = install(bundle, lab, signature=signature)
    file = root / "apps/net/releases" / first.id / name
    file.chmod(0o600)
    file.write_bytes(older(file.read_bytes()))
    with pytest.raises((BoardError, BundleError)) as caught:
        # a load needs no release.json: the list of releases reads it
        _ = lab.releases() if name == "release.json" else run(lab, bundle)
    if name != "manifest.json":  # whose signature is wrong first
        assert caught.value.code == "state.version"
        assert "edgekit deploy CONFIG" in str(caught.value.hint)
    second = install(bundle, lab, signature=signature)
    assert second.id != first.id
    assert run(lab, bundle)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["deployment.json", "history.jsonl", "../../taken-back.json"])
def test_state_of_another_version_is_not_forgotten(
    boards: StartBoard, client: Client, signer: Path, tmp_path: Path, name: str
) -> None:
    root = tmp_path / "board"
    lab, old, new = client(remote(boards(root))), hand_made(seed=1), hand_made(seed=2)
    install(old, lab, signature=sign(old.manifest_bytes, signer))
    install(new, lab, signature=sign(new.manifest_bytes, signer))
    lab.rollback("net")
    file = (root / "apps/net" / name).resolve()
    if not file.exists():
        file.write_text('{"apps": {}, "schema": "edgekit.taken-back/1"}\n')
    file.write_bytes(older(file.read_bytes()))
    third = hand_made(seed=3)
    signature = sign(third.manifest_bytes, signer)
    with pytest.raises(BoardError) as caught:
        install(third, lab, signature=signature)
    assert caught.value.code == "state.version"
    if "taken-back" not in name:  # which is asked of releases that the history does not know
        assert lab.status("net").apps["net"].error.code == "state.version"
    command = str(caught.value.hint).partition("on the board, ")[2]
    assert run(lab, old)  # what serves keeps serving
    subprocess.run(command, shell=True, check=True)
    install(third, lab, signature=signature)
    assert run(lab, third)


def older(data: bytes) -> bytes:
    """A document of the version before."""
    return re.sub(rb'("schema": ?"edgekit[.a-z-]*)/1"', rb'\1/0"', data)


def test_an_older_release_counter_is_refused_unless_an_operator_says_why(
    lab: BoardClient, signer: Path
) -> None:
    def made(seed: int, counter: int) -> Bundle:
        bundle = toy_bundle(seed, counter=counter)
        return bundle.signed(sign(bundle.manifest_bytes, signer))

    newest, older = made(1, 5), made(2, 4)
    serving = install(newest, lab).id
    with pytest.raises(BoardError) as caught:
        install(older, lab)
    assert caught.value.code == "install.older"
    assert "--allow-older" in caught.value.hint
    assert lab.app_releases("toy").current == serving
    assert install(older, lab, on_purpose="5 drops frames").digest == older.digest
    history = lab.status("toy").apps["toy"].history
    assert history[-1].on_purpose == "5 drops frames"
    # the counter stays: the next release has a higher one
    with pytest.raises(BoardError) as caught:
        install(made(3, 5), lab)
    assert caught.value.code == "install.older"
