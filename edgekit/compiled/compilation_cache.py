"""Remembers the first compilation of a network structure: networks with the same structure and
other weights use its plan and engines.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.files import cache_folder, read_file, write_atomically
from edgekit.pytorch import export_cache
from edgekit.pytorch.document import Exported

if TYPE_CHECKING:
    from edgekit.compiled.parts import Building

_LARGEST = 1 << 24


def key(exported: Exported, name: str, building: Building) -> str:
    """Returns the key of a structure's compilation."""
    structure = exported.model_copy(
        update={
            # all that may differ between networks of one structure: paths, weights, the example's
            # ranges
            "file": "",
            "weights": "0" * 64,
            "cached": False,
            "agreement": None,
            "inputs": [tensor.model_copy(update={"range": None}) for tensor in exported.inputs],
            "left": [replace(call, file="") for call in exported.left],
        }
    )
    return export_cache.key(
        repr(structure),
        name,
        sorted(building.options.items()),
        sorted(building.pins.items()),
        building.board,
        str(building.out.absolute()),
    )


def find(name: str) -> Exported | None:
    """Returns the export that was compiled first; None if its file is gone."""
    try:
        first = Exported.model_validate_json(read_file(_file(name), _LARGEST))
    # a damaged file is a cache miss
    except (OSError, ValueError):
        return None
    # the export's cache may have been cleared
    return first if Path(first.file).is_file() else None


def remember(name: str, exported: Exported) -> None:
    """Remembers a compiled export."""
    path = _file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as temporary:
        temporary.write_text(exported.model_dump_json(by_alias=True, exclude_unset=True))


def _file(name: str) -> Path:
    return cache_folder() / "compiled" / f"{name}.json"
