"""``edgekit releases``: the releases that boards keep."""

from __future__ import annotations

from typing import Any

from edgekit.cli import _options as o
from edgekit.cli._boards import app_option, failing, plain, reach, show, table, tell, wheres

__all__ = ["command"]


@o.command(
    "releases",
    "edgekit releases nvidia@10.0.0.7\nedgekit releases configs/resnet50-orin.yaml",
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
        notes: list[str] = []
        for board in document["boards"]:
            if board["error"] is not None:
                cells = (board["board"], "-", "-", *failing(board, document["boards"]))
                rows.add_row(*map(plain, (*cells, "-", "-")))
            for name, facts in board["apps"].items():
                for one in facts["releases"]:
                    cells = (board["board"], name, one["id"], _mark(one, facts),
                             str(one["digest"])[:12])  # fmt: skip
                    more = (one["signer"] or "nobody", one["staged_at"])
                    rows.add_row(*map(plain, (*cells, *more)))
                    if why := one.get("refused"):
                        notes.append(f"{board['board']}: {name}: {one['id']} loads no more: "
                                     f"{why['message']} (edgekit trust)")  # fmt: skip
                    if back := one.get("taken_back"):
                        notes.append(f"{board['board']}: {name}: {one['id']} was taken back at "
                                     f"{back['at']}: {back['reason']}")  # fmt: skip
        show(rows, notes)
    tell(document, answered, json)


def _mark(release: dict[str, Any], facts: dict[str, Any]) -> str:
    role = "" if release["ready"] else "not ready"
    for mark, which in (("serves", "current"), ("previous", "previous")):
        role = mark if release["id"] == facts[which] else role
    refused = "loads no more" if release.get("refused") else ""
    back = "taken back" if release.get("taken_back") else ""
    return ", ".join(filter(None, (role, back, refused)))
