"""The steps from a configuration to a benchmarked release, composed of what the packages below do.
Start with `Pipeline` in `pipeline`; `run.STEPS` is the list of steps, `steps` has what each
computes of a `context.Context`, and `cache` holds the results.
"""
