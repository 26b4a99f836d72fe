"""The builder's sentences and our rules."""

import pytest

from edgekit.buildlog.comparison import load_messages
from edgekit.dla.rules import load_rules


def test_every_rule_and_source_exists() -> None:
    known = set(load_rules().rules)
    messages = load_messages()
    for message in messages.sentences:
        assert message.rules
        assert set(message.rules) <= known
        assert message.sources
        assert message.seen
    assert {rule for rules in messages.silent.values() for rule in rules} <= known


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("DLA cores do not support AVG Reduce operation.", "reduce.function"),
        ("DLA cores do not support DIV ElementWise operation.", "elementwise.div"),
        ("DLA cores do not support FLOOR_DIV ElementWise operation.", "elementwise.function"),
        ("Activation type: HARD_SIGMOID is not supported on DLA", "activation.function"),
        ("DLA only supports concatenation on the C dimension.", "concatenation.axis"),
        ("Layer x will not run on DLA because int8 scale is missing.", "general.type"),
        ("DLA only supports FP16 and Int8 precision type", "general.type"),
    ],
)
def test_sentences(sentence: str, rule: str) -> None:
    assert rule in load_messages().rules([sentence])


def test_no_words_and_unknown_words() -> None:
    messages = load_messages()
    assert messages.rules([], "CONSTANT") == ("general.constant",)
    assert messages.rules([], "SHUFFLE") == ()
    assert messages.rules(["DLA is closed on Sundays."], "CONSTANT") == ()
