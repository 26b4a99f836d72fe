"""How much a run tries: all with --all, a part in every other run."""

import os


def exhaustive() -> bool:
    """Whether the run is with --all, which sets this before any test is imported."""
    return os.environ.get("EDGEKIT_FAULTS") == "all"


def tries(examples: int) -> int:
    """Hypothesis' ``max_examples`` of a property: a third without --all."""
    return examples if exhaustive() else max(5, examples // 3)
