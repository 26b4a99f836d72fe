"""What a node does, whatever it and its tensors are called, as one number."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgekit.rewrite._types import Node

__all__ = ["form"]

_REMEMBERED = 1 << 16


def form(node: Node) -> int:
    """Returns a number that nodes of equal operators and attributes have in common.

    Different forms never have the same number; equal ones have different numbers once more forms
    were seen than are remembered.
    """
    if not node.known:
        pairs = sorted(node.attrs.items()) if node.attrs else ()
        attrs = tuple((key, _plain(value)) for key, value in pairs)
        # as text, in which 1 is not 1.0
        node.known.append(_numbered(node.op, node.domain, repr(attrs)))
    return node.known[0]


@lru_cache(_REMEMBERED)
def _numbered(op: str, domain: str, attrs: str) -> int:
    return next(_numbers())


@lru_cache(1)
def _numbers() -> Iterator[int]:
    return count()


def _plain(value: Any) -> Hashable:
    if isinstance(value, int | float | str | bytes):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return value.SerializeToString(deterministic=True)  # type: ignore[no-any-return]
