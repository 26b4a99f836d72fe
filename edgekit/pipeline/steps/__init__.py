"""What the steps of a run compute, as functions of a `Context`; `run.STEPS` has their order. From
bottom to top: `load`, `judge`, `rewrite`, `calibrate`, `plan`, `method`, `accuracy`, `build`,
`bundle`, `deploy`, `bench`.
"""
