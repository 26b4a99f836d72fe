"""YAML with positions, without YAML 1.1's traps."""

import pytest

from edgekit.config.positions import parse_yaml
from edgekit.errors import ConfigError


def test_scalars_are_what_they_look_like():
    text = "a: no\nb: yes\nc: true\nd: 10\ne: 1.5e3\nf: null\ng: 0x10\nh: 15W\ni: '012'\nj: -3\n"
    document = parse_yaml(text, "f.yaml")
    assert document.value == {
        "a": "no",
        "b": "yes",
        "c": True,
        "d": 10,
        "e": 1500.0,
        "f": None,
        "g": "0x10",
        "h": "15W",
        "i": "012",
        "j": -3,
    }
    assert document.problems == ()


@pytest.mark.parametrize("scalar", ["012", "22:22", "1_000", "0755", "1:30:00"])
def test_ambiguous_numbers_are_refused_with_their_place(scalar):
    document = parse_yaml(f"a:\n  b: {scalar}\n", "f.yaml")
    (problem,) = document.problems
    assert problem.where == "f.yaml:2:6"
    assert scalar in problem.message
    assert "quotes" in problem.hint


def test_repeated_key_names_both_places():
    document = parse_yaml("a: 1\nb: 2\na: 3\n", "f.yaml")
    (problem,) = document.problems
    assert problem.where == "f.yaml:3:1"
    assert "line 1" in problem.message
    assert document.value["a"] == 1


@pytest.mark.parametrize(
    "text", ["a: [1, 2", "a: b: c", "\tx: 1", "a: 'x", "%YAML 9.9\n---\nx: 1", "- a\nb: 1"]
)
def test_broken_yaml_is_one_error_with_a_position(text):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "f.yaml")
    assert caught.value.code == "config.syntax"
    assert caught.value.where.startswith("f.yaml:")


def test_a_bracket_that_is_never_closed_is_called_that():
    with pytest.raises(ConfigError, match="the file ends before a } or ]"):
        parse_yaml("a: {b: [1, 2", "f.yaml")


def test_alias_bomb_is_refused():
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    for i in range(1, 9):
        lines.append(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]")
    with pytest.raises(ConfigError) as caught:
        parse_yaml("\n".join(lines), "f.yaml")
    assert "too large" in caught.value.message


def test_deep_nesting_is_refused():
    with pytest.raises(ConfigError):
        parse_yaml("[" * 3000 + "]" * 3000, "f.yaml")


def test_where_falls_back_to_the_nearest_known_part():
    document = parse_yaml("a:\n  b: [1, 2]\n", "f.yaml")
    assert document.where(("a", "b", 1)) == "f.yaml:2:10"
    assert document.where(("a", "b", 7, "x")) == "f.yaml:2:3"
    assert document.where(("nowhere",)) == "f.yaml:1:1"
