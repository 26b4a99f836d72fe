"""What is known before a byte is sent: whether a board can run a bundle, and has room for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.errors import BoardError, BundleError

__all__ = ["check_fits", "check_space"]


def check_fits(facts: Mapping[str, Any], hello: Mapping[str, Any], where: str) -> None:
    """Refuses a board that cannot run what the bundle was built for.

    Args:
        facts: The bundle's manifest.
        hello: The board's answer to ``hello``.
        where: The board's name.

    Raises:
        BundleError: "bundle.no-runtime" or "bundle.backend".
    """
    backend = str(facts.get("backend"))
    needed = facts.get("fingerprint")
    fingerprint = needed if isinstance(needed, dict) else {}
    runtime = str(fingerprint.get("runtime") or "")
    if runtime in hello and hello[runtime] is None:
        raise BundleError(
            f"the bundle needs {runtime} {fingerprint.get('runtime_version', '')}".rstrip()
            + ", which the board does not have",
            code="bundle.no-runtime",
            where=where,
            hint=f"install {runtime} for {hello.get('python') or 'the Python'} there, or name "
            "another interpreter with `python:`",
        )
    offered = [str(name) for name in hello.get("backends") or ()]
    if backend not in offered:
        raise BundleError(
            f"the bundle was built by the {backend} backend, the board runs "
            f"{', '.join(offered) or 'none'}",
            code="bundle.backend",
            where=where,
            hint="build for a backend that the board has",
        )


def check_space(sent: int, hello: Mapping[str, Any], where: str) -> None:
    """Refuses to send more bytes than are free; raises BoardError "board.disk-full"."""
    free = hello.get("free_bytes")
    if isinstance(free, int) and sent > free:
        raise BoardError(
            f"the bundle needs {sent:,} bytes more, {free:,} are free on the board",
            code="board.disk-full",
            where=where,
            hint="free space there, or give the board another `root:`",
        )
