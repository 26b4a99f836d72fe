"""Placements with their running order, and timetables, as CP-SAT models and answers.
Start with ``solve_steps`` in ``running_order``.
"""
