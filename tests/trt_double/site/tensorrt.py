"""The double of tensorrt."""

from _edgekit_double import become

become("tensorrt", "full")
