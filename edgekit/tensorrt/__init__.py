"""Builds on boards from the host's side: the API of each TensorRT release, valid combinations of
options, build requests, trtexec's flags, and the comparison of a build with its plan. Start with
`decide` in `options`, then `build_request` in `requests`.
"""
