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
        BundleError: "bundle.no-runtime", "bundle.backend", or what the board itself would refuse
            it with ("requires.*"): the same facts are held against the same needs.
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
    _check_requires(facts, hello, where)


def _check_requires(facts: Mapping[str, Any], hello: Mapping[str, Any], where: str) -> None:
    from edgekit_device._errors import DeviceError
    from edgekit_device._manifest_health import needs_of
    from edgekit_device._requires import check_facts

    requires = needs_of(facts)
    if requires is None:
        return
    # room is asked for what is missing alone (`check_space`), and by the board
    known = {name: value for name, value in hello.items() if name != "free_bytes"}
    try:
        check_facts(requires, known, where=where)
    except DeviceError as error:
        raise BundleError(
            error.message, code=error.code, where=error.where, hint=error.hint
        ) from error


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
