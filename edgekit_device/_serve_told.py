"""What a server says of itself and of the release that it serves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict

from ._errors import DeviceError
from ._serve_releases import Releases

if TYPE_CHECKING:
    from ._serve_desk import Desk

__all__ = ["describe", "not_ready", "status"]


def describe(releases: Releases) -> Dict[str, Any]:
    """What serves, as ``describe`` answers it.

    Raises:
        DeviceError: "serve.not-ready".
    """
    crew = releases.serving
    facts = None if crew is None else crew.facts
    if crew is None or facts is None:
        raise not_ready(releases)
    return {
        "release": crew.release,
        "digest": facts["digest"],
        "inputs": facts["inputs"],
        "outputs": facts["outputs"],
    }


def not_ready(releases: Releases) -> DeviceError:
    """Why nothing serves."""
    failed = releases.failed
    why = "it has no current release" if failed is None else failed[1].get("message", "")
    if releases.loading is not None or releases.serving is not None:
        why = "it loads"
    return DeviceError(
        "no release is loaded: {}".format(why),
        code="serve.not-ready",
        where=releases.app.name,
        hint="ask its status",
    )


def status(desk: Desk) -> Dict[str, Any]:
    """An ``edgekit.serving/1``."""
    serving, loading = desk.releases.serving, desk.releases.loading
    facts = (serving.facts if serving is not None else None) or {}
    return dict(
        desk.health.to_json(),
        schema="edgekit.serving/1",
        app=desk.app.name,
        release=None if serving is None else serving.release,
        digest=facts.get("digest"),
        pid=os.getpid(),
        workers=[] if serving is None else [w.process.pid for w in serving.workers],
        socket=str(desk.door.path),
        clients=len(desk.peers),
        running=sum(worker.request is not None for worker in desk.releases.workers),
        queue=len(desk.line),
        queue_most=desk.line.most,
        loading=None if loading is None else loading.release,
        stopping=desk.stopping,
    )
