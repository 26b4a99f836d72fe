"""``edgekit releases``: the releases that boards keep."""

from __future__ import annotations

from typing import Any

from edgekit.cli import _options as o
from edgekit.cli._boards import app_option, plain, reach, table, tell, wheres

__all__ = ["command"]


@o.command(
    "releases",
    "Examples: edgekit releases nvidia@10.0.0.7; edgekit releases configs/resnet50-orin.yaml",
)
@wheres
@app_option
@reach
@o.talk
def command(
    wheres: tuple[str, ...], app: str | None, json: bool, quiet: bool, verbose: bool, **reached: Any
) -> None:
    from edgekit.pipeline._status import releases_document

    document, answered = releases_document(wheres, app, **reached)
    if not json:
        rows = table("board", "app", "release", "", "bundle", "signed by", "since")
        # ids are copied from here: whatever else the terminal has no room for, they stay whole
        rows.columns[2].min_width = len("000001-0123456789ab")
        for board in document["boards"]:
            if board["error"] is not None:
                cells = (board["board"], "-", "-", "not reached", board["error"]["message"])
                rows.add_row(*map(plain, (*cells, "-", "-")))
            for name, facts in board["apps"].items():
                for one in facts["releases"]:
                    cells = (board["board"], name, one["id"], _mark(one, facts),
                             str(one["digest"])[:12])  # fmt: skip
                    more = (one["signer"] or "nobody", one["staged_at"])
                    rows.add_row(*map(plain, (*cells, *more)))
        o.console().print(rows)
    tell(document, answered, json)


def _mark(release: dict[str, Any], facts: dict[str, Any]) -> str:
    if release["id"] == facts["current"]:
        return "serves"
    if release["id"] == facts["previous"]:
        return "previous"
    return "" if release["ready"] else "not ready"
