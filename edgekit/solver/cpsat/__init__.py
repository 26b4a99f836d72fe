"""Placements with their running order, and timetables, stated for CP-SAT and read back.
Start with ``solve_steps`` in ``running_order``.
"""
