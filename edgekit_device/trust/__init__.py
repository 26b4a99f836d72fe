"""Whose bundles a board accepts. Start with ``check_bundle`` in ``bundle``."""
