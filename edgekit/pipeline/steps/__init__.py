"""The functions of a run's steps on a `Context`; `run.STEPS` has their order. From bottom to top:
`load`, `judge`, `rewrite`, `calibrate`, `plan`, `method`, `accuracy`, `build`, `bundle`, `deploy`,
`bench`.
"""
