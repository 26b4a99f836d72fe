"""The steps in order, from a configuration to a benchmarked release."""

from edgekit.pipeline._progress import Progress, Quiet, Terminal
from edgekit.pipeline._steps import STEPS

__all__ = ["STEPS", "Progress", "Quiet", "Terminal"]
