"""A history whose bytes were changed or cut: told or mended, never a traceback or another time."""

import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import EdgekitError
from edgekit.reports.terminal.history import history_text, result_text
from edgekit.results.recording import record
from edgekit.results.store import ResultStore, repair
from tests.results.measurements import bench, times
from tests.tries import tries

_PAGE = 4096


def written(path, count=8):
    for seed in range(count):
        record(bench(times(200, 2.0, seed=seed)), path=path)
    with ResultStore(path) as store:
        store.mark("release", 3)
        return path.read_bytes(), {one.id: (one.document, one.samples) for one in store.results()}


def read(path):
    with ResultStore(path) as store:
        found = store.results()
    history_text(found, width=80, colour=False)
    for one in found:
        result_text(one)
    return {one.id: (one.document, one.samples) for one in found}


def reported(function, *arguments):
    """Calls it; edgekit's own errors are an answer."""
    try:
        return function(*arguments)
    except EdgekitError as error:
        return error.code


@settings(max_examples=tries(30))
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 60), cut=st.booleans())
def test_damage_is_reported_and_what_can_be_read_is_retained(tmp_path, seed, changes, cut):
    whole = tmp_path / "whole.sqlite"
    if not whole.exists():
        written(whole)
    before, path = read(whole), tmp_path / f"{seed}-{changes}-{cut}.sqlite"
    data, source = bytearray(whole.read_bytes()), random.Random(seed)
    for _ in range(changes):
        data[source.randrange(len(data))] = source.randrange(256)
    if cut:
        del data[source.randrange(len(data)) :]
    path.write_bytes(data)
    reported(read, path)
    reported(lambda: record(bench([1.0, 2.0]), path=path))
    if reported(repair, path) == "history.newer":
        return
    after = read(path)
    assert {key: value for key, value in before.items() if key in after}.items() <= after.items()


def test_a_file_that_sqlite_cannot_read_is_retained_whole_next_to_a_new_one(tmp_path):
    data, _ = written(tmp_path / "whole.sqlite", 20)
    for name, left in (("cut", data[: -3 * _PAGE]), ("head", bytes(_PAGE) + data[_PAGE:])):
        path = tmp_path / f"{name}.sqlite"
        path.write_bytes(left)
        assert reported(read, path) == "history.corrupt"
        assert Path(repair(path).moved).read_bytes() == left
        assert record(bench([1.0, 2.0]), path=path) > 0
