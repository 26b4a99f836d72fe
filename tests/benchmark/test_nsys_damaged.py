"""Exports that are damaged, or none."""

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import DataError
from tests.benchmark.nsys_export import Writer, engine_run
from tests.benchmark.test_nsys import traced
from tests.tries import tries


def refused(path):
    with pytest.raises(DataError) as caught:
        traced(path, path.with_suffix(".json"))
    assert not path.with_suffix(".json").exists()
    return caught.value.code


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "nsys.form"),
        (b"SQLite format 3\0", "nsys.damaged"),
        (b"QDSTRM", "nsys.form"),
        (b"SQLite format 3\0" + bytes(4096), "nsys.damaged"),
    ],
)
def test_what_is_no_database_is_reported(content, code, tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    assert refused(path) == code


def test_another_program_s_database_is_reported(tmp_path):
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE users (name TEXT)")
    db.close()
    assert refused(path) == "nsys.unknown"
    assert refused(tmp_path / "missing.sqlite") == "nsys.unreadable"


def test_values_of_any_type_are_read(tmp_path):
    path = tmp_path / "a.sqlite"
    with Writer(path) as out:
        for start, end in (
            (1, None),
            ("text", 5),
            (2.5, 9),
            (b"blob", 1),
            (-4, 4),
            (7, 3),
            (1 << 62, 1),
        ):
            out.db.execute(
                "CREATE TABLE IF NOT EXISTS NVTX_EVENTS (start, end, eventType, text, "
                "globalTid, textId, domainId)"
            )
            out.put("NVTX_EVENTS", start, end, 59, "r", "nobody", None, b"\xff")
        out.db.execute(
            "CREATE TABLE SOC_METRICS (rawTimestamp, timestamp, typeId, metricId, value)"
        )
        out.put("TARGET_INFO_SOC_METRICS", 1, 1, "SoC Metrics", 2, "DLA0 Active")
        for value in (5, "text", b"\xff", None, 1e999, 1 << 62):
            out.put("SOC_METRICS", 1, 1, 1, 2, value)
        out.put("SOC_METRICS", 1, "now", 1, 2, 5)
        out.put("SOC_METRICS", 1, 1, 1, b"", 5)
    document, _, _ = traced(path, tmp_path / "t.json")
    # the one that never ended; what ends before it begins is none
    assert sum(e["name"] == "r" for e in document["traceEvents"]) == 1
    assert sum(e["name"] == "DLA0 Active" for e in document["traceEvents"]) == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = engine_run(tmp_path_factory.mktemp("nsys") / "whole.sqlite")
    return path.read_bytes()


@settings(max_examples=tries(40))
@given(data=st.data())
def test_a_damaged_export_is_an_error_or_a_sound_trace(data, whole, tmp_path_factory):
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(len(content) // 2, len(content))) :]
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / "a.sqlite"
    path.write_bytes(content)
    code = None
    try:
        traced(path, folder / "t.json")
    except DataError as error:
        code = error.code
    assert code is None or code.startswith("nsys.")
    assert (code is None) == (folder / "t.json").exists()
