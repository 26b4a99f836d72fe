#!/usr/bin/env python3
"""Makes the pages' pictures from real runs: docs/images/terminal.svg, cuts.svg and report.png.

Usage: scripts/make_pictures.py [terminal] [cuts] [report]

The report takes some minutes and Chromium.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
# by picture
COMMANDS = {
    "terminal": (
        "edgekit check builtin:light_resnet50 -t jetson-agx-orin-64gb | head -16",
        "edgekit plan builtin:light_resnet50 -t jetson-agx-orin-64gb --objective throughput -q"
        " | head -29",
    ),
    "cuts": (
        "edgekit check examples/detection/shapes.onnx -t jetson-agx-orin-64gb --precision int8"
        " | sed -n '/Where to cut/,$p' | head -17",
    ),
}
CONFIGURATION = ROOT / "configs" / "resnet50-throughput.yaml"
WIDTH = 100


def run_command(command: str) -> str:
    """Returns the output of a command line in a terminal of WIDTH columns.

    Raises:
        CalledProcessError: One of its commands failed.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace(" | head", " | cat | head")],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PATH": path, "COLUMNS": str(WIDTH)},
    ).stdout


def draw_commands(commands: Sequence[str]) -> str:
    """Returns commands and their output as SVG, without fonts of other hosts."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor")
    for command in commands:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        console.print(Text(run_command(command)))
    svg = console.export_svg(title="edgekit", theme=MONOKAI, unique_id="edgekit")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


def picture_report(file: Path) -> None:
    """Writes a picture of the first screen of a real report."""
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "edgekit", "run", str(CONFIGURATION), "--out", f"{folder}/out"]
        subprocess.run(run, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        photograph(Path(folder, "out", "report.html"), file)


def photograph(page: Path, file: Path) -> None:
    """Writes Chromium's picture of a page, with few colours."""
    options = "--headless --no-sandbox --hide-scrollbars --window-size=1200,800"
    subprocess.run(
        ["chromium", *options.split(), f"--screenshot={file}", page.as_uri()],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    Image.open(file).convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(
        file, optimize=True
    )


def main() -> None:
    """Makes the pictures that are named on the command line, or all."""
    names = sys.argv[1:] or [*COMMANDS, "report"]
    IMAGES.mkdir(exist_ok=True)
    for name in COMMANDS.keys() & names:
        (IMAGES / f"{name}.svg").write_text(draw_commands(COMMANDS[name]), encoding="utf-8")
    if "report" in names:
        picture_report(IMAGES / "report.png")


if __name__ == "__main__":
    main()
