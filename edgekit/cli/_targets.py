"""``edgekit targets``: the boards that edgekit knows."""

from __future__ import annotations

from edgekit.cli import _options as o

__all__ = ["command"]


@o.command("targets", "edgekit targets --json")
@o.json
@o.debug
def command(json: bool) -> None:
    from edgekit.targets import get, names

    boards = [get(name) for name in names()]
    if json:
        rows = [
            {
                "name": b.name,
                "title": b.title,
                "dla_cores": b.dla.cores,
                "dla_generation": b.dla.generation,
                "tensorrt": b.tensorrt,
                "power_modes": list(b.power_modes),
            }
            for b in boards
        ]
        o.print_json({"schema": "edgekit.targets/1", "targets": rows})
        return
    from rich.table import Table

    table = Table("name", "DLA", "TensorRT", "power modes", box=None, pad_edge=False)
    for b in boards:
        dla = f"{b.dla.cores} x {b.dla.generation}" if b.dla.cores else "none"
        table.add_row(b.name, dla, b.tensorrt, ", ".join(b.power_modes))
    o.console().print(table)
