"""The steps of a run, a module each, in the order check, rewrite, calibrate, plan, build, bundle,
deploy, bench. What the host computes is in `Work` (module `accuracy`, last of its chain); the
steps that need no board are run by `HostSteps` in `host`.
"""
