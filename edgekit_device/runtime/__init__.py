"""Loads a bundle or release and runs it. Start with ``load`` in ``model``."""
