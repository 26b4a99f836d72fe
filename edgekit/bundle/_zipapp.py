"""Makes the board's loader: one executable zip of ``edgekit_device``, the same bytes each time."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

from edgekit.bundle._atomic import replacing

__all__ = ["build_zipapp"]

_DATE = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_MODE = 0o644 << 16
_MAIN = """\
import os
import sys

# a link may lead to another loader soon, whose modules lie at other places of the file
sys.path[0] = os.path.realpath(sys.path[0])

from edgekit_device._bytecode import keep_bytecode

keep_bytecode()

from edgekit_device.__main__ import main

sys.exit(main())
"""


def build_zipapp(path: str | Path) -> str:
    """Writes ``edgekit_device`` as one file that Python runs and imports from.

    The board needs nothing else: ``python3 edgekit_device.pyz hello`` runs it, and with the file
    on ``sys.path`` its code is ``import edgekit_device``.

    Returns:
        SHA-256 (hex) of the file; the same sources give the same bytes.
    """
    import edgekit_device

    folder = Path(edgekit_device.__file__).parent
    files = {f"edgekit_device/{p.name}": p.read_bytes() for p in sorted(folder.glob("*.py"))}
    files["__main__.py"] = _MAIN.encode("ascii")
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    # stored, not deflated: zlib's output differs between its versions
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = _MODE
            entry.create_system = 3
            archive.writestr(entry, data)
    data = buffer.getvalue()
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(data)
        os.chmod(temporary, 0o755)
    return hashlib.sha256(data).hexdigest()
