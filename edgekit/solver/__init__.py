"""Placement problems without their networks: nodes with costs on devices, loadables with limits.
A relaxation bounds and nearly always decides; exact searches do what is left.
Start with ``minimise`` in ``optimiser``; what a problem is stands in ``problem``.
"""
