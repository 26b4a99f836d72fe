"""How a recorded document is written, read and compared, and where byte-exact ones hold.

A document is a text file with sorted keys and one small element a line. In lists of objects, which
are long (layers, reformats), an element is one row under the columns' names, and a long value in it
is a digest: a difference names the list, the element and the key. "~" begins the digest of a value
that holds floats and is compared only where the bytes hold, "#" that of any other. A cell "-" is
the column's usual value, "=" is the name of the row alone in a list.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import platform
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = [
    "FOLDER",
    "LOCK",
    "as_recorded",
    "compact",
    "differences",
    "environment_of",
    "here",
    "locked",
    "read",
    "text_of",
]

FOLDER = Path(__file__).parent / "golden"
LOCK = Path(__file__).parents[2] / "requirements-lock.txt"
WIDTH = 110  # of a line with a small element
CELL = 56  # longer values in a row are digests
TEXT = 120  # longer texts in a row, too
NAMED = 24  # so are longer lists of plain values, and objects of few different values
# what NumPy, OpenBLAS and ONNX Runtime choose their kernels by
CPU_FLAGS = (
    "avx2",
    "fma",
    "avx512f",
    "avx512dq",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "amx_int8",
    "asimd",
    "asimddp",
    "asimdhp",
    "i8mm",
    "bf16",
    "sve",
)


# --- the environment in which bytes and exact floats hold


@cache
def here() -> str:
    """The facts that bytes depend on: packages, Python and the class of the CPU, as JSON."""
    python = ".".join(map(str, sys.version_info[:2]))
    return json.dumps({"cpu": _cpu(), "lock": _lock(), "python": python}, indent=1)


def environment_of(name: str) -> Path:
    """Where it stands in which environment a document was recorded, if not in that of all."""
    return FOLDER / f"{name}.environment.json"


def as_recorded(name: str) -> bool:
    """Whether this is the environment in which the document was recorded: bytes hold."""
    own = environment_of(name)
    recorded = own if own.exists() else FOLDER / "environment.json"
    return recorded.exists() and recorded.read_text().strip() == here()


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    fields = dict(re.findall(r"^([\w ]+?)\s*:[ \t]*(.*)$", text, re.MULTILINE))
    have = set((fields.get("flags") or fields.get("Features", "")).split())
    vendor = fields.get("vendor_id") or fields.get("CPU implementer", "")
    return " ".join([platform.machine(), vendor, *(flag for flag in CPU_FLAGS if flag in have)])


def locked() -> str:
    """The digest of the lock file."""
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]


def _lock() -> str:
    """The digest of the lock file, or what is installed in another version than it says."""
    text = LOCK.read_text()
    wanted: dict[str, list[str]] = {}  # several versions where the newer Pythons have newer ones
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE):
        wanted.setdefault(name, []).append(version)
    for name, versions in wanted.items():
        with contextlib.suppress(metadata.PackageNotFoundError):  # of another platform
            if (found := metadata.version(name)) not in versions:
                return f"{name} {found}, not {' or '.join(versions)}"
    return locked()


# --- the compact form


def compact(value: Any) -> Any:
    """The document as it is stored and compared."""
    if isinstance(value, dict):
        if len(value) > NAMED and len({*map(str, value.values())}) <= 4:
            words = dict.fromkeys(map(str, value.values()))  # device by layer: digests by device
            return {
                word: _digest([key for key in value if str(value[key]) == word]) for word in words
            }
        return {key: compact(one) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) > 3 and all(isinstance(one, dict) for one in value):
        return [{key: _cell(one) for key, one in row.items()} for row in value]
    plain = not any(isinstance(one, dict | list | tuple) for one in value)
    if plain and len(value) > NAMED:
        return _digest(value)
    return [compact(one) for one in value]


def _cell(value: Any) -> Any:
    if len(_line(value)) <= (TEXT if isinstance(value, str) else CELL):
        return value
    if isinstance(value, list) and len(value) > 3 and all(isinstance(one, dict) for one in value):
        # a table in a table: a digest a column
        keys = {key: None for one in value for key in one}
        return {key: _digest([one.get(key) for one in value]) for key in keys}
    return _digest(value)


def _digest(value: Any) -> str:
    line = _line(value)
    digest = hashlib.sha256(line.encode()).hexdigest()[:10]
    return f"{'~' if _has_float(value) else '#'}{digest} {len(value)} {line[1:20]}…"


def _has_float(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_has_float, value.values() if isinstance(value, dict) else value))
    # numbers stand in messages, too
    return isinstance(value, float) or (
        isinstance(value, str) and bool(re.search(r"\d\.\d", value))
    )


# --- text


def text_of(document: Any) -> str:
    """The text of a stored document."""
    return _text(document, "") + "\n"


def read(text: str) -> Any:
    """What ``text_of`` wrote."""
    return json.loads(text, object_hook=_rows)


def _rows(value: dict[str, Any]) -> Any:
    if set(value) != {"columns", "rows"}:
        return value
    usual = value["columns"]
    return [
        {
            key: usual[key] if cell == "-" else [row[0]] if cell == "=" else cell
            for key, cell in zip(usual, row, strict=True)
        }
        for row in value["rows"]
    ]


def _text(value: Any, indent: str) -> str:
    line = _line(value)
    if len(line) + len(indent) <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{_line(key)}: {_text(value[key], inner)}" for key in _keys(value)]
        return "{\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}}}"
    if len(value) > 3 and all(isinstance(one, dict) and set(one) == set(value[0]) for one in value):
        usual = {key: _usual([one[key] for one in value]) for key in _keys(value[0])}
        parts = [_line(_row(one, usual)) for one in value]
        head = f'{{"columns": {_line(usual)}, "rows": [\n'
        return head + ",\n".join(inner + part for part in parts) + f"\n{indent}]}}"
    parts = [_text(one, inner) for one in value]
    return "[\n" + ",\n".join(inner + part for part in parts) + f"\n{indent}]"


def _usual(values: list[Any]) -> Any:
    """The most frequent value, where it is frequent and long."""
    lines = [_line(one) for one in values]
    most = max(lines, key=lines.count)
    frequent = len(most) > 3 and lines.count(most) > len(lines) / 4
    return json.loads(most) if frequent else None


def _row(value: dict[str, Any], usual: dict[str, Any]) -> list[Any]:
    name = next(iter(usual))
    return [
        "-"
        if _line(value[key]) == _line(one)
        else "="
        if value[key] == [value[name]]
        else value[key]
        for key, one in usual.items()
    ]


def _keys(value: dict[str, Any]) -> list[str]:
    return sorted(value, key=lambda key: (key != "name", key))


def _line(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_line(key)}: {_line(value[key])}" for key in _keys(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_line, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# --- comparison


def differences(old: Any, new: Any, tolerance: float | None, path: str = "") -> Iterator[str]:
    """One line for each place where two stored documents differ.

    Floats may differ by the relative ``tolerance``; None compares them, and all digests, exactly.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            at = f"{path}.{key}" if path else str(key)
            if key not in new:
                yield f"{at}: gone, was {_short(old[key])}"
            elif key not in old:
                yield f"{at}: new, {_short(new[key])}"
            else:
                yield from differences(old[key], new[key], tolerance, at)
    elif isinstance(old, list) and isinstance(new, list):
        rows = _by_name(old), _by_name(new)
        if rows[0] is not None and rows[1] is not None:
            yield from differences(*rows, tolerance, path)
            if list(rows[0]) != list(rows[1]) and rows[0].keys() == rows[1].keys():
                yield f"{path}: in another order"
            return
        if len(old) != len(new):
            yield f"{path}: {len(old)} elements, now {len(new)}: {_short(old)} -> {_short(new)}"
        for index, pair in enumerate(zip(old, new, strict=False)):
            yield from differences(*pair, tolerance, f"{path}[{index}]")
    elif not _same(old, new, tolerance):
        yield f"{path}: {_short(old)} -> {_short(new)}"


