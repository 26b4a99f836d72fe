"""``install`` takes the named application's bundle or none, and never an older one by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.files import write
from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit_device.deployment.job import deploy
from edgekit_device.deployment.request import read_request
from edgekit_device.release.journal import read_journal
from edgekit_device.release.offer import take_offer
from edgekit_device.store.root import Root
from tests.bundles.bundle_toys import toy_bundle
from tests.edgekit_device.deployment.board import Cut, bench_board, cut_at
from tests.edgekit_device.device_board import BoardFolder, Refused

POLICY = json.dumps({"measure_s": 0})
# what a maker's clock said
NOW, LATER = "1767225600", "3471292800"  # 2026-01-01, 2080-01-01


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.ekb"


@pytest.fixture
def make(signing_key: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a signed bundle; ``key`` is another signer's."""

    def make(seed: int, name: str = "toy", key: Path = signing_key, at: str = NOW, **more: Any):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", at)
        bundle = toy_bundle(seed, name, **more)
        return bundle.signed(sign(bundle.manifest_bytes, key))

    return make


def install(board: BoardFolder, file: Path, *more: str, app: str = "toy") -> dict[str, Any]:
    return board.command("install", "--from", str(file), "--app", app, "--policy", POLICY, *more)


def refused(board: BoardFolder, bundle: Bundle, file: Path, *more: str) -> str:
    write(bundle, file, stripped=False)
    with pytest.raises(Refused) as caught:
        install(board, file, *more, app=bundle.name)
    return caught.value.code


def accepted(board: BoardFolder, bundle: Bundle, file: Path, *more: str) -> dict[str, Any]:
    write(bundle, file, stripped=False)
    answer = install(board, file, *more, app=bundle.name)
    assert (answer["state"], answer["digest"]) == ("committed", bundle.digest)
    return answer


def app_of(board: BoardFolder, name: str = "toy") -> dict[str, Any]:
    found: dict[str, Any] = board.command("status", "--app", name)["apps"][name]
    return found


@pytest.mark.whole
def test_another_applications_bundle_changes_nothing(
    board: BoardFolder, toy: Bundle, file: Path, make: Any
) -> None:
    accepted(board, toy, file)
    before = board.files()
    write(make(3, "other"), file, stripped=False)
    with pytest.raises(Refused) as caught:
        install(board, file)
    assert caught.value.code == "bundle.wrong-app"
    assert {name for name in board.files() - before if "lock" not in name} == set()
    accepted(board, make(4), file)
    assert "other" not in board.command("status")["apps"]


def test_counters_only_rise_and_survive_removal(board: BoardFolder, file: Path, make: Any) -> None:
    fifth = make(1, counter=5)
    accepted(board, fifth, file)
    serving = app_of(board)["current"]
    assert refused(board, make(2, counter=4), file) == "install.older"
    assert refused(board, make(2), file) == "install.older"  # none at all
    assert refused(board, make(2, counter=5), file) == "install.older"  # another one's counter
    assert app_of(board)["current"] == serving
    board.command("selftest", "--app", "toy")
    board.command("remove", "--app", "toy")
    assert refused(board, make(2, counter=4), file) == "install.older"
    accepted(board, fifth, file)
    accepted(board, make(2, counter=6), file)
    assert refused(board, fifth, file) == "install.older"
    accepted(board, make(1, "other", counter=1), file)  # each application has its own


@pytest.mark.whole
def test_a_signers_last_bundle_is_old_when_another_signer_has_a_newer_one(
    board: BoardFolder, file: Path, make: Any, tmp_path: Path
) -> None:
    second = ensure_key(tmp_path / "second")
    board.trust(allowed_signers_line(second.with_name("second.pub"), "second"))
    first = make(1, counter=5)
    accepted(board, first, file)
    accepted(board, make(2, key=second, counter=1), file)
    assert refused(board, first, file) == "install.older"


@pytest.mark.whole
def test_going_back_on_purpose_is_recorded_and_lowers_nothing(
    board: BoardFolder, file: Path, make: Any
) -> None:
    accepted(board, make(1, counter=5), file)
    older = make(2, counter=4)
    assert refused(board, older, file, "--allow-older", "") == "usage"
    accepted(board, older, file, "--allow-older", "5 drops frames")
    newest = app_of(board)["history"][-1]
    assert newest["on_purpose"].startswith("5 drops frames (")
    # what serves is left alone, whatever its counter
    assert not install(board, file)["changed"]
    assert refused(board, make(3, counter=4), file) == "install.older"
    assert refused(board, make(3, counter=5), file) == "install.older"  # 5 was seen, and stays


@pytest.mark.whole
def test_what_an_operator_took_back_is_not_installed_again(
    board: BoardFolder, file: Path, make: Any
) -> None:
    accepted(board, make(1), file)
    new = make(2)
    accepted(board, new, file)
    board.command("rollback", "--app", "toy", "--reason", "too many false alarms")
    with pytest.raises(Refused, match="too many false alarms") as caught:
        install(board, file)
    assert caught.value.code == "install.taken-back"
    assert refused(board, new, file, "--allow-older", "it is not older") == "install.taken-back"
    accepted(board, new, file, "--again")
    assert not install(board, file)["changed"]


