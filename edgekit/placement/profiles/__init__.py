"""Measured times: profiles and build logs of engines, and the cost model over them.
Start with ``read_profile`` in ``reader`` and ``measured_model`` in ``estimation``.
"""
