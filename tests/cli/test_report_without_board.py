"""``edgekit report`` without its board."""

import pytest

from edgekit.errors import BoardError, EnvironmentLack
from edgekit.pipeline.report_page import hinting_page


@pytest.mark.parametrize("ran", [True, False])
def test_a_board_that_is_off_takes_no_page_away(tmp_path, ran):
    known = tmp_path / "report.json"
    if ran:
        known.write_text("{}")
    with pytest.raises(EnvironmentLack) as caught, hinting_page(known):
        raise EnvironmentLack("cannot reach it", code="board.unreachable", hint="is it on?")
    assert caught.value.hint.startswith("is it on?")
    assert (f"edgekit report {known}" in caught.value.hint) is ran


def test_a_board_that_answers_no_more_takes_no_page_away(tmp_path):
    known = tmp_path / "report.json"
    known.write_text("{}")
    with pytest.raises(BoardError) as caught, hinting_page(known):
        raise BoardError("no answer", code="board.timeout")
    assert f"edgekit report {known}" in caught.value.hint