def test_validity_ends_installs_and_nothing_else(board: BoardFolder, file: Path, make: Any) -> None:
    accepted(board, make(1, counter=1, valid_until="2999-12-31"), file)
    late = make(2, counter=2, valid_until="2026-01-31")
    assert refused(board, late, file) == "install.expired"
    accepted(board, late, file, "--allow-older", "there is no other")
    assert not install(board, file)["changed"]
    board.command("selftest", "--app", "toy")


@pytest.mark.whole
def test_a_clock_before_the_newest_signed_time_refuses_installs_and_not_what_serves(
    board: BoardFolder, file: Path, make: Any
) -> None:
    accepted(board, make(1, counter=1), file)
    assert refused(board, make(2, counter=2, at=LATER), file) == "install.clock"
    # also of bundles that are older than the clock
    assert refused(board, make(3, counter=3), file) == "install.clock"
    assert refused(board, make(4, "other"), file) == "install.clock"
    board.command("selftest", "--app", "toy")
    board.command("switch", "--app", "toy", "--release", app_of(board)["current"])


def test_a_damaged_record_refuses_installs_and_not_what_serves(
    board: BoardFolder, file: Path, make: Any
) -> None:
    accepted(board, make(1, counter=1), file)
    for damage in ('{"schema": "edgekit.counters/1"', '{"schema": "edgekit.counters/1"}'):
        (board.root / "counters.json").write_text(damage)
        assert refused(board, make(2, counter=2), file) == "install.counters"
    board.command("selftest", "--app", "toy")


@pytest.mark.whole
def test_what_counts_as_installed_is_remembered_whenever_the_power_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, signer_line: str
) -> None:
    first, second = make(1, counter=7), make(2, counter=8)

    def walk(folder: Path, cut: int) -> int:
        """Deploys both, the power going before the cut-th change of the second's."""
        with monkeypatch.context() as patch:
            bench = bench_board(folder, patch)
            (folder / "allowed_signers").write_text(signer_line + "\n")
            for bundle in (first, second):
                bench.offer(bundle)
                take_offer(bench.root, bundle.manifest_bytes, bundle.signature)
                request = read_request({"app": "toy", "digest": bundle.digest, "policy": {}})
                with cut_at(cut if bundle is second else 1 << 30) as seen:
                    try:
                        deploy(bench.root, request)
                    except Cut:
                        assert bundle is second
        return len(seen)

    count = walk(tmp_path / "whole", 1 << 30)
    states = set()
    for number in range(count - 25, count + 1):
        folder = tmp_path / str(number)
        walk(folder, number)
        journal = read_journal(Root(folder).app("toy"))
        assert journal is not None
        known = json.loads((folder / "counters.json").read_text())["apps"]["toy"]["signers"]
        ((_, seen),) = known.items()
        states.add((journal.state, seen["counter"]))
    assert ("committed", 8) in states
    assert ("committed", 7) not in states
    assert any(state != "committed" for state, _ in states)


def rehearsed(board: BoardFolder, bundle: Bundle, *more: str, lines: tuple[str, ...] = ()) -> Any:
    """What ``rehearse`` answers, or the code with which it refuses; it must write nothing."""
    assert bundle.signature
    request = {
        "manifest": bundle.manifest_bytes.decode(),
        "signature": bundle.signature.decode(),
        "lines": lines,
    }
    before = board.files() if board.root.exists() else None
    try:
        return board.command("rehearse", *more, stdin=json.dumps(request).encode())
    except Refused as error:
        return error.code
    finally:
        assert (board.files() if board.root.exists() else None) == before


def test_a_rehearsal_says_what_an_install_would_do(
    board: BoardFolder, make: Any, file: Path, signing_key: Path
) -> None:
    one, two = make(1, counter=1), make(2, counter=2)
    answer = rehearsed(board, one)
    assert (answer["changed"], answer["digest"], answer["current"]) == (True, one.digest, None)
    accepted(board, one, file)
    assert rehearsed(board, one)["changed"] is False
    assert rehearsed(board, two)["changed"] is True
    accepted(board, two, file)
    current = rehearsed(board, two)["current"]
    assert current.endswith(two.digest[:12])
    # what install refuses, and what lets it go on
    assert rehearsed(board, one) == "install.older"
    assert rehearsed(board, one, "--allow-older", "because")["changed"] is True
    board.command("rollback", "--app", "toy", "--reason", "bad")
    assert rehearsed(board, two) == "install.taken-back"
    assert rehearsed(board, two, "--again")["changed"] is True
    # a damaged blob is deployed again
    board.blob(max(one.weights)).write_bytes(b"x")
    assert rehearsed(board, one, "--allow-older", "because")["changed"] is True


def test_a_rehearsal_on_a_board_that_has_no_folder_yet(
    tmp_path: Path, board: BoardFolder, make: Any, signing_key: Path
) -> None:
    bundle, fresh = make(1), BoardFolder(tmp_path / "nothing", board.loader)
    line = allowed_signers_line(Path(f"{signing_key}.pub"), "tests")
    assert rehearsed(fresh, bundle) == "bundle.unknown-signer"
    answer = rehearsed(fresh, bundle, lines=(line, line))
    assert (answer["changed"], answer["current"], answer["keys"]) == (True, None, 1)
    assert not fresh.root.exists()
    # a list of revoked keys counts: one that OpenSSH cannot read revokes all
    (board.root / "revoked_keys").write_text("no key at all\n")
    assert rehearsed(board, bundle, lines=(line,)) == "bundle.revoked-signer"
