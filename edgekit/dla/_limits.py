"""Numbers of the rules, for those who build what keeps to them."""

from __future__ import annotations

from functools import cache

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge

__all__ = ["limit"]


@cache
def limit(rule: str) -> tuple[int, int]:
    """Returns the smallest and the largest value that a rule's range allows.

    Args:
        rule: Identifier of a rule with a range, as "pooling.window".

    Raises:
        KeyError: No rule of that name has a range.
    """
    family = rule.split(".", maxsplit=1)[0]
    document = read_knowledge(data_folder("dla") / f"{family}.yaml")
    for item in document["rules"]:
        if item["id"] == rule and "range" in item.get("check", {}):
            low, high = item["check"]["range"]
            return int(low), int(high)
    raise KeyError(rule)
