"""How many examples a property is tried with: all with --all, a third in every other run."""

import os


def tries(examples: int) -> int:
    """Hypothesis' ``max_examples`` of this run, of so many with --all."""
    # which --all sets before any test is imported
    return examples if os.environ.get("EDGEKIT_FAULTS") == "all" else max(5, examples // 3)
