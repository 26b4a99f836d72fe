"""Results under the digest of what they depend on; the ground of a configuration's work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgekit.pipeline._cache import Cache, digest_of

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.targets import Target

__all__ = ["Stored", "identity"]


class Update(Protocol):
    """``Progress.update``."""

    def __call__(
        self, done: float, total: float, text: str = "", /, *, at: float | None = None
    ) -> None:
        """Part of the step is done."""


def _nothing(done: float, total: float, text: str = "", /, *, at: float | None = None) -> None: ...


class Stored:
    """A configuration and the cache that its results are kept in.

    Args:
        config: The configuration.
        cache: Where results are kept.
        force: Compute everything again.

    Attributes:
        update: Where long work tells how far it is; (done, total, text).
        tell: Where it says at once what a person should know.
        detail: Where it says what only who asked for details (-v) wants to know.
        fresh: Names of the steps that were computed and not read back.
        notes: What a person should know.
    """

    def __init__(self, config: Config, cache: Cache, *, force: bool = False) -> None:
        self.config = config
        self.file = config.file
        self.cache = cache
        self.force = force
        self.update: Update = _nothing
        self.tell: Callable[[str], None] = lambda text: None
        self.detail: Callable[[str], None] = lambda text: None
        self.fresh: set[str] = set()
        self.notes: list[str] = []

    @cached_property
    def target(self) -> Target:
        """The board."""
        from edgekit.targets import get

        return get(self.file.target)

    @cached_property
    def tensorrt(self) -> str:
        """The TensorRT release whose rules hold."""
        return self.file.tensorrt or self.target.tensorrt

    def stored(
        self, step: str, compute: Callable[[], Any], *parts: Any, again: bool = False
    ) -> Any:
        """Returns the result kept under ``parts``; computes and keeps it when there is none.

        What is noted while it is computed is kept with it, and noted again when it is read back.
        """
        result = None if again else self.look_up(step, *parts)
        if result is None:
            self.fresh.add(step)
            before = list(self.notes)
            result = compute()
            noted = [note for note in self.notes if note not in before]
            self.cache.put(step, self.cache.key(step, *parts), {"result": result, "notes": noted})
        return result

    def look_up(self, step: str, *parts: Any) -> Any | None:
        """Returns the result kept under ``parts`` and notes what it has to say; None without."""
        kept = None if self.force else self.cache.get(step, self.cache.key(step, *parts))
        if kept is None:
            return None
        self.notes += [note for note in kept["notes"] if note not in self.notes]
        return kept["result"]


def identity(path: Path) -> str:
    """Returns what identifies data: a file's SHA-256, a folder's names, sizes and times."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        stats = [(p.relative_to(path).as_posix(), p.stat()) for p in files]
        return digest_of([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
    if not path.is_file():
        return "missing"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
