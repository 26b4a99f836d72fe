"""What a case says: a rule, a layer just inside its limit, one just outside, and where it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgekit.targets.releases import parse_version
from tests.dla.limits.sheet import Branch
from tests.dla.one_layer import ORIN, XAVIER

# the boards' usual releases, in both precisions
USUAL = ((ORIN, "10.3"), (XAVIER, "8.5.2"), (ORIN, "8.6.12"))
# just before and after a release that changed something, in INT8
BOUNDS = (
    *(
        (ORIN, bound)
        for bound in ("8.4.3", "8.5", "8.5.1", "8.5.2", "8.5.10", "8.6", "8.6.11", "10.7")
    ),
    *((XAVIER, bound) for bound in ("7.1.3", "8.0.1", "8.4.3")),
)


@dataclass(frozen=True)
class Setting:
    """What a model is checked for."""

    board: str
    tensorrt: str
    precision: str

    def __str__(self) -> str:
        return f"{self.board} {self.tensorrt} {self.precision}"


SETTINGS = (
    *(Setting(*usual, precision) for usual in USUAL for precision in ("fp16", "int8")),
    *(Setting(*bound, "int8") for bound in BOUNDS),
    # strongly typed: without Q/DQ nodes it has FP16 only
    Setting(ORIN, "11.4.1", "fp16"),
)


@dataclass(frozen=True)
class Where:
    """A set of settings."""

    holds: Callable[[Setting], bool]

    def __and__(self, other: Where) -> Where:
        return Where(lambda setting: self.holds(setting) and other.holds(setting))

    def __or__(self, other: Where) -> Where:
        return Where(lambda setting: self.holds(setting) or other.holds(setting))

    def __invert__(self) -> Where:
        return Where(lambda setting: not self.holds(setting))


def since(version: str) -> Where:
    """This TensorRT release and later ones."""
    return Where(lambda setting: parse_version(setting.tensorrt) >= parse_version(version))


ALWAYS = Where(lambda _: True)
NEVER = ~ALWAYS
ON_ORIN = Where(lambda setting: setting.board == ORIN)
ON_XAVIER = ~ON_ORIN
IN_INT8 = Where(lambda setting: setting.precision == "int8")
IN_FP16 = ~IN_INT8


@dataclass(frozen=True)
class Case:
    """Both sides of one limit.

    Attributes:
        rule: Id of the rule.
        inside: A layer just inside the limit.
        outside: A layer just outside.
        found: What the reason's ``found`` holds.
        limit: What its ``limit`` holds.
        breaks: Where the rule is in force; elsewhere the outside has no such reason.
        inside_ok: Where the inside may run on a DLA (elsewhere another rule refuses it).
        outside_ok: The same of the outside where the rule is not in force; ``inside_ok`` when None.
        risk: The rule leaves ``ok`` true and makes the verdict disputed.
        disputed: Where every reason of the refusal is one on which the sources disagree.
        tried: The settings to check; the others are not this case's business.
        kind: The layer judged where the node becomes several.
        opset: The model's.
    """

    rule: str
    inside: Branch
    outside: Branch
    found: str
    limit: str
    breaks: Where = ALWAYS
    inside_ok: Where = ALWAYS
    outside_ok: Where | None = None
    risk: bool = False
    disputed: Where = NEVER
    tried: Where = ALWAYS
    kind: str = ""
    opset: int = 17
