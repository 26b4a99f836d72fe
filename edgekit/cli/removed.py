"""Commands and options that earlier versions had, and what to do instead: their error's hint."""

from __future__ import annotations

REMOVED = {
    "bundle push": "edgekit deploy and edgekit fleet deploy send bundles over SSH; "
    "edgekit bundle CONFIG --full FILE writes one file to copy",
    "plan --problem": "edgekit places networks; state other problems with OR-Tools (CP-SAT)",
    "trace --dla-stats": "leave it out: per-layer times of a DLA come from --profile",
    "fleet export --mirror": "leave it out: Ansible copies what a board lacks",
}
"""By the words as they are typed after ``edgekit``."""
