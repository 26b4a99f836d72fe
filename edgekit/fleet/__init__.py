"""Fleets: one bundle for many boards, in waves that stop and go back when too many fail.
Start with ``Fleet`` in ``rollout``; ``load_inventory`` in ``inventory`` says which boards.
"""
