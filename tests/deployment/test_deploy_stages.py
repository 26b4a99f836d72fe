"""Lines that say how far a command is, before its answer."""

from __future__ import annotations

import itertools
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.deployment.answers import StagedOutput
from edgekit.deployment.transport import Completed
from tests.tries import tries

STAGES = [("open", None), ("measure", 3.0)]


@given(st.lists(st.integers(0, 200), max_size=6))
@settings(max_examples=tries(30))
def test_stages_are_reported_wherever_the_output_is_cut(cuts: list[int]) -> None:
    answer = json.dumps({"schema": "x", "stage": "not one of them"}).encode()
    lines = [json.dumps({"stage": name, "left_s": left}).encode() for name, left in STAGES]
    whole = b"\n".join([b"a login shell's words", *lines, answer]) + b"\n"
    reported: list[tuple[str, float | None]] = []
    staged = StagedOutput(lambda *said: reported.append(said))
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    for first, last in itertools.pairwise(places):
        staged.put(whole[first:last])
    staged.put(b"")
    assert reported == STAGES
    retained = staged.completed(Completed(0, b"", b"why")).out.split(b"\n")
    assert retained[:2] == [b"a login shell's words", answer]


@given(st.binary(max_size=80))
@settings(max_examples=tries(40))
def test_a_stage_that_is_none_is_left_to_the_answers_reader(rest: bytes) -> None:
    staged = StagedOutput(lambda stage, left: None)
    staged.put(b'{"stage"' + rest)
    staged.put(b"")
    staged.completed(Completed(0, b"", b""))


def test_an_answer_without_end_is_not_retained() -> None:
    staged = StagedOutput(lambda stage, left: None, most_out=1000)
    for _ in range(50):
        staged.put(b"x" * 100 + b"\n")
    staged.put(b"")
    assert len(staged.completed(Completed(0, b"", b"")).out) < 1100
