"""See DESIGN: the targets floor."""

from edgekit.targets._types import Dla, Dram, Gpu, PowerMode, Target

__all__ = ["Dla", "Dram", "Gpu", "PowerMode", "Target"]
