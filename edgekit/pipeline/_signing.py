"""The key that signs a configuration's bundles."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import ConfigError, Problem

if TYPE_CHECKING:
    from edgekit.pipeline._work import Work

__all__ = ["Signing"]


class Signing:
    """The key of a configuration."""

    def __init__(self, work: Work) -> None:
        self.work = work

    @cached_property
    def key(self) -> Path:
        """The private key that signs: the configuration's, or one of edgekit's own."""
        from edgekit.bundle import ensure_key

        config = self.work.config
        chosen = config.file.deploy.sign_with
        if chosen is None:
            return ensure_key(self.work.cache.folder / "keys" / "ed25519")
        path = config.resolve(chosen)
        if not path.is_file():
            hint = "make one with: ssh-keygen -t ed25519"
            problem = Problem(f"there is no signing key {path}", config.path, hint)
            raise ConfigError([problem], code="config.no-key")
        return path

    @cached_property
    def public_key(self) -> Path:
        """The public half of ``key``, which boards trust."""
        return self.key if self.key.suffix == ".pub" else self.key.with_name(self.key.name + ".pub")
