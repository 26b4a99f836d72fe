"""The double of tensorrt_lean."""

from _edgekit_double import become

become("tensorrt_lean", "lean")
