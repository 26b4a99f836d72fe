"""This board's facts and state: probe, samples, power mode. Start at ``hello`` of ``identity``."""
