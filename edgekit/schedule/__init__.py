"""Several networks on one board: their placements, and when each of their parts runs.
Start with ``place_several`` in ``placing``.
"""
