"""The flags that a release's trtexec takes (``trt/trtexec_flags.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.dla import Version, parse_version
from edgekit.errors import BuildError

__all__ = ["Trtexec", "flag_facts", "trtexec"]


@dataclass(frozen=True, slots=True)
class Trtexec:
    """trtexec of one release: what it takes."""

    tensorrt: str
    version: Version
    flags: frozenset[str]

    def flag(self, name: str) -> str:
        """Returns a flag, or the one that does the same in this release.

        Raises:
            BuildError: It has neither (code "trtexec.flag").
        """
        other = flag_facts()["same"].get(name, "")
        if name in self.flags:
            return name
        if other in self.flags:
            return str(other)
        raise BuildError(
            f"trtexec of TensorRT {self.tensorrt} does not take {name}",
            code="trtexec.flag",
            where=name,
            hint="build with build.backend: tensorrt, or leave out what needs it",
        )

    def has(self, name: str) -> bool:
        """Whether it takes a flag, or another one that does the same."""
        return name in self.flags or flag_facts()["same"].get(name, "") in self.flags


def trtexec(tensorrt: str) -> Trtexec:
    """Returns trtexec of a release.

    A release that nobody looked at has what the ones before and after it both have; a newer one
    than all of them has what the newest has.

    Raises:
        BuildError: The release is older than every known one (code "trtexec.version").
        UsageError: ``tensorrt`` is no version.
    """
    version = parse_version(tensorrt)
    sampled = {name: parse_version(name) for name in flag_facts()["versions"]}
    same = [name for name, own in sampled.items() if own[:2] == _minor(version)]
    before = [name for name, own in sampled.items() if own <= version]
    after = [name for name, own in sampled.items() if own > version]
    if not same and not before:
        oldest = flag_facts()["versions"][0]
        raise BuildError(
            f"trtexec's flags are known from TensorRT {oldest} on, not of {tensorrt}",
            code="trtexec.version",
            where="tensorrt",
            hint="build with build.backend: tensorrt, or raise TensorRT on the board",
        )
    near = same[:1] or [*before[-1:], *after[:1]]
    flags = frozenset.intersection(*(_flags()[name] for name in near))
    return Trtexec(tensorrt, version, flags)


def _minor(version: Version) -> Version:
    return (*version, 0)[:2]


@lru_cache(maxsize=1)
def _flags() -> Mapping[str, frozenset[str]]:
    facts = flag_facts()
    return {
        release: frozenset(
            name for name, where in facts["flags"].items() if where == "all" or release in where
        )
        for release in facts["versions"]
    }


@lru_cache(maxsize=1)
def flag_facts() -> dict[str, Any]:
    """Returns ``trt/trtexec_flags.yaml``."""
    found: dict[str, Any] = read_knowledge(data_folder("trt") / "trtexec_flags.yaml")
    return found
