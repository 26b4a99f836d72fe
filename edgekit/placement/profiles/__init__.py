"""Measured times: profiles and build logs of engines, the cost model over them, and the best
plan that a log alone gives. Start with ``read_profile`` in ``reader`` and ``measured_model``
in ``estimation``.
"""
