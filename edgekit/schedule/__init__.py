"""Several networks on a board: their placements, and when each of their parts runs. Start with
``place_several`` in ``placing``.
"""
