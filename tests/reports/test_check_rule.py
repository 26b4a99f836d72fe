"""What `edgekit explain` prints of names that mean more than one thing, or have no row."""

import pytest

from edgekit.dla.explanation import explain
from edgekit.reports.terminal.check import rule_text


@pytest.mark.parametrize("name", ["lrn", "slice", "prelu", "resize", "softmax"])
def test_the_family_follows_the_operator_of_the_same_name(name: str) -> None:
    found = explain(name)
    text = rule_text(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.index(f"ONNX {found['operator']}") < text.index(found["family_rules"]["title"])
    for rule in found["family_rules"]["rules"]:
        assert f"\n  {rule['id']}\n" in text


def test_an_operator_without_a_row_names_the_rules_that_decide() -> None:
    text = rule_text(explain("Pow"))
    assert "not in the matrix" in text
    assert "elementwise.pow_unsure" in text
    assert "None" not in text
