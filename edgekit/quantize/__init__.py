"""See DESIGN: the quantize floor."""

from edgekit.quantize._types import Scales

__all__ = ["Scales"]
