"""Offences of a process are also written to the file that a board's settings name."""

import json
import os
from pathlib import Path


def record(text: str) -> None:
    """Appends `text` to the settings' `violations` file, where there is one."""
    named = os.environ.get("EDGEKIT_TEST_TENSORRT_SETTINGS")
    path = json.loads(Path(named).read_text()).get("violations") if named else None
    if path:
        with open(path, "a", encoding="utf-8") as out:
            out.write(text + "\n")
