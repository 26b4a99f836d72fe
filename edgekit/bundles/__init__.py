"""Bundles: everything a board needs of a network, content-addressed, stripped and signed.
Start with ``pack`` in ``pack``; ``read`` and ``write`` are in ``files``.
"""
