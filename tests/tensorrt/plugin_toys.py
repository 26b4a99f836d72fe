"""Tiny plugin libraries, compiled by the system's C compiler."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

ENTRIES = ("getCreators", "getPluginCreators")
_AARCH64 = 183


def compiled(
    path: Path,
    source: str = "int plugin;\n",
    *,
    needed: Sequence[str] = (),
    options: Sequence[str] = (),
    machine: int | None = None,
) -> Path:
    """Compiles a shared library.

    Args:
        path: Where it goes.
        source: C.
        needed: Names of the libraries that it needs, which are made beside it without content.
        options: More options of the compiler.
        machine: The number of another machine, which is put into the file's header.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    libraries = []
    for name in needed:
        libraries.append(path.parent / name)
        _cc("int nothing;\n", libraries[-1], f"-Wl,-soname,{name}")
    _cc(source, path, "-Wl,--no-as-needed", f"-Wl,-rpath,{path.parent}", *libraries, *options)
    if machine is not None:
        path.write_bytes(for_machine(path.read_bytes(), machine))
    return path


def for_machine(data: bytes, machine: int = _AARCH64) -> bytes:
    """The same file, as one for another machine (e_machine)."""
    return data[:18] + struct.pack("<H", machine) + data[20:]


def plugin(
    path: Path,
    creators: str,
    *,
    entries: Sequence[str] = ENTRIES,
    more: str = "",
    needed: Sequence[str] = (),
    machine: int | None = None,
) -> Path:
    """Compiles a library whose creators the double of TensorRT registers.

    Args:
        path: Where it goes.
        creators: As "NAME|VERSION|NAMESPACE|FAMILY", separated by semicolons; FAMILY is V2 or V3.
        entries: The entry points that it has.
        more: More C.
        needed, machine: As of ``compiled``.
    """
    source = f'const char edgekit_test_creators[] = "{creators}";\n{more}\n'
    source += "".join(f"void *{name}(int *n) {{ *n = 0; return 0; }}\n" for name in entries)
    return compiled(path, source, needed=needed, machine=machine)


def _cc(source: str, path: Path, *options: object) -> None:
    command = ["cc", "-xc", "-", "-xnone", "-shared", "-fPIC", "-o", path, *options]
    subprocess.run(list(map(str, command)), input=source.encode(), check=True, capture_output=True)
