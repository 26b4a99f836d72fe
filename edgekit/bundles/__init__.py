"""Bundles: all files of a network for a board, content-addressed, stripped and signed. Start with
``pack`` in ``pack``; ``read`` and ``write`` are in ``files``.
"""
