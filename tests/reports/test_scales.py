"""Scales that constraints changed: in the terminal and on the page."""

from edgekit.quantize.scales import Change, change_rows
from edgekit.reports.terminal.quantization import changes_text

RULE = "concatenation.int8_ranges"
CHANGES = tuple(
    Change(f"tensor{n}", 0.125, 0.125 * 2 ** (3 - n / 10), RULE, ("join", f"l{n}"))
    for n in range(12)
)


def test_the_worst_are_shown_and_the_rest_is_counted():
    lines = changes_text(change_rows(CHANGES)).splitlines()
    assert lines[0].startswith("12 scales were widened")
    assert lines[2].split() == ["tensor0", "1", "0.125", "3.0", RULE, "join", "and", "1", "more"]
    assert [line.split()[0] for line in lines[2:12]] == [f"tensor{n}" for n in range(10)]
    assert lines[12] == "and 2 that lose less (--json has all)"
    (head, _, row) = changes_text(
        change_rows([Change("z", None, 1.0, RULE, ("join",))])
    ).splitlines()
    assert head.startswith("1 scale was widened")
    assert row.split() == ["z", "1", "none", "0.0", RULE, "join"]


def test_long_names_are_never_cut():
    name = "/model/" + "very_long_block/" * 8 + "Concat_output_0"
    text = changes_text(change_rows([Change(name, 1.0, 2.0, RULE, ("join",))]), width=60)
    assert name in text
