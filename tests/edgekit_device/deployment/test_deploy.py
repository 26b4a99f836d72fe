"""The state machine of a deployment: its journal, cuts at every durable change, going back."""

from __future__ import annotations

import contextlib
import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.deployment.job import roll_back
from edgekit_device.deployment.states import STATES
from edgekit_device.errors import DeviceError
from edgekit_device.install import resume
from edgekit_device.jobs.job import JobCancelled
from edgekit_device.protocol.failure import Failure
from edgekit_device.release import journal, requirements
from edgekit_device.release.collect import collect, remove
from edgekit_device.release.journal import (
    AFTER_SWITCH,
    BEFORE_SWITCH,
    ENDED,
    HISTORY,
    JOURNAL,
    claim,
    find_taken_back,
    read_history,
    read_journal,
    record_end,
)
from edgekit_device.release.offer import read_incoming, take_offer
from edgekit_device.release.releases import REFIT, stage
from edgekit_device.trust.bundle import read_record
from tests.bundles.bundle_toys import toy_bundle
from tests.edgekit_device.deployment.board import Bench, Changes, Cut, bench_board, cut_at

WORK = ["refitting", "testing", "soaking"]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return bench_board(tmp_path / "root", monkeypatch)


@pytest.fixture(scope="session")
def toy3() -> Bundle:
    return toy_bundle(2)


def failed(bench: Bench, bundle: Bundle) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        bench.deploy(bundle)
    return caught.value


def digest_of(bench: Bench) -> str | None:
    """The bundle that serves, read as a loader would; its release must be ready."""
    current = bench.app.link("current")
    if current is None:
        return None
    folder = bench.app.releases_folder / current
    assert (folder / "refit.json").is_file()
    return read_record(folder).digest


def test_the_table_has_every_state_and_leads_to_an_end() -> None:
    assert set(STATES) == {*BEFORE_SWITCH, *AFTER_SWITCH, *ENDED}
    for name, state in STATES.items():
        assert (state.then is None) == (name in ENDED)
        assert {state.then, state.fails} <= {None, *STATES}
    # what has switched goes back, what has not leaves alone what serves
    assert {STATES[name].fails for name in BEFORE_SWITCH} == {"failed"}
    assert {STATES[name].fails for name in (*AFTER_SWITCH, "committed")} == {"rolling-back"}


