"""Ranges in names: ``cam-[01:20]`` and ``10.0.0.[11:30]`` are twenty boards, as in Ansible."""

from __future__ import annotations

import re

__all__ = ["expand"]

_RANGE = re.compile(r"\[(\d+):(\d+)\]")
_MOST = 100_000


def expand(name: str, host: str) -> list[tuple[str, str]]:
    """Returns names and hosts; those of one range each are paired in order.

    Raises:
        ValueError: Only one of the two has a range, or they are of different lengths.
    """
    names, hosts = _every(name), _every(host)
    if names is None and hosts is None:
        return [(name, host)]
    if names is None or hosts is None:
        raise ValueError(f"a range in both or in none of '{name}' and '{host}'")
    if len(names) != len(hosts):
        raise ValueError(f"{len(names)} names and {len(hosts)} hosts: {name}, {host}")
    return list(zip(names, hosts, strict=True))


def _every(text: str) -> list[str] | None:
    found = list(_RANGE.finditer(text))
    if not found:
        return None
    if len(found) > 1:
        raise ValueError(f"more than one range in '{text}'")
    first, last = found[0].groups()
    # leading zeros are kept: 01 to 20 are all two digits wide
    width = len(first) if first.startswith("0") else 0
    count = int(last) - int(first) + 1
    if not 0 < count <= _MOST:
        raise ValueError(f"'{text}' goes from {first} to {last}")
    start, end = found[0].span()
    return [f"{text[:start]}{i:0{width}d}{text[end:]}" for i in range(int(first), int(last) + 1)]
