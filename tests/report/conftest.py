"""Lets the report's tests use the bench floor's hand-made plan."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
