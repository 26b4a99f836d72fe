"""Builds a request's engines on this board. Start with ``run`` in ``job``."""
