"""Keys, signatures and bundles for the tests of this folder."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from edgekit.bundles.sign import allowed_signers_line, sign
from tests.boards.bundles import HandMade, hand_made

__all__ = ["Signer", "keygen", "make_signer", "small_bundle"]


@dataclass(frozen=True)
class Signer:
    """A key pair; ``key`` is the private file."""

    key: Path

    @property
    def public(self) -> Path:
        return self.key.with_name(self.key.name + ".pub")

    @property
    def words(self) -> str:
        return " ".join(self.public.read_text().split()[:2])

    @property
    def line(self) -> str:
        return allowed_signers_line(self.public, self.key.name)

    @property
    def fingerprint(self) -> str:
        return keygen("-lf", str(self.public)).split()[1]

    def sign(self, data: bytes, namespace: str = "edgekit-bundle") -> bytes:
        if namespace == "edgekit-bundle":
            return sign(data, self.key)
        argv = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(self.key)]
        return subprocess.run(argv, input=data, capture_output=True, check=True).stdout


def make_signer(folder: Path, name: str, kind: str = "ed25519") -> Signer:
    """Makes a key pair called ``name``."""
    keygen("-q", "-t", kind, "-N", "", "-C", name, "-f", str(folder / name))
    return Signer(folder / name)


def keygen(*arguments: str) -> str:
    """Runs ssh-keygen; returns what it prints."""
    done = subprocess.run(
        ["ssh-keygen", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@functools.cache
def small_bundle() -> HandMade:
    """One bundle for all tests."""
    return hand_made()
