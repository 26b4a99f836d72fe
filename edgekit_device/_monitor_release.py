"""/etc/nv_tegra_release: which Jetson Linux (L4T) a board has, R28 to R39 and what comes after.

The first line is ``# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64,
DATE: Wed Jan  8 01:49:37 UTC 2025``; from R36 on ``KERNEL_VARIANT`` and
``TARGET_USERSPACE_LIB_DIR`` stand below it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Optional

from ._probe_files import text_of

__all__ = ["parse_release", "release_warning"]

_RELEASE = re.compile(r"^#\s*R(\d{1,4}) \(release\), REVISION: (\d{1,4}(?:\.\d{1,4}){0,3})", re.M)
_FIELD = re.compile(r"(GCID|BOARD|EABI|DATE): ([^,\n]{1,80})")
_BELOW = re.compile(r"^(KERNEL_VARIANT|TARGET_USERSPACE_LIB_DIR[A-Z_]*)=(\S{1,200})$", re.M)


def parse_release(text: str) -> Optional[Dict[str, str]]:
    """What the file says; None where it has another form.

    Returns:
        "l4t" ("36.4.3"), "major" and, in lower case, the fields that are there ("gcid", "board",
        "eabi", "date", "kernel_variant", ...).
    """
    found = _RELEASE.search(text)
    if found is None:
        return None
    line = text[found.start() :].split("\n", 1)[0]
    fields = [*_FIELD.findall(line), *_BELOW.findall(text)]
    said = {name.lower(): value.strip() for name, value in fields}
    return {"l4t": "{}.{}".format(*found.groups()), "major": found.group(1), **said}


def release_warning(system: Path) -> str:
    """Says that the file is there but has a form that nobody knows; else ""."""
    text = text_of(system / "etc/nv_tegra_release")
    if not text.strip() or parse_release(text) is not None:
        return ""
    return "/etc/nv_tegra_release has a form that is not known: {!r}".format(text[:80])
