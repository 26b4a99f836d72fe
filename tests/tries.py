"""How many examples a property is tried with: all with --all, a third in every other run."""

import os

# --all sets it before any test is imported
_ALL = os.environ.get("EDGEKIT_FAULTS") == "all"


def tries(examples: int) -> int:
    """Hypothesis' ``max_examples`` of this run, of so many with --all."""
    return examples if _ALL else max(5, examples // 3)
