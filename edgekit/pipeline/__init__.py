"""The steps from a configuration to a benchmarked release, built from the packages below.
Start with `Pipeline` in `pipeline`; `run.STEPS` is the list of steps, `steps` has their functions
of a `context.Context`, and `cache` holds the results.
"""
