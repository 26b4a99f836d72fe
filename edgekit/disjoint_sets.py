"""Union-find: sets of tensors or layers that grow together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class DisjointSets(Generic[Key]):
    """Sets of joined keys; a key that was never joined is a set of its own."""

    def __init__(self) -> None:
        self._parent: dict[Key, Key] = {}

    def root(self, key: Key) -> Key:
        """Returns the representative of a key's set; it may change when the set grows."""
        parent = self._parent
        parent.setdefault(key, key)
        while parent[key] != key:
            # path halving keeps the chains short, so a query is nearly constant without ranks
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    def join(self, first: Key, *others: Key) -> None:
        """Makes one set of those of all keys."""
        for other in others:
            self._parent[self.root(other)] = self.root(first)

    def members(self) -> tuple[tuple[Key, ...], ...]:
        """Returns the sets of all requested keys, in the order in which their first ones came."""
        found: dict[Key, list[Key]] = {}
        for key in self._parent:
            found.setdefault(self.root(key), []).append(key)
        return tuple(tuple(keys) for keys in found.values())
