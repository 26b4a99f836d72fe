"""Turns a network's raw maps into boxes, masks, keypoints or text. Start with ``detect`` in
``detect``.
"""
