"""Computes nodes in float64, for proofs and derived weights. Start with ``evaluate`` in
``evaluate``; other modules have the kernels.
"""
