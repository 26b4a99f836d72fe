"""Fleets: one bundle for many boards, in waves that stop and go back when too many fail; what each
board serves (``boards``), and late boards brought to what they are meant to serve (``apply``).
Start with ``Fleet`` in ``rollout``; ``load_inventory`` in ``inventory`` says which boards.
"""
