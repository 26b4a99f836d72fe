"""The steps from a configuration to a benchmarked release. Start with `Pipeline` in `pipeline`;
`progress.STEPS` has their order, `steps` what each does, and `cache` holds the results.
"""
