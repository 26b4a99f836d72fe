"""The steps in order, from a configuration to a benchmarked release."""

from edgekit.pipeline._cache import Cache
from edgekit.pipeline._pipeline import Pipeline, RunResult
from edgekit.pipeline._progress import Progress, Quiet, Terminal
from edgekit.pipeline._steps import STEPS

__all__ = ["STEPS", "Cache", "Pipeline", "Progress", "Quiet", "RunResult", "Terminal"]
