"""See DESIGN: the dla floor."""

from edgekit.dla._types import Judgement, LoadableCandidate, MemoryNeed, Reason, Verdict

__all__ = ["Judgement", "LoadableCandidate", "MemoryNeed", "Reason", "Verdict"]
