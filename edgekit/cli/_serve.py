"""``edgekit serve``: a server on a board that keeps a release loaded."""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.cli._boards import app_option, last_error, plain, reach, show, table, tell
from edgekit.cli._commands import argument

__all__ = ["command"]

_ACTIONS = ("start", "status", "reload", "stop", "install", "uninstall")
_OPTIONS = ("workers", "queue", "timeout_s", "threads")


@o.command(
    "serve",
    "edgekit serve nvidia@10.0.0.7 start --app resnet50\n"
    "edgekit serve configs/resnet50-orin.yaml status\n"
    "edgekit serve nvidia@10.0.0.7 install --app resnet50 --workers 2",
)
@argument("where", "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config.")
@argument(
    "action",
    "start, status, reload (take the current release now), stop; install, uninstall (a systemd "
    "unit of the account).",
    type=click.Choice(_ACTIONS),
    default="status",
)
@app_option
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that have it loaded.")
@click.option("--queue", type=click.IntRange(1, 65536), help="Requests that may wait.")
@click.option("--timeout-s", type=click.FloatRange(0.01, 3600), help="A request's wait, its run.")
@click.option("--threads", type=click.IntRange(0, 1024), help="Threads of each engine.")
@reach
@o.talk
def command(
    where: str,
    action: str,
    app: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> None:
    from edgekit.pipeline._asking import app_of
    from edgekit.pipeline._servers import serve_document

    options = []
    for name in _OPTIONS:
        value = given.pop(name)
        if value is not None:
            options.append(f"--{name.replace('_', '-')}={value}")
    document, answered = serve_document(where, app_of(where, app), action, options, **given)
    if not json:
        found = table("board", "serves", "process", "requests", "errors", "p50 ms", "p99 ms")
        notes = []
        for board in document["boards"]:
            found.add_row(plain(board["board"]), *map(plain, _row(board)))
            notes += [f"{board['board']}: {text}" for text in _notes(board)]
        show(found, notes)
    tell(document, answered, json)


def _row(board: dict[str, Any]) -> list[object]:
    from edgekit.bench import percentile_cell

    if board["error"] is not None:
        return ["failed" if board["reachable"] else "not reached", *["-"] * 5]
    serving = board.get("serving")
    if serving is None:
        return ["installed" if board.get("installed") else "nothing", *["-"] * 5]
    spent = serving["latency_ms"] or {}
    p99 = percentile_cell(spent.get("p99"), "p99", spent.get("of_last") or 0, 4)
    return [
        serving["release"] or "nothing yet", serving["pid"], serving["requests"],
        serving["errors"], spent.get("p50"), p99,
    ]  # fmt: skip


def _notes(board: dict[str, Any]) -> list[str]:
    """What is known of a board beside the table's figures, each a sentence."""
    if board["error"] is not None:
        return [str(board["error"]["message"])]
    last = last_error(board.get("serving") or {})
    return [
        *([f"last error: {last}"] if last else []),
        *([f"unit: {board['file']}"] if board.get("file") else []),
        *(board.get("notes") or ()),
    ]
