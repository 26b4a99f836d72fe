"""Builds on boards as the host sees them: what each TensorRT release has, which options go
together there, the request that a board gets, trtexec's flags, and what the build made of the
plan. Start with `decide` in `options`, then `build_request` in `requests`.
"""