def _by_name(value: list[Any]) -> dict[str, Any] | None:
    names = [one.get("name") for one in value if isinstance(one, dict)]
    if len(names) != len(value) or len({*names} - {None}) != len(value):
        return None
    return {str(one["name"]): one for one in value}


def _same(old: Any, new: Any, tolerance: float | None) -> bool:
    if tolerance is not None:
        if isinstance(old, float) and isinstance(new, float | int):
            return math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance)
        if isinstance(old, str) and isinstance(new, str):
            if old[:1] == new[:1] == "~":
                return True
            return _same_text(_HASH.sub("", old), _HASH.sub("", new), tolerance)
    return type(old) is type(new) and bool(old == new)


_HASH = re.compile(r"(?<!#)\b[0-9a-f]{12,64}\b")  # of what holds floats, somewhere
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def _same_text(old: str, new: str, tolerance: float) -> bool:
    """Texts may round a float that differs a little to another last digit."""
    if _NUMBER.sub("", old) != _NUMBER.sub("", new):
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    return all(
        abs(float(a) - float(b)) <= abs(float(a)) * tolerance + 1.001 * 10 ** -len(a.split(".")[1])
        if "e" not in a
        else math.isclose(float(a), float(b), rel_tol=max(tolerance, 1e-2))
        for a, b in pairs
    )


def _short(value: Any) -> str:
    line = _line(value)
    return line if len(line) <= 160 else f"{line[:150]}… ({len(line)} characters)"
