"""``edgekit status``: what boards serve, deploy and keep."""

from __future__ import annotations

from typing import Any

from edgekit._listed import counted
from edgekit.cli import _options as o
from edgekit.cli._boards import (
    app_option,
    failing,
    last_error,
    plain,
    reach,
    show,
    table,
    tell,
    wheres,
)

__all__ = ["command"]


@o.command(
    "status",
    "edgekit status nvidia@10.0.0.7\nedgekit status configs/resnet50-orin.yaml --json\n"
    "edgekit status lab-1 lab-2 --app resnet50",
)
@wheres
@app_option
@reach
@o.talk
def command(
    wheres: tuple[str, ...], app: str | None, json: bool, quiet: bool, verbose: bool, **reached: Any
) -> None:
    from edgekit.pipeline._status import status_document

    document, answered = status_document(wheres, app, **reached)
    if not json:
        _show(document, [one.again for one in answered], verbose)
    tell(document, answered, json)


def _show(document: dict[str, Any], again: list[str], verbose: bool) -> None:
    rows = table("board", "app", "serves", "previous", "last deployment", "server")
    notes: list[str] = []
    for board, words in zip(document["boards"], again, strict=True):
        name = board["board"]
        if board["error"] is not None:
            away, why = failing(board, document["boards"])
            rows.add_row(plain(name), "-", away, "-", plain(why), "-")
            continue
        if board.get("power"):
            notes.append(f"{name}: {board['power']}")
        if not board["apps"]:
            rows.add_row(plain(name), "-", "nothing", "-", "-", "-")
        for app, facts in board["apps"].items():
            cells = (name, app, facts["current"] or "nothing", facts["previous"] or "-",
                     _deployment(facts), _server(facts["serving"]))  # fmt: skip
            rows.add_row(*map(plain, cells))
            notes += [f"{name}: {app}: {text}" for text in _notes(facts, words, verbose)]
        if verbose:
            store = board["store"]
            notes.append(
                f"{name}: {counted(store['blobs'], 'blob')}, {store['bytes']:,} bytes, "
                f"of blobs on their way {store['partial_bytes']:,} bytes; "
                f"{board['free_bytes']:,} bytes free"
            )
    show(rows, notes)


def _went_back(facts: dict[str, Any]) -> dict[str, Any] | None:
    """The roll back by hand, or by a server, that came after the last deployment."""
    deployment, lines = facts["deployment"] or {}, facts.get("history") or [{}]
    last: dict[str, Any] = lines[-1]
    ended = deployment.get("state") in (None, "committed", "rolled-back", "failed")
    back = last.get("state") == "rolled-back" and last.get("id") != deployment.get("id")
    return last if ended and back else None


def _deployment(facts: dict[str, Any]) -> str:
    found = _went_back(facts) or facts["deployment"]
    if found is None:
        return "none"
    text = f"{found['state']} {found.get('state_at') or ''}".rstrip()
    if found.get("alive"):
        text += f", by {found.get('operator') or 'somebody'}"
    return text


def _server(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    if "error" in found:
        return str(found["error"].get("message"))
    latency = (found.get("latency_ms") or {}).get("p50")
    speed = f", p50 {latency:.3g} ms" if isinstance(latency, (int, float)) else ""
    return f"{found.get('requests')} requests, {found.get('errors')} errors{speed}"


def _notes(facts: dict[str, Any], again: str, verbose: bool) -> list[str]:
    found = []
    deployment = facts["deployment"] or {}
    back = _went_back(facts)
    if back:
        why = (back.get("error") or {}).get("message") or "asked for"
        found.append(f"rolled back at {back.get('state_at')} from {back.get('release')}: {why}")
    error = deployment.get("error")
    if error:
        found.append(f"{deployment['state']}: {error.get('message')} ({error.get('code')})")
    if facts.get("error"):
        found.append(str(facts["error"].get("message")))
    for one in facts.get("refused", ()):
        found.append(f"{one['release']} loads no more: {one['message']} (edgekit trust)")
    changes = (facts.get("changed") or {}).get("changes") or ()
    if changes:
        told = "; ".join(f"{one['what']} {one['from']} -> {one['to']}" for one in changes)
        found.append(
            f"the board has changed: {told}; {facts['current']} loads no more until it is deployed "
            "again (edgekit deploy CONFIG)"
        )
    serving = facts["serving"] or {}
    if serving.get("release") not in (None, facts["current"]):
        found.append(f"the server answers with {serving['release']}")
    if last := last_error(serving):
        found.append(f"the server's last error: {last}")
    job = deployment.get("job")
    if deployment.get("alive") and job:
        found.append(f"edgekit jobs attach {job} {again} follows the deployment")
    if verbose:
        for line in facts.get("history", ()):
            why = (line.get("error") or {}).get("message")
            found.append(
                f"{line.get('state_at')} {line.get('state')} {line.get('release')}"
                + (f": {why}" if why else "")
            )
    return found
