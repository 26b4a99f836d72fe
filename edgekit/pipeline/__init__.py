"""The steps in order, from a configuration to a benchmarked release: check, rewrite, calibrate,
plan, build, bundle, deploy, infer, bench, report. Start with `Pipeline` in `pipeline`; each
step is a module of `steps`, and `cache` holds the results.
"""
