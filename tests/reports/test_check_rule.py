"""What `edgekit explain` prints: complete, in eighty columns."""

import dataclasses

import pytest

from edgekit.dla.explanation import explain
from edgekit.dla.rules import load_rules
from edgekit.reports.terminal.rule import rule_text


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", ["lrn", "slice", "prelu", "resize", "softmax"])
def test_the_family_follows_the_operator_of_the_same_name(name: str) -> None:
    found = explain(name)
    text = rule_text(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.index(f"ONNX {found.operator}") < text.index(found.family_rules.title)
    for rule in found.family_rules.rules:
        assert f"\n  {rule.id}\n" in text


def test_an_operator_without_a_row_names_the_rules_that_decide() -> None:
    text = rule_text(explain("Pow"))
    assert "not in the matrix" in text
    assert "elementwise.pow_unsure" in text
    assert "None" not in text


@pytest.mark.parametrize("name", [*load_rules().rules, "HardSwish", "Conv"])
def test_every_rule_and_operator_reads_well(name):
    found = explain(name)
    text = rule_text(found)
    assert max(map(len, text.splitlines())) <= 80
    words = flat(text)
    for said in (found.text, found.fix, getattr(found, "limit", "")):
        assert flat(said) in words
    for source in found.sources:
        assert flat(source.title) in words


def test_a_rules_scope_is_reported():
    rule = explain("softmax.generation")
    text = flat(rule_text(dataclasses.replace(rule, since="8.6", until="10.8")))
    assert "TensorRT 8.6 up to, not including, 10.8" in text
    assert "Xavier" in text
    assert "Orin)" not in text.split("holds for")[1].split("effect")[0]
