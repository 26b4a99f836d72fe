"""Lists within sentences."""

from edgekit._listed import listed


def test_what_is_left_out_is_counted():
    assert listed("abcde", 2) == "a, b and 3 more"
    assert listed(iter("ab"), 2) == "a, b"
    assert listed((), 2) == ""
