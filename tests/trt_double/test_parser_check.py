"""scripts/check_parser.py: the rows of known differences, and a registry without the wheels."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.trt_double.double import module

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import _parser_known

    return _parser_known


def difference(**other: str) -> dict[str, str]:
    given = {"check": "kinds", "operator": "Pad", "where": "swin_t: pad_1", "ours": "SLICE"}
    return {**given, "theirs": "nothing", **other}


def test_a_difference_without_a_row_and_a_row_without_a_difference_are_found(
    known: ModuleType,
) -> None:
    row = known.Row(check="kinds", operator="Pad", ours="SLICE", kind="newer", reason="it is")
    other = known.Row(check="map", operator=["Pad", "Max"], kind="definition", reason="it is")
    rare = known.Row(check="build", kind="rtx", reason="it is", rare=True)
    rows = [row, other, rare]
    stranger = difference(operator="Conv")
    unknown, left = known.sorted_out([difference(), stranger], rows, whole=True)
    assert (unknown, left) == ([stranger], [other])
    # of a part of the models no row is needless
    assert known.sorted_out([difference()], rows, whole=False) == ([], [])


def test_every_known_difference_has_its_reason(known: ModuleType) -> None:
    rows = known.known()
    assert rows
    assert all(len(row.reason) > 20 for row in rows)


def test_without_wheels_the_check_passes_and_says_so(
    known: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import check_parser

    def nothing(folder: Path) -> None:
        raise check_parser.Unavailable("no matching distribution")

    monkeypatch.setattr(check_parser, "fetch", nothing)
    monkeypatch.setattr("sys.argv", ["check_parser.py"])
    assert check_parser.main() == 0
    assert capsys.readouterr().out.startswith("check_parser: not run, no wheels (no matching")


def test_the_double_answers_every_question_of_the_check(known: ModuleType) -> None:
    import _parser_questions

    found = _parser_questions.ask_all(module("11.4.0"))
    assert len(found) >= 37
    assert [name for name, answer in found.items() if str(answer).startswith("raises")] == []