def test_every_state_is_in_the_journal_when_its_work_begins(
    bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    at: list[tuple[str, str]] = []

    def look(state: str) -> None:
        journal = read_journal(bench.app)
        assert journal is not None
        at.append((state, journal.state))

    bench.at = look
    bench.offer(toy)
    first = bench.deploy(toy)
    assert at == [(state, state) for state in WORK]
    assert (first["state"], first["previous"], first["changed"]) == ("committed", None, True)
    states = [step["state"] for step in first["steps"]]
    assert states == ["verifying", "refitting", "testing", "switching", "soaking", "committed"]
    bench.offer(toy2)
    second = bench.deploy(toy2)
    assert bench.facts() == (second["release"], first["release"])
    assert [line.state for line in read_history(bench.app)] == ["committed", "committed"]
    # nothing waits any more
    assert list((bench.root.folder / "incoming").iterdir()) == []


def test_what_is_offered_anew_with_another_signature_waits_for_its_deployment(
    bench: Bench, toy: Bundle
) -> None:
    def offer_signed(state: str) -> None:
        if state == "soaking":
            take_offer(bench.root, toy.manifest_bytes, toy.signature, trust_unsigned=True)

    bench.offer(toy)
    bench.at = offer_signed
    first = bench.deploy(toy)["release"]
    assert read_incoming(bench.root, toy.digest) == (toy.manifest_bytes, toy.signature)
    bench.at = lambda state: None
    second = bench.deploy(toy)["release"]
    assert second != first
    assert read_incoming(bench.root, toy.digest) is None


@pytest.mark.parametrize("state", ["refitting", "testing"])
def test_what_fails_before_the_switch_leaves_nothing(
    state: str, bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    bench.offer(toy)
    first = bench.deploy(toy)["release"]
    bench.offer(toy2)
    bench.bad[state] = DeviceError("no", code="selftest.failed", where="net", hint="build again")
    error = failed(bench, toy2)
    assert (error.code, error.message, error.hint) == ("selftest.failed", "no", "build again")
    assert bench.app.releases() == [first]
    assert bench.facts() == (first, None)
    last = read_history(bench.app)[-1]
    assert (last.state, last.error.code) == ("failed", "selftest.failed")


def test_what_fails_while_it_soaks_goes_back_to_both_links_of_before(
    bench: Bench, toy: Bundle, toy2: Bundle, toy3: Bundle
) -> None:
    for bundle in (toy, toy2):
        bench.offer(bundle)
        bench.deploy(bundle)
    before = bench.facts()
    bench.offer(toy3)
    bench.bad["soaking"] = DeviceError("too slow", code="health.latency")
    error = failed(bench, toy3)
    assert error.code == "health.latency"
    assert f"went back to {before[0]}" in error.message
    assert bench.facts() == before
    journal = read_journal(bench.app)
    assert journal is not None
    assert journal.state == "rolled-back"
    assert journal.facts.error.message == "too slow"
    assert len(bench.app.releases()) == 2


def test_an_end_that_the_disk_does_not_take_goes_back(
    bench: Bench, toy: Bundle, toy2: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.offer(toy)
    bench.deploy(toy)
    before = bench.facts()
    write_durably = journal.write_durably

    def write(path: Path, data: bytes) -> None:
        if path.name == JOURNAL and b'"state": "committed", "state_at"' in data:
            raise OSError(errno.ENOSPC, "full")
        write_durably(path, data)

    monkeypatch.setattr(journal, "write_durably", write)
    bench.offer(toy2)
    assert failed(bench, toy2).code == "board.disk-full"
    assert bench.facts() == before
    assert read_history(bench.app)[-1].state == "rolled-back"


def test_the_first_one_that_fails_leaves_nothing_serving(bench: Bench, toy: Bundle) -> None:
    bench.offer(toy)
    bench.bad["soaking"] = DeviceError("bad", code="health.accuracy")
    assert "no current release" in failed(bench, toy).message
    assert bench.facts() == (None, None)
    bench.bad.clear()
    bench.offer(toy)
    assert failed(bench, toy).code == "install.taken-back"
    release = bench.deploy(toy, put_back=True)["release"]
    assert bench.facts() == (release, None)


@pytest.mark.whole
def test_a_cut_at_every_durable_change_leaves_old_or_new_and_the_same_command_ends_it(
    tmp_path: Path, toy: Bundle, toy2: Bundle
) -> None:
    number, survived = 0, 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            bench = bench_board(tmp_path / str(number), patch)
            bench.offer(toy)
            old = bench.deploy(toy)["release"]
            bench.offer(toy2)
            try:
                with cut_at(number) as seen:
                    bench.deploy(toy2)
            except Cut:
                survived += 1
            else:
                break
            assert digest_of(bench) in (toy.digest, toy2.digest)
            bench.offer(toy2)
            again = bench.deploy(toy2)
            assert bench.facts() == (again["release"], old)
            assert digest_of(bench) == toy2.digest
            assert list(bench.app.folder.rglob(".*")) == []
            assert not (bench.app.folder / "links.json").exists()
            assert read_history(bench.app)[-1].id == again["id"]
            number += 1
    assert survived == number == len(seen)
    assert number > 40


@pytest.mark.whole
def test_a_cut_at_every_change_of_a_roll_back_leaves_the_old_one_after_all(
    tmp_path: Path, toy: Bundle, toy2: Bundle
) -> None:
    number = survived = 0
    while True:
        with pytest.MonkeyPatch.context() as patch:
            bench = bench_board(tmp_path / str(number), patch)
            bench.offer(toy)
            old = bench.deploy(toy)["release"]
            bench.offer(toy2)
            bench.bad["soaking"] = DeviceError("bad", code="health.serving")
            try:
                with cut_at(1 << 30) as seen:

                    def arm(state: str, seen: Changes = seen, number: int = number) -> None:
                        if state == "soaking":
                            seen.power_goes_after(number)

                    bench.at = arm
                    failed(bench, toy2)
            except Cut:
                survived += 1
            else:
                break
            assert digest_of(bench) in (toy.digest, toy2.digest)
            journal = read_journal(bench.app)
            assert journal is not None
            bench.at = lambda state: None
            with contextlib.suppress(DeviceError):
                bench.deploy(toy2, resume=journal.facts.id)
            assert bench.facts() == (old, None)
            assert read_history(bench.app)[-1].state == "rolled-back"
            number += 1
    assert survived == number
    assert number > 8


@pytest.mark.parametrize("state", WORK)
def test_resume_ends_what_was_cut_off(state: str, bench: Bench, toy: Bundle, toy2: Bundle) -> None:
    bench.offer(toy)
    old = bench.deploy(toy)["release"]
    bench.offer(toy2)

    def cut(now: str) -> None:
        if now == state:
            raise Cut

    bench.at = cut
    with pytest.raises(Cut):
        bench.deploy(toy2)
    journal = read_journal(bench.app)
    assert journal is not None
    assert (journal.live, journal.state) == (True, state)
    bench.at = lambda state: None
    document = bench.deploy(toy2, resume=journal.facts.id)
    assert (document["id"], document["state"]) == (journal.facts.id, "committed")
    assert bench.facts() == (document["release"], old)


def test_a_rollback_requested_before_a_power_cut_is_done_after_it(
    bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    bench.offer(toy)
    old = bench.deploy(toy)["release"]
    bench.offer(toy2)

    def cut(now: str) -> None:
        if now == "soaking":
            roll_back(bench.root, bench.app, "worse than before", wait=False)
            raise Cut

    bench.at = cut
    with pytest.raises(Cut):
        bench.deploy(toy2)
    journal = read_journal(bench.app)
    assert journal is not None
    bench.at = lambda state: None
    with pytest.raises(DeviceError, match="worse than before"):
        bench.deploy(toy2, resume=journal.facts.id)
    assert bench.facts() == (old, None)


def test_resume_carries_on_the_others_where_one_cannot_be(bench: Bench, toy: Bundle) -> None:
    bench.offer(toy)

    def cut(now: str) -> None:
        raise Cut

    bench.at = cut
    with pytest.raises(Cut):
        bench.deploy(toy)
    odd = bench.root.app("odd")  # comes first, with what a loader of later wrote down
    odd.folder.mkdir()
    journal = json.loads((bench.app.folder / JOURNAL).read_text())
    (odd.folder / JOURNAL).write_text(json.dumps(dict(journal, schema="edgekit.deployment/2")))
    found, failed = resume(bench.root, no_run=True)
    assert [one.app for one in found] == ["toy"]
    assert [(one.app, one.error.code) for one in failed] == [("odd", "state.version")]
    with pytest.raises(DeviceError) as caught:
        resume(bench.root, odd, no_run=True)
    assert caught.value.code == "state.version"


def test_what_served_is_known_also_after_a_switch_by_hand_that_was_cut_off(
    bench: Bench, toy: Bundle, toy2: Bundle, toy3: Bundle
) -> None:
    for bundle in (toy, toy2):
        bench.offer(bundle)
        bench.deploy(bundle)
    current, previous = bench.facts()
    # the history's line and the note of both links are durable, neither link has changed
    with pytest.raises(Cut), cut_at(4):
        roll_back(bench.root, bench.app, "by hand")
    assert bench.facts() == (current, previous)
    bench.offer(toy3)
    bench.bad["soaking"] = DeviceError("bad", code="health.accuracy")
    failed(bench, toy3)
    assert bench.facts() == (previous, current)


def test_another_bundle_ends_what_was_cut_off_first(
    bench: Bench, toy: Bundle, toy2: Bundle, toy3: Bundle
) -> None:
    bench.offer(toy)
    bench.deploy(toy)
    for state in ("testing", "soaking"):
        bench.offer(toy2)

        def cut(now: str, state: str = state) -> None:
            if now == state:
                raise Cut

        bench.at = cut
        with pytest.raises(Cut):
            bench.deploy(toy2)
        bench.at = lambda state: None
        bench.offer(toy3)
        assert bench.deploy(toy3)["state"] == "committed"
        ended = read_history(bench.app)[-2]
        assert ended.digest == toy2.digest
        assert ended.state == ("failed" if state == "testing" else "committed")


def test_what_crashes_the_board_again_and_again_is_given_up(
    bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    bench.offer(toy)
    old = bench.deploy(toy)["release"]
    bench.offer(toy2)

    def cut(state: str) -> None:
        if state == "soaking":
            raise Cut

    bench.at = cut
    for _ in range(3):
        with pytest.raises(Cut):
            bench.deploy(toy2)
    assert failed(bench, toy2).code == "deploy.cut-off"
    assert bench.facts() == (old, None)


def test_of_two_at_once_one_learns_who_and_what(bench: Bench, toy: Bundle, toy2: Bundle) -> None:
    errors: list[DeviceError] = []
    bench.offer(toy)
    bench.offer(toy2)

    def other(state: str) -> None:
        if state == "testing" and not errors:
            with pytest.raises(DeviceError) as caught, claim(bench.app, wait_s=0):
                pass
            errors.append(caught.value)

    bench.at = other
    bench.deploy(toy, operator="ann@desk")
    (error,) = errors
    assert error.code == "deploy.busy"
    assert "ann@desk" in error.message
    assert toy.digest[:12] in error.message
    assert "testing" in error.message


def test_rollback_by_hand_is_in_the_history_and_takes_a_soak_back(
    bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    bench.offer(toy)
    old = bench.deploy(toy)["release"]
    bench.offer(toy2)
    new = bench.deploy(toy2)["release"]
    answer = roll_back(bench.root, bench.app, "false alarms")
    assert (answer.before, answer.current, answer.previous) == (new, old, new)
    last = read_history(bench.app)[-1]
    assert (last.error.code, last.error.message) == ("rollback.asked", "false alarms")
    assert answer.taken_back is not None
    assert (answer.taken_back.release, answer.taken_back.reason) == (new, "false alarms")
    # once more does not go forward, to what was taken back
    with pytest.raises(DeviceError, match="false alarms") as caught:
        roll_back(bench.root, bench.app, "the other is worse")
    assert caught.value.code == "release.no-previous"
    bench.offer(toy2)
    assert failed(bench, toy2).code == "install.taken-back"
    bench.offer(toy2)

    def ask(state: str) -> None:
        if state == "soaking":
            roll_back(bench.root, bench.app, "worse than before", wait=False)

    bench.at = ask
    with pytest.raises(DeviceError) as caught:
        bench.deploy(toy2, put_back=True)
    assert (caught.value.code, bench.facts()[0]) == ("rollback.asked", old)
    assert read_history(bench.app)[-1].error.message == "worse than before"


def test_a_power_cut_in_a_roll_back_loses_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: Bundle, toy2: Bundle
) -> None:
    for cut in range(1, 9):
        bench = bench_board(tmp_path / str(cut), monkeypatch)
        for bundle in (toy, toy2):
            bench.offer(bundle)
            new = bench.deploy(bundle)["release"]
        with contextlib.suppress(Cut), cut_at(cut):
            roll_back(bench.root, bench.app, "false alarms")
        with bench.app.lock():
            pass  # which finishes what was cut off
        back = find_taken_back(bench.app, toy2.digest)
        assert bench.app.link("current") == new or (back and back.reason == "false alarms")


@pytest.mark.whole
def test_what_was_taken_back_is_known_after_a_long_time_and_a_removal(
    bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    for bundle in (toy, toy2):
        bench.offer(bundle)
        bench.deploy(bundle)
    roll_back(bench.root, bench.app, "false alarms")
    line = replace(read_history(bench.app)[-1], state="failed", release=None, previous=None)
    for number in range(260):
        failure = Failure("selftest.failed", "x" * 2500, "", "")
        record_end(bench.app, replace(line, id=str(number), error=failure))
    assert len(read_history(bench.app)) < 260
    bench.offer(toy2)
    assert "false alarms" in failed(bench, toy2).message
    remove(bench.root, bench.app)
    assert "false alarms" in failed(bench, toy2).message
    bench.offer(toy)
    bench.deploy(toy)  # the other one served before
    # a removal that takes back what serves
    remove(bench.root, bench.app, reason="its rollout was rolled back")
    assert "its rollout" in failed(bench, toy).message
    assert "false alarms" in failed(bench, toy2).message
    # and what was put back is not taken back any more, either
    bench.offer(toy2)
    bench.deploy(toy2, put_back=True)
    remove(bench.root, bench.app)
    bench.offer(toy2)
    bench.deploy(toy2)


def test_a_full_disk_is_no_judgement_of_the_release(bench: Bench, toy: Bundle) -> None:
    bench.bad["soaking"] = DeviceError("no space", code="board.disk-full")
    bench.offer(toy)
    assert failed(bench, toy).code == "board.disk-full"
    assert bench.facts() == (None, None)
    bench.bad.clear()
    bench.offer(toy)
    assert bench.deploy(toy)["state"] == "committed"


def test_a_cancelled_one_stops_or_goes_back(bench: Bench, toy: Bundle, toy2: Bundle) -> None:
    from edgekit_device.deployment.job import deploy
    from edgekit_device.deployment.request import read_request

    bench.offer(toy)
    old = bench.deploy(toy)["release"]
    for state in ("testing", "soaking"):
        bench.offer(toy2)
        begun: list[str] = []
        bench.at = begun.append
        requested = read_request({"app": "toy", "digest": toy2.digest, "trust_unsigned": True})
        with pytest.raises(JobCancelled):
            deploy(bench.root, requested, cancelled=lambda s=state, b=begun: s in b)
        assert bench.facts()[0] == old
        assert read_history(bench.app)[-1].error.code == "job.cancelled"


def test_a_damaged_journal_and_half_a_line_of_history_stop_nothing(
    bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    bench.offer(toy)
    bench.deploy(toy)
    for damage in (b"", b"{", b'{"schema": "edgekit.deployment/1", "state": "soaking"}', b"\xff"):
        (bench.app.folder / JOURNAL).write_bytes(damage)
        with (bench.app.folder / HISTORY).open("ab") as file:
            file.write(b'{"id": "half')
        bench.offer(toy2)
        assert bench.deploy(toy2)["state"] == "committed"
    lines = (bench.app.folder / HISTORY).read_bytes().splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["committed"] * 5


def test_one_at_a_time_changes_a_board_and_several_may_read(bench: Bench) -> None:
    with bench.root.lock(shared=True), bench.root.lock(shared=True, wait_s=0):
        pass
    for held, wanted in ((False, True), (True, False), (False, False)):
        with (
            bench.root.lock(shared=held),
            pytest.raises(DeviceError, match="another command"),
            bench.root.lock(shared=wanted, wait_s=0),
        ):
            pass


def test_what_the_board_lacks_is_said_before_its_weights_are_touched(
    bench: Bench, toy: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = requirements.hello
    monkeypatch.setattr(
        requirements, "hello", lambda folder: replace(known(folder), memory_bytes=1)
    )
    bench.offer(toy)
    assert failed(bench, toy).code == "requires.memory"
    assert bench.done == []


def test_a_roll_back_takes_earlier_releases_that_were_checked(
    bench: Bench, toy: Bundle, toy2: Bundle, toy3: Bundle
) -> None:
    def staged(bundle: Bundle) -> Path:
        bench.offer(bundle)
        found = stage(bench.root, bundle.manifest_bytes, None, trust_unsigned=True)
        return bench.app.releases_folder / found.release

    staged(toy)  # its weights were never checked
    bench.offer(toy2)
    bench.deploy(toy2)
    (staged(toy3) / REFIT).write_text("{}")  # checked, newer, and it never served
    with pytest.raises(DeviceError) as caught:
        roll_back(bench.root, bench.app, "worse")
    assert caught.value.code == "release.no-previous"


def test_what_served_again_is_no_longer_taken_back(
    bench: Bench, toy: Bundle, toy2: Bundle, toy3: Bundle
) -> None:
    bench.offer(toy)
    bench.deploy(toy)
    bench.offer(toy2)
    bench.deploy(toy2)
    roll_back(bench.root, bench.app, "false alarms")
    assert find_taken_back(bench.app, toy2.digest) is not None
    bench.offer(toy2)
    again = bench.deploy(toy2, put_back=True)["release"]
    assert find_taken_back(bench.app, toy2.digest) is None
    bench.offer(toy3)
    bench.deploy(toy3)
    assert roll_back(bench.root, bench.app, "worse").current == again


def test_what_a_soak_may_go_back_to_is_not_collected(
    bench: Bench, toy: Bundle, toy2: Bundle, toy3: Bundle
) -> None:
    """The release before the one before is no link while the new one soaks."""
    releases = []
    for bundle in (toy, toy2):
        bench.offer(bundle)
        releases.append(bench.deploy(bundle)["release"])
    bench.offer(toy3)

    def collected(state: str) -> None:
        if state == "soaking":
            collect(bench.root, app=bench.app, keep=1)
            raise Cut

    bench.at = collected
    with pytest.raises(Cut):
        bench.deploy(toy3)
    bench.at = lambda state: None
    bench.bad["soaking"] = DeviceError("worse", code="health.latency")
    with pytest.raises(DeviceError):
        bench.deploy(toy3)
    assert bench.facts() == (releases[1], releases[0])
