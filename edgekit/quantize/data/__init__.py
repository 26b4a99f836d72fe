"""The user's own calibration data. Start with ``load_data`` in ``load``; other modules read
one kind of data each.
"""
