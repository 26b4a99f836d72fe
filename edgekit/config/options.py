"""The keyword arguments of the API's functions that take a configuration: its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

Keys = object
"""A section: a mapping, or an object with the keys as attributes. The configuration's schema checks
it.
"""


class Options(TypedDict, total=False):
    """Keys that all these functions take in the same way; None means not given.

    docs/config.md has the meaning of each key.
    """

    version: Literal[1] | None
    name: str | None
    model: Keys | None
    tensorrt: str | None
    precision: str | None
    parser: bool | None
    rewrite: Keys | None
    placement: Keys | None
    build: Keys | None
    accuracy: Keys | None
    detection: Keys | None
    deploy: Keys | None
    bench: Keys | None


class CompileOptions(Options, total=False):
    """The keys that ``edgekit.compile`` takes in addition to its own arguments."""

    power_mode: str | None


class TableOptions(Options, total=False):
    """The keys that ``edgekit.plan_table`` takes in addition to its own arguments."""

    target: str | Path | None
    calibration: Keys | None


class ConfigOptions(CompileOptions, TableOptions, total=False):
    """The keys of a configuration, as keyword arguments; they win over those of a file."""
