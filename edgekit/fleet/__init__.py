"""Fleets: rolls out one bundle to many boards in waves, and rolls back if too many boards fail
(``rollout``); lists the releases that boards serve (``boards``); and updates boards that missed a
rollout (``apply``). Start with ``Fleet`` in ``rollout``; ``load_inventory`` in ``inventory`` reads
the boards.
"""
