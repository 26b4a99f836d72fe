"""What this board is and does: probe, samples, power mode. Start with ``hello`` in ``identity``."""
