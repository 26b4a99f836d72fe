"""The fixtures: logs in the builder's grammar, with names and numbers of our own."""

from pathlib import Path

FOLDER = Path(__file__).parent / "data"
NAMES = sorted(path.name for path in FOLDER.glob("*.log"))


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def lines(name: str) -> list[str]:
    return text(name).splitlines()
