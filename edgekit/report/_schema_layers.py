"""Parts of the report's schema that are about layers."""

from __future__ import annotations

from pydantic import Field

from edgekit.report._schema_parts import Device, Facts, Micro, Part

__all__ = ["Layer", "MeasuredPart", "Why"]


class LayerReason(Part):
    """A rule that keeps a layer off the DLA."""

    rule: str
    message: str
    fix: str = ""


class Layer(Part):
    """A layer in graph order; ``number`` counts from 1."""

    number: int = Field(ge=1)
    name: str
    op: str = ""
    shape: list[list[int]] = Field(default=[])
    on_gpu: Facts | None = None
    kind: str
    nodes: list[str] = Field(default=[])
    device: Device
    precision: str
    segment: int
    dla_ok: bool | None
    certainty: str
    reasons: list[LayerReason]
    macs: int
    predicted_us: Micro
    measured: Facts | None = Field(default=None, description="{clock, us}")
    within: Facts | None = Field(
        default=None, description="what was timed as a whole with it in: {name, clock, us, layers}"
    )


class MeasuredPart(Part):
    """What was timed as a whole: a loadable or a fusion of layers."""

    name: str
    device: Device
    segment: int = 0
    layers: list[str]
    us: Micro
    clock: str = ""


class WhyLayer(Part):
    """A layer against a rule."""

    name: str
    message: str
    found: str
    limit: str


class Why(Part):
    """A rule with the layers that it keeps off the DLA."""

    rule: str
    count: int
    sources: list[str]
    fixes: list[str]
    layers: list[WhyLayer]
