"""A report of Nsight Systems (``.nsys-rep``) as an SQLite export, by the user's own ``nsys``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.bench._nsys_open import Export, is_export, open_export
from edgekit.errors import DataError, EnvironmentLack

__all__ = ["exported"]

_SECONDS = 1800


@contextmanager
def exported(path: Path) -> Iterator[Export]:
    """Opens an export, or a report that ``nsys export`` first makes into one.

    Raises:
        DataError: As ``open_export``; or nsys refuses the report ("nsys.export").
        EnvironmentLack: There is no nsys here to read a report with ("nsys.missing").
    """
    if path.suffix.lower() not in (".nsys-rep", ".qdrep") or is_export(path):
        export = open_export(path)
        try:
            yield export
        finally:
            export.close()
        return
    if not path.is_file():
        raise DataError("there is no such report", code="nsys.unreadable", where=str(path))
    program = shutil.which("nsys")
    if program is None:
        raise EnvironmentLack(
            "nsys, which reads this report, is not installed here", code="nsys.missing",
            where=str(path),
            hint=f"where it is: nsys export --type sqlite {path.name}; then give the .sqlite file",
        )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="edgekit-nsys-") as folder:
        made = Path(folder) / "export.sqlite"
        arguments = [
            program, "export", "--type=sqlite", "--quiet=true", f"--output={made}",
            str(path.resolve()),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                arguments, capture_output=True, timeout=_SECONDS, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DataError(
                f"nsys export failed: {error}"[:300], code="nsys.export", where=str(path)
            ) from None
        if done.returncode or not made.is_file():
            words = done.stderr.decode("utf-8", "replace").strip() or "it made no file"
            raise DataError(
                f"nsys export failed: {words[-300:]}", code="nsys.export", where=str(path),
                hint="use the nsys that made the report, or a later one",
            )  # fmt: skip
        export = open_export(made)
        try:
            yield export
        finally:
            export.close()
