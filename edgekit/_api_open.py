"""How the functions of ``edgekit._api`` open what they work on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline import Pipeline

__all__ = ["open_pipeline", "path_of"]


def open_pipeline(
    config: str | Path | Config, options: dict[str, Any], **settings: Any
) -> Pipeline:
    """Returns the pipeline of a configuration; ``options`` win over what its file says."""
    from edgekit.config import open_config
    from edgekit.pipeline import Pipeline

    return Pipeline(open_config(config, **options), **settings)


def path_of(path: str | Path | None) -> Path | None:
    """Returns a path that somebody may have given as text."""
    return None if path is None else Path(path)
