"""What tune reads may be damaged: that is an error with a name or a note, never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.config.loader import open_config
from edgekit.errors import EdgekitError, UsageError
from edgekit.network.model import Network
from edgekit.placement.profiles.estimation import table_evidence
from edgekit.placement.profiles.profile import merge_tables
from edgekit.placement.profiles.reader import read_profile
from edgekit.tuning.document import tune_document
from edgekit.tuning.journal import PlanDropped, TuningJournal
from edgekit.tuning.records import locked_folder, read_table
from edgekit.tuning.run import tune
from edgekit.tuning.session import Tuning
from edgekit.tuning.trials import TuningRequest
from tests.pipeline.nets import small_config
from tests.tries import tries
from tests.tuning.test_tune import DLA, GPU, net, query_for, tuned
from tests.tuning.tune_world import world_of

__all__ = ["net"]

MANY = settings(max_examples=tries(30))
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
JUNK = _LEAVES | st.lists(_LEAVES, max_size=3) | st.dictionaries(st.text(max_size=3), _LEAVES)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in items:
        yield (*path, key)
        if isinstance(one, dict | list):
            yield from places(one, (*path, key))


def damaged(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    changed = found = copy.deepcopy(value)
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = junk
    return changed


class Done:
    """A tuning that ended, and its journal."""

    def __init__(self, tuning: Tuning, text: bytes) -> None:
        self.tuning, self.text = tuning, text


@pytest.fixture(scope="module")
def done(net: Network, tmp_path_factory: pytest.TempPathFactory) -> Done:
    path = tmp_path_factory.mktemp("damaged") / "journal.jsonl"
    query = query_for(net)
    found = tuned(
        query,
        world_of(query, GPU, DLA, power=True),
        request={"rounds": 3, "turns": 1},
        journal=TuningJournal(path, "same"),
    )
    return Done(found, path.read_bytes())


def again(done: Tuning, path: Path) -> Tuning:
    """Carries on as far as its document, without a measurement."""
    tuning = Tuning([done.start_network], done.request, TuningJournal(path, "same"))
    tuning.replay()
    assert 0 <= tuning.seconds < float("inf")
    if tuning.trials:
        assert tuning.first.runs
        assert tuning.sampled_times("").learnt.mean.max() < 99
        json.dumps(tune_document(tuning, name="x", files={}).to_json(), allow_nan=False)
    return tuning


@MANY
@given(st.data())
def test_a_journal_with_wrong_values(done: Done, tmp_path: Path, data: st.DataObject) -> None:
    tuning, text = done.tuning, done.text
    lines = [json.loads(line) for line in text.splitlines()]
    which = data.draw(st.integers(1, len(lines) - 1))
    retained = [place for place in places(lines[which]) if "samples_ms" not in place[:-1]]
    place = data.draw(st.sampled_from(retained))
    lines[which] = damaged(lines[which], place, data.draw(JUNK))
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = again(tuning, path)
    assert {trial.key for trial in found.trials} <= {trial.key for trial in tuning.trials}


@pytest.mark.whole
@MANY
@given(at=st.integers(0, 1 << 20), noise=st.binary(max_size=40), cut=st.booleans())
def test_a_journal_of_random_bytes(
    done: Done, tmp_path: Path, at: int, noise: bytes, cut: bool
) -> None:
    tuning, text = done.tuning, done.text
    at %= len(text)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(text[:at] + noise + (b"" if cut else text[at:]))
    again(tuning, path)
    path.write_bytes(noise)
    assert not TuningJournal(path, "same").entries
    # what is added after damage is found again
    entry = PlanDropped(event="dropped", number=1, why="it does not build")
    TuningJournal(path, "same").add(entry)
    assert TuningJournal(path, "same").entries == [entry]


@pytest.mark.parametrize("share", [-1.0258914301569943e151, -0.5, 1.5])
def test_a_share_of_frames_is_from_0_to_1(done: Done, tmp_path: Path, share: float) -> None:
    table = done.tuning.table("").to_json()
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(damaged(table, ("frames", 0, "parts", 0, "share"), share)))
    with pytest.raises(EdgekitError, match=r"frames\[0\]\.parts\[0\]\.share"):
        read_table(path)


@pytest.mark.whole
@MANY
@given(st.data())
def test_a_table_with_wrong_values(done: Done, tmp_path: Path, data: st.DataObject) -> None:
    tuning = done.tuning
    own = tuning.table("")
    table = own.to_json()
    path = tmp_path / "tuned.profile.json"
    place = data.draw(st.sampled_from(list(places(table))))
    path.write_text(json.dumps(damaged(table, place, data.draw(JUNK))))
    try:
        known = read_table(path).document
        merged = merge_tables([own, known])
        table_evidence(merged, tuning.space("").index, 1.0)
        fresh = Tuning([tuning.start_network], tuning.request, tables=[known])
        fresh.trials = tuning.trials
        assert fresh.sampled_times("").learnt.mean.max() < 99
        tune_document(fresh, name="x", files={})
    except EdgekitError as error:
        assert error.code.startswith("profile.")  # noqa: PT017
    try:
        read_profile(path)
    except EdgekitError as error:
        assert error.code.startswith("profile.")  # noqa: PT017


@MANY
@given(st.binary(max_size=60))
def test_a_table_of_random_bytes(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "tuned.profile.json"
    path.write_bytes(noise)
    with pytest.raises(EdgekitError):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "value", "range_"),
    [
        ("rounds", 0, "1 or more"),
        ("turns", -1, "0 or more"),
        ("budget_s", -0.5, "0 or more"),
        ("tolerance", 7.0, "from 0 to 1"),
        ("tolerance", float("nan"), "from 0 to 1"),
        ("rounds", "12", "1 or more"),
    ],
)
def test_a_request_out_of_range_is_refused(name: str, value: Any, range_: str) -> None:
    with pytest.raises(UsageError, match=name) as refused:
        TuningRequest(**{name: value})
    assert refused.value.code == "tune.request"
    assert range_ in refused.value.hint


def test_two_do_not_tune_one_folder(tmp_path: Path) -> None:
    config = open_config(small_config(tmp_path, precision="fp16", objective="latency"))
    with (
        locked_folder(tmp_path / "tune"),
        pytest.raises(UsageError, match=r"process \d+ on .* is already tuning") as busy,
    ):
        tune(config, TuningRequest(""), out=tmp_path / "tune")
    assert busy.value.code == "tune.busy"
    assert "--out" in busy.value.hint
    with locked_folder(tmp_path / "tune"):  # whoever ended holds nothing
        pass
