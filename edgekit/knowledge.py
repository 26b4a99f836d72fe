"""The YAML files that edgekit ships (boards, DLA rules, TensorRT releases): where they lie, and
how they are read. Parsed files are kept as JSON in the cache folder, since parsing YAML would
take a quarter of the time of a check.
"""

from __future__ import annotations

import json
import math
import os
import stat
import zlib
from collections.abc import Mapping
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from edgekit.errors import DataError, EnvironmentLack
from edgekit.version import __version__

_FOLDER = "facts"
_File = TypeVar("_File", bound="Facts")
_WORDS = {float: "number", int: "whole number", str: "text", bool: "truth value"}


@cache
def data_folder(kind: str) -> Path:
    """Returns the folder of ``kind`` ("targets", "dla" or "trt")."""
    package = Path(__file__).resolve().parent
    packed = package / "_data" / kind
    return packed if packed.is_dir() else package.parent / kind


def cache_folder() -> Path:
    """Returns $EDGEKIT_CACHE, $XDG_CACHE_HOME/edgekit or ~/.cache/edgekit."""
    if chosen := os.environ.get("EDGEKIT_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "edgekit"


# Reads the knowledge files: YAML once, and from then on the same values kept as JSON.
#
# The check of a model takes about as long as reading it; parsing YAML would be a quarter of that.
# What is kept is named after the file and believed only for the very file that it was made from.


def read_knowledge(path: Path) -> Any:
    """Returns the content of a YAML file, as plain values that no other code holds.

    Only files of edgekit's own are kept. A cache that is stale, damaged or cannot be written is no
    failure.

    Raises:
        DataError: It is not YAML (code "data.yaml"); ``where`` is file:line:column.
        OSError: It cannot be read.
    """
    content = path.read_bytes()
    if data_folder("dla").parent not in path.parents:
        return _parse(content, path)
    key = _digest(__version__.encode() + content)
    # two installations side by side keep theirs apart
    home = zlib.crc32(os.fsencode(path.parent))
    cached = cache_folder() / _FOLDER / f"{path.parent.name}-{path.stem}-{home:08x}.json"
    record = _parsed_before(cached, key)
    if record is not None:
        return json.loads(record)
    value = _parse(content, path)
    _store_parsed(cached, key, value)
    return value


def _digest(content: bytes) -> bytes:
    # against edits and damage, not against somebody: the folder keeps others out; and importing
    # hashlib would take ten times as long as all of these sums
    return b"%d-%08x-%08x" % (len(content), zlib.crc32(content), zlib.adler32(content))


def _parsed_before(path: Path, key: bytes) -> bytes | None:
    """Returns the JSON kept for ``key``: key, digest and JSON stand on a line each."""
    try:
        found, digest, text = path.read_bytes().split(b"\n", 2)
        if found == key and digest == _digest(text) and _is_private(path.parent):
            return text
    except (OSError, ValueError):
        pass
    return None


def _is_private(folder: Path) -> bool:
    """Whether no other user could have written there, so that the digest means something."""
    status = folder.stat()
    mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return mine and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _parse(content: bytes, path: Path) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(content, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        message = getattr(error, "problem", None) or "this is not YAML"
        raise DataError(message, code="data.yaml", where=place) from error


def _store_parsed(path: Path, key: bytes, value: Any) -> None:
    from edgekit.files import write_atomically

    try:
        text = json.dumps(value).encode()
        # dates and keys that are no texts are YAML's alone: such a file is read anew each time
        if json.loads(text) == value:
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with write_atomically(path) as temporary:
                temporary.write_bytes(b"\n".join((key, _digest(text), text)))
    except (OSError, TypeError, ValueError, EnvironmentLack):
        pass


class Facts:
    """What a knowledge file, or a part of one, holds: frozen, with the attributes that its class
    annotates. To make a dataclass instead would take milliseconds, at the start of each check.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")


def read_facts(kind: type[_File], path: Path, schema: str) -> _File:
    """Returns the content of a knowledge file as its class.

    The annotations of the class say what its keys hold: ``float`` and ``int`` (0 or more), ``str``,
    ``bool``, tuples, mappings by text, other classes of facts, or ``X | None`` of any of these. A
    key without a default is needed, and no other key is known but "source": where facts come from.

    Args:
        kind: Its class.
        path: The file.
        schema: Of the file, such as "edgekit.costs/1".

    Raises:
        DataError: It is not YAML (code "data.yaml"), or a key or value is wrong ("data.invalid");
            the message begins with the place in the file.
        OSError: It cannot be read.
    """
    content = read_knowledge(path)
    try:
        found = content.pop("schema", None) if isinstance(content, dict) else None
        if found != schema:
            raise _Wrong("schema", f"{found!r} is not {schema}")
        read: _File = _fact(kind, content, "")
    except _Wrong as wrong:
        raise DataError(
            f"{wrong.place}: {wrong}",
            code="data.invalid",
            where=str(path),
            hint="restore the file, or install edgekit again",
        ) from None
    return read


class _Wrong(Exception):
    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place = place.removeprefix(".")


def _fact(kind: Any, value: Any, place: str) -> Any:
    """Returns a value as its annotation says it."""
    if kind in _WORDS:
        return _plain(kind, value, place)
    if isinstance(kind, type) and issubclass(kind, Facts):
        return _record(kind, value, place)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        if not isinstance(value, list) or (parts[-1] is not ... and len(value) != len(parts)):
            raise _Wrong(place, f"{value!r:.60} is no list, or not as long as it should be")
        kinds = repeat(parts[0]) if parts[-1] is ... else parts
        return tuple(
            _fact(one, item, f"{place}[{number}]")
            for number, (one, item) in enumerate(zip(kinds, value, strict=False))
        )
    if origin is Mapping:
        if not isinstance(value, dict):
            raise _Wrong(place, f"{value!r:.60} is no mapping")
        return {key: _fact(parts[1], item, f"{place}.{key}") for key, item in value.items()}
    return None if value is None else _fact(parts[0], value, place)


def _plain(kind: type[Any], value: Any, place: str) -> Any:
    expected = (int, float) if kind is float else kind
    if not isinstance(value, expected) or (isinstance(value, bool) and kind is not bool):
        raise _Wrong(place, f"{value!r:.60} is no {_WORDS[kind]}")
    if kind in (int, float) and not 0 <= value < math.inf:
        raise _Wrong(place, f"{value!r} is negative or no number")
    return kind(value)


def _record(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        raise _Wrong(place, f"{value!r:.60} is no mapping")
    kinds = _annotations(kind)
    for key in value:
        if key not in kinds and key != "source":
            raise _Wrong(f"{place}.{key}", "unknown key")
    for key in kinds:
        if key not in value and not hasattr(kind, key):
            raise _Wrong(f"{place}.{key}", "missing")
    return kind(**{
        key: _fact(one, value[key], f"{place}.{key}") for key, one in kinds.items() if key in value
    })  # fmt: skip


@cache
def _annotations(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)
