"""``edgekit bench --require-valid`` and ``report``: what their last line says."""

import pytest

from edgekit.cli.measurements import _invalid
from edgekit.cli.steps import page_without_board
from edgekit.errors import EnvironmentLack


def test_every_reason_is_named():
    reasons = [
        {"code": f"bench.{word}", "message": f"{word} too short", "remedy": f"longer {word}"}
        for word in ("warmup", "duration")
    ]
    error = _invalid({"name": "toy", "verdict": {"status": "INVALID", "reasons": reasons}})
    assert error.message.endswith("warmup too short; duration too short")
    assert error.hint == "longer warmup; longer duration"


@pytest.mark.parametrize("ran", [True, False])
def test_a_board_that_is_off_takes_no_page_away(tmp_path, ran):
    known = tmp_path / "report.json"
    if ran:
        known.write_text("{}")
    with pytest.raises(EnvironmentLack) as caught, page_without_board(known):
        raise EnvironmentLack("cannot reach it", code="board.unreachable", hint="is it on?")
    assert caught.value.hint.startswith("is it on?")
    assert (f"edgekit report {known}" in caught.value.hint) is ran
