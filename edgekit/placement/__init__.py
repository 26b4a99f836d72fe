"""See DESIGN: the placement floor."""

from edgekit.placement._types import (
    OBJECTIVES,
    Loadable,
    Options,
    Pin,
    PlacedLayer,
    Plan,
    Predicted,
    Share,
)

__all__ = ["OBJECTIVES", "Loadable", "Options", "Pin", "PlacedLayer", "Plan", "Predicted", "Share"]
