"""The schema of an inventory file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["InventoryFile", "Key", "Name", "Value"]


def _text(value: Any) -> Any:
    """A number in a label is its text: ``rack: 12``."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._/-]{0,62}$")]
# what a terminal and a selector can show; control characters are neither
Value = Annotated[str, BeforeValidator(_text), Field(pattern=r"^[^\x00-\x1f\x7f]{0,128}$")]
_Host = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[^\s\x00-\x1f-][^\s\x00-\x1f]*$")
]
_HostKey = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}=?$")]


class InsideFile(_Part):
    """A container that the loader runs in."""

    image: str = Field(min_length=1)
    runtime: str | None = "nvidia"
    options: list[str] = Field(default_factory=list)


class _Common(_Part):
    port: int | None = Field(None, ge=1, le=65535)
    user: str | None = Field(None, min_length=1)
    key: str | None = Field(None, min_length=1)
    root: str | None = Field(None, min_length=1)
    python: str | None = Field(None, min_length=1)
    container: InsideFile | None = None
    labels: dict[Key, Value] = Field(default_factory=dict)
    config: str | None = Field(None, min_length=1)


class DefaultsFile(_Common):
    """What boards have that do not say otherwise; labels are joined."""


class BoardFile(_Common):
    """A board; ``[01:20]`` in name and host makes twenty of it."""

    name: str = Field(min_length=1)
    host: _Host
    host_key: _HostKey | None = None


class InventoryFile(_Part):
    """An inventory."""

    version: Literal[1]
    defaults: DefaultsFile = Field(default_factory=DefaultsFile)
    boards: list[BoardFile] = Field(min_length=1)
