"""What every section of the configuration is, and a type that several have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FilePath", "IsPath", "Name", "Positive", "Section"]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class IsPath:
    """Marks a key whose value is a path, relative to the configuration's file."""


FilePath = Annotated[str | None, IsPath()]


class Section(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
