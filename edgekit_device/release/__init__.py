"""Bundles installed on the board. Start with ``stage`` and ``switch`` in ``releases``."""
