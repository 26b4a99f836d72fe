"""Numbers of the rules, for those who build what keeps to them."""

from __future__ import annotations

from functools import cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge

__all__ = ["exceptions", "limit"]


@cache
def limit(rule: str) -> tuple[int, int]:
    """Returns the smallest and the largest value of a rule's range.

    It is the range that the rule allows; for a rule that shuts a range out
    ("deconvolution.square_kernel"), that one. ``exceptions`` lists what is allowed besides.

    Args:
        rule: Identifier of a rule with a range, as "pooling.window".

    Raises:
        KeyError: No rule of that name has a range.
    """
    for check in _checks(rule):
        for key in ("range", "outside"):
            if key in check:
                low, high = check[key]
                return int(low), int(high)
    raise KeyError(rule)


@cache
def exceptions(rule: str) -> frozenset[tuple[int, ...]]:
    """Returns the values that a rule allows one by one, besides its range.

    Args:
        rule: Identifier of a rule, as "deconvolution.kernel".

    Raises:
        KeyError: There is no rule of that name.
    """
    listed = [item for check in _checks(rule) for item in check.get("one_of", ())]
    return frozenset(tuple(int(side) for side in item) for item in listed)


def _checks(rule: str) -> list[dict[str, Any]]:
    """The check of a rule, or its alternatives."""
    family = rule.split(".", maxsplit=1)[0]
    document = read_knowledge(data_folder("dla") / f"{family}.yaml")
    for item in document["rules"]:
        if item["id"] == rule:
            check = item.get("check", {})
            return list(check.get("any", [check]))
    raise KeyError(rule)
