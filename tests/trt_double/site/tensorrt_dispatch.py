"""The double of tensorrt_dispatch."""

from _edgekit_double import become

become("tensorrt_dispatch", "dispatch")
