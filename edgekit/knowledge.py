"""Paths and readers of the YAML files that edgekit ships (boards, DLA rules, TensorRT releases).
Parsed files are kept as JSON in the cache folder, since parsing YAML would take a quarter of the
time of a check.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import zlib
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from edgekit.errors import DataError, EnvironmentLack
from edgekit.files import cache_folder, write_atomically
from edgekit.version import __version__
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import (
    Rule,
    anything,
    array,
    document,
    flag,
    integer,
    mapping,
    members,
    nullable,
    number,
    read,
    text,
)

_FOLDER = "facts"
_Document = TypeVar("_Document")
_MOST = 1 << 62
_PLAIN: Mapping[type, Rule] = {
    float: number(0, float(_MOST)),
    int: integer(0, _MOST),
    str: text(),
    bool: flag,
}


@cache
def data_folder(kind: str) -> Path:
    """Returns the folder of ``kind`` ("targets", "dla" or "trt")."""
    package = Path(__file__).resolve().parent
    packed = package / "_data" / kind
    return packed if packed.is_dir() else package.parent / kind


def read_knowledge(path: Path) -> Any:
    """Returns the content of a YAML file, as plain values that no other code holds.

    YAML is parsed once; the values are kept as JSON in the cache folder and used while the file is
    unchanged. Only edgekit's own files are kept. A cache that is stale, damaged or cannot be
    written is no failure.

    Raises:
        DataError: It is not YAML (code "data.yaml"); ``where`` is file:line:column.
        OSError: It cannot be read.
    """
    content = path.read_bytes()
    if data_folder("dla").parent not in path.parents:
        return _parse(content, path)
    # the version, since another edgekit may read YAML in another way
    key = _digest(__version__.encode() + content)
    # two installations side by side keep theirs apart
    home = zlib.crc32(os.fsencode(path.parent))
    cached = cache_folder() / _FOLDER / f"{path.parent.name}-{path.stem}-{home:08x}.json"
    record = _read_parsed_cache(cached, key)
    if record is not None:
        # parsed each time: the caller may change the values
        return json.loads(record)
    value = _parse(content, path)
    _store_parsed(cached, key, value)
    return value


def read_document(kind: type[_Document], path: Path, code: str = "data.invalid") -> _Document:
    """Returns the content of a YAML file as an object of a codec class.

    Raises:
        DataError: It is not YAML (code "data.yaml"), or a key or value is wrong (``code``): the
            message begins with its place in the file.
        OSError: It cannot be read.
    """
    content = read_knowledge(path)
    try:
        return read(kind, content)
    except DeviceError as error:
        raise _document_error(error, path, code) from error


def _document_error(error: DeviceError, path: Path, code: str) -> DataError:
    place = f"{error.where}: " if error.where else ""
    return DataError(
        f"{place}{error.message}",
        code=code,
        where=str(path),
        hint=f"copy the structure of another file under {path.parent.name}/",
    )


def _digest(content: bytes) -> bytes:
    # against edits and damage, not against somebody: the folder keeps others out; and importing
    # hashlib would take ten times as long as all of these sums
    return b"%d-%08x-%08x" % (len(content), zlib.crc32(content), zlib.adler32(content))


def _read_parsed_cache(path: Path, key: bytes) -> bytes | None:
    """Returns the JSON kept for ``key``. The file has three lines: key, digest and JSON."""
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

    # libyaml's, where PyYAML was built with it, takes a tenth of the time
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(content, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        message = getattr(error, "problem", None) or "this is not YAML"
        raise DataError(message, code="data.yaml", where=place) from error


def _store_parsed(path: Path, key: bytes, value: Any) -> None:
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


def read_facts(kind: type[_Document], path: Path, schema: str) -> _Document:
    """Returns the content of a knowledge file as its class.

    The annotations of the class are the types of its keys: ``float``, ``int`` (0 or more), ``str``,
    ``bool``, tuples, mappings by text or number, other such classes, or ``X | None`` of any of
    these. A key without a default is needed, and no other key is known but "source": where facts
    come from.

    Args:
        kind: A document's class.
        path: The file.
        schema: Of the file, such as "edgekit.costs/1".

    Raises:
        DataError: As of :func:`read_document`; another schema, too.
        OSError: It cannot be read.
    """
    content = read_knowledge(path)
    found = content.pop("schema", None) if isinstance(content, dict) else None
    try:
        if found != schema:
            raise DeviceError(f"{found!r} is not {schema}", code="", where="schema")
        read_by_type: _Document = _rule_of_type(cast(Hashable, kind))(content)
    except DeviceError as error:
        raise _document_error(error, path, "data.invalid") from error
    return read_by_type


@document(frozen=True)
class Source:
    """A source of facts: the title for messages, and the place."""

    title: str
    where: str


@document(frozen=True)
class _SourcesFile:
    """``trt/_sources.yaml``."""

    sources: Mapping[str, Source]


@cache
def tensorrt_sources() -> Mapping[str, Source]:
    """Returns the sources of ``trt/_sources.yaml`` by their keys."""
    path = data_folder("trt") / "_sources.yaml"
    return read_facts(_SourcesFile, path, "edgekit.sources/1").sources


@cache
def _rule_of_type(kind: Any) -> Rule:
    """Returns the rule of an annotation."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Mapping:
        return mapping(_rule_of_type(parts[1]), _rule_of_type(parts[0]))
    if origin is tuple and parts[-1] is ...:
        return array(_rule_of_type(parts[0]))
    if origin is tuple:
        return _tuple_rule([_rule_of_type(part) for part in parts])
    if origin is not None:
        return nullable(_rule_of_type(parts[0]))
    hints = get_type_hints(kind)
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    rows = [
        (field.name, field.name, _rule_of_type(hints[field.name]))
        for field in dataclasses.fields(kind)
    ]
    return members(kind, rows, needed, "source")


def _tuple_rule(rules: Sequence[Rule]) -> Rule:
    """A list of one entry for each rule, as a tuple."""
    entries = array(anything, len(rules), len(rules))
    return lambda value: tuple(
        rule(entry) for rule, entry in zip(rules, entries(value), strict=True)
    )
