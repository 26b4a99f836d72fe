"""The steps of a run; `STEPS` in `edgekit.pipeline.progress` has their order.

What the host computes is in `Work` (module `accuracy`, last of its chain); the steps that need no
board are run by `HostSteps` in `host`.
"""
