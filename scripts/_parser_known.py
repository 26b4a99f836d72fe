"""The known differences between edgekit and NVIDIA's module, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

__all__ = ["Row", "read_rows", "sort_out"]

FILE = Path(__file__).parent / "data/parser-differences.yaml"


class Row(BaseModel):
    """Differences with one reason. Texts are patterns as the shell has them.

    Attributes:
        check: The compared property, as ``Difference.check``.
        operator: The ONNX operators, or the question.
        where: Names of the models, with the node or tensor after ": ".
        ours: edgekit's answer.
        theirs: The answer of NVIDIA's module.
        kind: "newer" (the parser is newer than the one that edgekit follows), "rtx" (TensorRT for
            RTX differs from TensorRT), "definition" (both mean the same in other words) or "gap"
            (edgekit is wrong and not mended yet).
        reason: Why both are right.
        rare: Whether a run may be without such a difference.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str
    operator: str | list[str] = "*"
    where: str | list[str] = "*"
    ours: str = "*"
    theirs: str = "*"
    kind: Literal["newer", "rtx", "definition", "gap"]
    reason: str
    rare: bool = False

    def explains(self, difference: Mapping[str, str]) -> bool:
        """Returns True if this row explains a difference."""
        if difference["check"] != self.check:
            return False
        for name in ("operator", "where", "ours", "theirs"):
            stated = getattr(self, name)
            patterns = [stated] if isinstance(stated, str) else stated
            if not any(fnmatchcase(difference[name], pattern) for pattern in patterns):
                return False
        return True


def read_rows() -> list[Row]:
    """The rows of the file."""
    found = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [Row.model_validate(row) for row in found["differences"]]


def sort_out(
    differences: Sequence[Mapping[str, str]], rows: Sequence[Row], *, whole: bool
) -> tuple[list[Mapping[str, str]], list[Row]]:
    """The differences that no row has the reason of, and the rows that none needs.

    Args:
        differences: Of a run.
        rows: The known ones.
        whole: Whether the run compared everything: else no row is called needless.
    """
    unknown, used = [], set()
    for difference in differences:
        row = next((number for number, row in enumerate(rows) if row.explains(difference)), None)
        if row is None:
            unknown.append(difference)
        else:
            used.add(row)
    left = [row for number, row in enumerate(rows) if number not in used and not row.rare]
    return unknown, left if whole else []
