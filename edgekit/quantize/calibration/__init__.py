"""From inputs to INT8 scales. Start with ``calibrate`` in ``calibrate``; ``measure`` makes one
pass over the data and ``methods`` turns histograms into ranges.
"""
