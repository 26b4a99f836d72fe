"""Lists within sentences."""

from edgekit.text import count_all, counted, listed, sentence


def test_what_is_left_out_is_counted():
    assert listed("abcde", 2) == "a, b and 3 more"
    assert listed(iter("ab"), 2) == "a, b"
    assert listed((), 2) == ""


def test_a_number_stands_with_its_noun():
    assert [counted(n, "layer") for n in (0, 1, 2000)] == ["0 layers", "1 layer", "2,000 layers"]


def test_all_of_a_number_is_said_as_people_say_it():
    assert count_all(1, "layer") == "the only layer"
    assert count_all(2, "layer") == "both layers"
    assert count_all(3, "layer") == "all 3 layers"


def test_a_note_begins_with_a_capital_letter_unless_it_begins_with_a_name():
    assert sentence("the clock is not known") == "The clock is not known"
    for same in (
        "trtexec was not asked",
        "conv_1 has no scale",
        "log.txt: 2 rows",
        "Two",
        "2 rows",
    ):
        assert sentence(same) == same
