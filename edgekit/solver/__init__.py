"""Placement problems without their networks: nodes with costs on devices, loadables with limits.
A relaxation gives the bound and nearly always the optimum; exact searches close the remaining gap.
Start with ``minimise`` in ``optimiser``; ``problem`` defines a problem.
"""
