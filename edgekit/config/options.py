"""The keyword arguments of the API's functions that take a configuration: its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

Keys = object
"""A section: a mapping, or an object with the keys as attributes. The configuration's schema checks
it.
"""


class CompileOptions(TypedDict, total=False):
    """The configuration's keys that ``edgekit.compile`` takes in addition to its own arguments.

    None is not given. docs/config.md says what each key means.
    """

    version: Literal[1] | None
    name: str | None
    model: Keys | None
    power_mode: str | None
    tensorrt: str | None
    precision: str | None
    parser: bool | None
    rewrite: Keys | None
    placement: Keys | None
    build: Keys | None
    accuracy: Keys | None
    deploy: Keys | None
    bench: Keys | None


class ConfigOptions(CompileOptions, total=False):
    """The keys of a configuration, as keyword arguments; they win over those of a file."""

    target: str | Path | None
    calibration: Keys | None
