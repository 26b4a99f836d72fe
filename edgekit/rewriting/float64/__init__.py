"""Nodes computed in float64, for proofs and for weights that are derived from others. Start
with ``evaluate`` in ``evaluate``; other modules have the kernels.
"""
