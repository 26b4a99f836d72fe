"""Several networks on one board: their placements, and when each of their parts runs.
Start with ``placing.place_several`` in ``networks``, then ``place_several`` in ``placing``.
"""
