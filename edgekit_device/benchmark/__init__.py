"""Measures a loaded model on this board. Start with ``bench`` in ``measure``."""
