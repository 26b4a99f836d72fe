"""The batch of a model whose file leaves it open."""

from __future__ import annotations

from pathlib import Path

__all__ = ["batch_of_one", "batch_text"]


def batch_of_one(path: Path) -> dict[str, list[int]]:
    """Returns sizes with a batch of 1 for every input that leaves only its first size open.

    Empty where nothing is open, and where more is: sizes of images are nobody's to guess.

    Raises:
        ModelError: The file cannot be read.
    """
    from edgekit.network import open_inputs

    found: dict[str, list[int]] = {}
    for name, sizes in open_inputs(path).items():
        rest = [size for size in sizes[1:] if size is not None]
        if not sizes or sizes[0] is not None or len(rest) < len(sizes) - 1:
            return {}
        found[name] = [1, *rest]
    return found


def batch_text(sizes: dict[str, list[int]]) -> str:
    """Returns what to tell of it."""
    shapes = " ".join(f"--shape {name}={','.join(map(str, size))}" for name, size in sizes.items())
    return f"the batch, which the file leaves open, was made static: as with {shapes}"
