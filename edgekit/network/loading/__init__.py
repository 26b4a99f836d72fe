"""Loads a user's network into a checked ``Model``: start with ``load`` in ``load``."""
