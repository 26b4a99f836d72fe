"""The networks that a model can be built as: rewritten, and as it came. A tuning tries both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from edgekit.pipeline._tune_wish import Measurer
    from edgekit.placement import Ask, Plan
    from edgekit.placement._trial_space import Space

__all__ = ["CAME", "CAME_SECTION", "REWRITTEN", "Form", "Source"]

REWRITTEN, CAME = "rewritten", "as it came"
CAME_SECTION: Mapping[str, Any] = {
    "enable": "none", "disable": [], "allow_approx": [], "always": False,
}  # fmt: skip
"""``rewrite`` of a configuration whose network stays as it came."""


class Source(Protocol):
    """Knows the other network and measures its plans; asked when that is tried, which takes time.

    Attributes:
        name: :data:`REWRITTEN` or :data:`CAME`.
        start: Its plan to begin with; an EdgekitError where it has none.
        ask: What is placed.
        model: Its digest.
        again_s: As a measurer's.
    """

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> Plan: ...

    @property
    def ask(self) -> Ask: ...

    @property
    def model(self) -> str: ...

    @property
    def again_s(self) -> float: ...

    def measure(self, plan: Plan) -> Mapping[str, Any]:
        """As ``Measurer.measure``."""


@dataclass
class Form:
    """One of the networks.

    Attributes:
        name: :data:`REWRITTEN` or :data:`CAME`; empty where there is one network only.
        ask: What is placed.
        measurer: Measures its plans.
        model: Digest of what is placed.
    """

    name: str
    ask: Ask
    measurer: Measurer | Source
    model: str = ""

    @cached_property
    def space(self) -> Space:
        """The placements."""
        from edgekit.placement._trial_space import Space

        return Space(self.ask.prepared())

    @property
    def able(self) -> dict[str, bool]:
        """By layer, whether a DLA can run it."""
        return {name: verdict.placeable for name, verdict in self.ask.judgement.verdicts.items()}
