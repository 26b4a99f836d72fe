"""Reads and writes the documents that cross the wire or lie on the board, each defined once.

A document is a frozen dataclass whose fields say what they take::

    @document(frozen=True)
    class Lane:
        share: float = member(number(0, 1))
        segments: Tuple[SegmentEntry, ...] = member(records(SegmentEntry, least=1))

``document`` is ``dataclasses.dataclass``, made in a tenth of the time: the standard one compiles
five functions for each class, which was a third of a check.

A rule such as ``number(0, 1)`` takes a JSON value and returns what the field holds, or raises
DeviceError; whoever called it puts the place in front. ``stated`` tells its JSON Schema, from which
the published ones are made. A class may have a method ``check()`` for
what several of its fields say together. ``read`` makes the value of a document, ``write`` the
document of a value; ``load`` and ``dump`` do the same for a file on the board.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
from functools import lru_cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Callable,
    Dict,
    Hashable,
    List,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    cast,
)

from edgekit_device.errors import DeviceError

#: From a JSON value to what is held; raises DeviceError.
Rule = Callable[[Any], Any]
_Document = TypeVar("_Document")

_KEPT = object()
# attribute of a rule: its JSON Schema
_SCHEMA = "schema"
# attribute of a value that was read, as ``left_out`` returns it
_LEFT_OUT = "_left_out"
_CODE = "manifest.invalid"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
APP_NAMES = "letters, digits, '.', '_' and '-', at most 64, starting with a letter or digit"
_RELEASE = re.compile(r"[0-9]{6,9}-[0-9a-f]{12}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_TEXT = 4096
_MAX_RANK = 16
_MAX_COUNT = 1 << 20
_MAX_DIGITS = 400
_MAX_SIZE = 1 << 40
_MAX_FILE = 1 << 20
_MAX_VALUES = 1 << 22  # of a document; "[]," is 3 bytes of JSON and 64 of Python
# of a text from the document, in an error
_SHOWN = 80


if TYPE_CHECKING:
    from dataclasses import dataclass as document
else:

    def document(kind=None, *, frozen, eq=True, kw_only=False):
        """Makes a class a frozen dataclass: as ``dataclasses.dataclass(frozen=True)`` does, with
        methods that all classes share.
        """
        if kind is None:
            return lambda kind: document(kind, frozen=frozen, eq=eq, kw_only=kw_only)
        kind.__doc__ = kind.__doc__ or ""  # or the standard library writes one, slowly
        made = dataclasses.dataclass(init=False, repr=False, eq=False)(kind)
        fields = dataclasses.fields(made)
        # keywords alone are the class's own fields; those of its base stay as they are
        before = getattr(made, "_positional", ())
        own = () if kw_only else vars(kind).get("__annotations__", ())
        made._positional = tuple(f.name for f in fields if f.name in before or f.name in own)
        made.__init__ = _init(fields, made._positional, getattr(made, "__post_init__", None))
        made.__setattr__, made.__delattr__ = _refuse_change, _refuse_removal
        if "__repr__" not in vars(kind):
            made.__repr__ = _shown
        if eq:
            made.__eq__, made.__hash__ = _equals, _hash
        return made

    def _init(fields, positional, finish):
        names = tuple(field.name for field in fields)
        known = frozenset(names)
        values = {
            field.name: field.default
            for field in fields
            if field.default is not dataclasses.MISSING
        }
        makers = {
            field.name: field.default_factory
            for field in fields
            if field.default_factory is not dataclasses.MISSING
        }

        def __init__(self, *args, **given):
            held = self.__dict__
            if args:
                if len(args) > len(positional):
                    raise TypeError("{} arguments are too many".format(len(args)))
                held.update(zip(positional, args))  # noqa: B905
            if not known.issuperset(given) or not held.keys().isdisjoint(given):
                wrong = sorted(set(given) - known) or sorted(held.keys() & set(given))
                raise TypeError("unknown or repeated arguments: {}".format(", ".join(wrong)))
            held.update(given)
            if len(held) < len(names):
                for name, value in values.items():
                    held.setdefault(name, value)
                for name, make in makers.items():
                    if name not in held:
                        held[name] = make()
                missing = [name for name in names if name not in held]
                if missing:
                    raise TypeError("missing arguments: {}".format(", ".join(missing)))
            if finish is not None:
                finish(self)

        return __init__

    def _compared(self):
        return tuple(getattr(self, one.name) for one in dataclasses.fields(self) if one.compare)

    def _equals(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    def _hash(self):
        return hash(_compared(self))

    def _shown(self):
        values = (
            "{}={!r}".format(one.name, getattr(self, one.name))
            for one in dataclasses.fields(self)
            if one.repr
        )
        return "{}({})".format(self.__class__.__qualname__, ", ".join(values))

    def _refuse_change(self, name, value):
        raise dataclasses.FrozenInstanceError("cannot assign to field {!r}".format(name))

    def _refuse_removal(self, name):
        raise dataclasses.FrozenInstanceError("cannot delete field {!r}".format(name))


def fail(where: str, message: str, *, code: str = _CODE, hint: str = "") -> NoReturn:
    """Raises the DeviceError of a document that is wrong at ``where``, as seen from its caller."""
    raise DeviceError(message, code=code, where=where, hint=hint)


def member(
    rule: Rule,
    *,
    key: str = "",
    absent: Any = dataclasses.MISSING,
    default: Any = dataclasses.MISSING,
    always: bool = False,
    as_given: bool = False,
) -> Any:
    """A field of a document's class.

    Args:
        rule: What it takes.
        key: Its name in JSON, where that is another one.
        absent: What is held where a document leaves it out, which it may not do without this; a
            class such as ``dict`` is called.
        default: The same of a value that no document gave.
        always: Whether it is written also where it holds ``absent``.
        as_given: The same, unless the document that it was read from left it out.
    """
    needed = absent is dataclasses.MISSING
    held = default if needed else absent
    metadata = {
        "rule": rule,
        "key": key,
        "needed": needed,
        "always": always or as_given,
        "as_given": as_given,
    }
    if held is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    if isinstance(held, type):
        return dataclasses.field(default_factory=held, metadata=metadata)
    return dataclasses.field(default=held, metadata=metadata)


def read(
    kind: Type[_Document],
    document: object,
    where: str = "",
    *,
    code: str = _CODE,
    hint: str = "",
) -> _Document:
    """Returns the value of a document.

    Args:
        kind: The document's class.
        document: What ``parse_json`` returned.
        where: The document's name, for errors about all of it.
        code: Of errors, but for those of rules that have codes of their own.
        hint: Of errors that have none.

    Raises:
        DeviceError: ``code``, about the first field that is wrong.
    """
    return cast(_Document, take(record(kind), document, where, code=code, hint=hint))


def take(rule: Rule, value: object, where: str = "", *, code: str = _CODE, hint: str = "") -> Any:
    """Returns what ``rule`` makes of a value; the other arguments and errors are ``read``'s."""
    try:
        return rule(value)
    except DeviceError as error:
        raise DeviceError(
            error.message,
            code=code if error.code == _CODE else error.code,
            where=error.where or where,
            hint=error.hint or hint,
        ) from error


def write(value: Any) -> Any:
    """Returns the JSON document of a value; fields that hold what ``absent`` says are left out, and
    a path is its text.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if dataclasses.is_dataclass(value):
        unwritten = left_out(value)
        return {
            key: write(held)
            for name, key, absent in _written(value.__class__)
            if (held := getattr(value, name)) != absent and name not in unwritten
        }
    if isinstance(value, Mapping):
        return {name: write(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [write(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def left_out(value: Any) -> Sequence[str]:
    """Returns the fields which the document of a value left out, and ``write`` does, too."""
    found: Sequence[str] = getattr(value, _LEFT_OUT, ())
    return found


def without(value: _Document, *names: str) -> _Document:
    """Returns a value whose document leaves these fields out, which are ``as_given``."""
    fields = dataclasses.fields(cast(Any, value))
    found = type(value)(
        **{one.name: getattr(value, one.name) for one in fields if one.name not in names}
    )
    found.__dict__[_LEFT_OUT] = names
    return found


def load(
    kind: Type[_Document],
    path: Path,
    most: int = _MAX_FILE,
    *,
    schemas: Sequence[str] = (),
    mend: str = "",
) -> Optional[_Document]:
    """Returns the value of a document that the board keeps in a file; None where it is missing,
    damaged or larger than ``most`` bytes.

    Args:
        kind: The document's class.
        path: The file.
        most: Its largest size.
        schemas: Of a document that must not be forgotten, its schemas: another version of one is
            refused. Of any other document another version counts as missing.
        mend: As of ``refuse_version``.

    Raises:
        DeviceError: "state.version"; "root.link", "root.owner" or "root.writable".
    """
    # hashing is for files alone, and takes time that a check has not
    from edgekit_device.files import read_kept

    try:
        data = read_kept(path, most)
    except OSError:
        return None
    try:
        document = parse_json(data, path.name) if len(data) <= most else None
    except DeviceError:
        return None
    refuse_version(document, schemas, path, mend)
    try:
        return read(kind, document)
    except DeviceError:
        return None


def refuse_version(document: object, schemas: Sequence[str], path: Path, mend: str = "") -> None:
    """Refuses what another version of edgekit wrote: a document of another version of a schema.

    Args:
        document: What ``parse_json`` returned.
        schemas: What this version reads.
        path: The file.
        mend: The command that mends it; "" for one that moves the file away.

    Raises:
        DeviceError: "state.version".
    """
    found = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(found, str) or found in schemas:
        return
    if found.rpartition("/")[0] in [schema.rpartition("/")[0] for schema in schemas]:
        file = shlex.quote(str(path))
        raise DeviceError(
            "another edgekit version wrote this file: its schema is {}, and this one reads "
            "{}".format(found[:_SHOWN], " and ".join(schemas)),
            code="state.version",
            where=str(path),
            hint=mend
            or "use that edgekit version, or forget what it says: on the board, "
            "mv {0} {0}.old".format(file),
        )


def dump(value: Any) -> bytes:
    """Returns a document as such files hold it: one line with sorted keys."""
    return (json.dumps(write(value), sort_keys=True) + "\n").encode("utf-8")


@lru_cache(None)
def _written(kind: Any) -> List[Tuple[str, str, Any]]:
    """Field, key, and what it holds where it is left out; ``_KEPT`` for one that never is."""
    rows = []
    for item in dataclasses.fields(kind):
        if "rule" in item.metadata:
            absent = item.default
            if item.metadata["needed"] or item.metadata["always"]:
                absent = _KEPT
            elif item.default_factory is not dataclasses.MISSING:
                absent = item.default_factory()
            rows.append((item.name, item.metadata["key"] or item.name, absent))
    return rows


@lru_cache(None)
def _reader(kind: Any) -> Rule:
    rows, needed, as_given = [], [], []
    for item in dataclasses.fields(kind):
        if "rule" in item.metadata:
            key = item.metadata["key"] or item.name
            rows.append((item.name, key, item.metadata["rule"]))
            if item.metadata["needed"]:
                needed.append(key)
            elif item.metadata["as_given"]:
                as_given.append((item.name, key))
    reader = members(kind, rows, needed)

    def remembering(value: Any) -> Any:
        found = reader(value)
        unwritten = [name for name, key in as_given if key not in value]
        if unwritten:
            found.__dict__[_LEFT_OUT] = unwritten
        return found

    return says(remembering if as_given else reader, **{"$ref": kind})


def members(
    kind: Any, rows: Sequence[Tuple[str, str, Rule]], needed: Sequence[str], ignored: str = ""
) -> Rule:
    """An object as the class ``kind``: fields with their keys and rules.

    Args:
        kind: The class.
        rows: Field, key and rule.
        needed: The keys that must be there.
        ignored: A key that may be there and is not read.
    """
    known = frozenset((*(key for _, key, _ in rows), ignored))
    check = getattr(kind, "check", None)

    def reader(value: Any) -> Any:
        _check_names(value, needed, known)
        made, key = {}, ""
        try:
            for name, key, rule in rows:
                if key in value:
                    made[name] = rule(value[key])
        except DeviceError as error:
            _place(error, key)
            raise
        found = kind(**made)
        if check is not None:
            check(found)
        return found

    return reader


def _check_names(value: object, needed: Sequence[str], known: "frozenset[str]") -> None:
    if not isinstance(value, dict):
        fail("", "expected an object, found {}".format(_kind(value)))
    missing = [name for name in needed if name not in value]
    if missing:
        fail("", "missing: {}".format(", ".join(missing)))
    if not known.issuperset(value):
        unknown = sorted(set(value) - known)
        fail("", "unknown: {}".format(", ".join(repr(name)[:_SHOWN] for name in unknown[:5])))


def _place(error: DeviceError, place: str) -> None:
    """Puts ``place`` in front of where the error is."""
    rest = error.where
    error.where = place + ("." if rest and not rest.startswith("[") else "") + rest


# --- rules


def record(kind: type) -> Rule:
    """An object as the class ``kind`` has it."""
    return _reader(cast(Hashable, kind))


def says(rule: Rule, **schema: Any) -> Rule:
    """Returns ``rule``, with the JSON Schema of what it takes.

    Args:
        rule: The rule, of which nothing else has the schema.
        schema: The keywords of JSON Schema. A rule or a class stands for its own schema.
    """
    rule.__dict__[_SCHEMA] = schema
    return rule


def stated(rule: Rule) -> Dict[str, object]:
    """The JSON Schema that ``says`` gave a rule; of a rule without one, any value."""
    found: Dict[str, object] = rule.__dict__.get(_SCHEMA, {})
    return found


def nullable(rule: Rule) -> Rule:
    """What ``rule`` takes, or null."""
    return says(
        lambda value: None if value is None else rule(value), anyOf=(rule, {"type": "null"})
    )


def array(rule: Rule, least: int = 0, most: int = _MAX_COUNT) -> Rule:
    """A list of ``least`` to ``most`` entries, as a tuple."""

    def found(value: Any) -> Tuple[Any, ...]:
        if not isinstance(value, list):
            fail("", "expected a list, found {}".format(_kind(value)))
        if not least <= len(value) <= most:
            fail("", "{} entries are too few or too many".format(len(value)))
        made: List[Any] = []
        try:
            for item in value:
                made.append(rule(item))
        except DeviceError as error:
            _place(error, "[{}]".format(len(made)))
            raise
        return tuple(made)

    return says(found, type="array", items=rule, minItems=least, maxItems=most)


def records(kind: type, least: int = 0, most: int = _MAX_COUNT, *, by: str = "") -> Rule:
    """A list of objects; their values of the field ``by`` are different names."""
    entries, different = array(record(kind), least, most), names()

    def rule(value: Any) -> Any:
        found = entries(value)
        if by:
            different([getattr(item, by) for item in found])
        return found

    return says(rule, **stated(entries))


def mapping(rule: Rule, keys: "Rule | None" = None, least: int = 0) -> Rule:
    """An object of any names that ``keys`` takes, each with what ``rule`` takes."""
    checked = keys or text()

    def found(value: Any) -> Dict[str, object]:
        if not isinstance(value, dict):
            fail("", "expected an object, found {}".format(_kind(value)))
        if len(value) < least:
            fail("", "an object of fewer than {} entries".format(least))
        made, name = {}, ""
        for name in value:
            checked(name)
        try:
            for name, item in value.items():
                made[name] = rule(item)
        except DeviceError as error:
            _place(error, name[:_SHOWN])
            raise
        return made

    return says(
        found, type="object", additionalProperties=rule, propertyNames=checked, minProperties=least
    )


def text(pattern: str = "", what: str = "", most: int = _MAX_TEXT) -> Rule:
    """A string of at most ``most`` characters; ``what`` says what one is that ``pattern`` matches
    as a whole.
    """

    def rule(value: Any) -> str:
        if not isinstance(value, str):
            fail("", "expected a string, found {}".format(_kind(value)))
        if len(value) > most:
            fail("", "a string of {} characters is too long".format(len(value)))
        # compiled when a document is read: a check makes rules that it never uses
        if pattern and not re.fullmatch(pattern, value):
            fail("", "{!r} is not {}".format(value[:_SHOWN], what))
        return value

    if pattern:
        return says(rule, type="string", maxLength=most, pattern="^(?:" + pattern + ")$")
    return says(rule, type="string", maxLength=most)


def names(least: int = 0, rule: "Rule | None" = None) -> Rule:
    """A list of different, non-empty strings without control characters, as a tuple."""
    take = array(rule or text(), least)

    def found(value: Any) -> Tuple[str, ...]:
        given: Tuple[str, ...] = take(value)
        if "" in given or len(set(given)) != len(given):
            fail("", "names must be different and not empty")
        if any(_CONTROL.search(name) for name in given):
            fail("", "a name has control characters")
        return given

    return says(found, **stated(take), uniqueItems=True)


def choice(*known: str) -> Rule:
    """One of these strings."""

    def rule(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            fail("", "{!r} is not one of {}".format(str(value)[:_SHOWN], ", ".join(known)))
        return value

    return says(rule, type="string", enum=known)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        fail("", "expected true or false, found {}".format(_kind(value)))
    return value


says(flag, type="boolean")


def integer(low: int, high: int) -> Rule:
    """An integer (not a bool) from ``low`` to ``high``."""

    def rule(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            fail("", "expected an integer, found {}".format(_kind(value)))
        if not low <= value <= high:
            fail("", "{} is not within {} to {}".format(value, low, high))
        return value

    return says(rule, type="integer", minimum=low, maximum=high)


def number(low: float, high: float) -> Rule:
    """A finite number from ``low`` to ``high``, as a float."""

    def rule(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            fail("", "expected a number, found {}".format(_kind(value)))
        if not low <= value <= high:
            fail("", "{!r} is not within {} to {}".format(value, low, high))
        return float(value)

    return says(rule, type="number", minimum=low, maximum=high)


def as_written(rule: Rule) -> Rule:
    """What ``rule`` takes, as it was written: 5 does not become 5.0."""

    def found(value: Any) -> Any:
        rule(value)
        return value

    return says(found, **stated(rule))


#: A finite number as it was written. Beyond these arithmetic overflows.
amount = as_written(number(-1e100, 1e100))

#: A text of any length, such as a message with names.
long_text = text(most=_MAX_FILE)

#: A SHA-256 in lower-case hex.
digest = text(_DIGEST.pattern, "a SHA-256 in lower-case hex")

#: An app's name, and so a folder's.
app_name = text(_APP.pattern, "an app's name: " + APP_NAMES)

#: A release's name.
release_name = text(_RELEASE.pattern, "a release's name")


def path(value: Any) -> Path:
    """The text of a file's path."""
    return Path(_TEXT(value))


_TEXT = text()
says(path, **stated(_TEXT))


def shape(least: int = 0) -> Rule:
    """Sizes of a tensor from ``least`` on: -1 where one is open."""
    return array(integer(least, _MAX_SIZE), 0, _MAX_RANK)


def anything(value: Any) -> Any:
    """Any JSON value, as it is."""
    return value


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


# --- texts and bytes


def is_digest(value: object) -> bool:
    """Whether ``value`` is a SHA-256 in lower-case hex."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def is_app_name(value: object) -> bool:
    """Whether ``value`` can be an app's name, and so a folder's."""
    return isinstance(value, str) and _APP.fullmatch(value) is not None


def is_release(value: object) -> bool:
    """Whether ``value`` can be a release's name: its number and the start of its digest."""
    return isinstance(value, str) and _RELEASE.fullmatch(value) is not None


def parse_json(data: bytes, where: str, code: str = "manifest.invalid") -> Any:
    """Reads strict JSON: UTF-8, no duplicate keys, no NaN or Infinity, no number beyond a double.

    Raises:
        DeviceError: ``code``, when it is anything else.
    """

    def pairs(items: List[Tuple[str, Any]]) -> Dict[str, object]:
        found = dict(items)
        if len(found) != len(items):
            fail(where, "a key occurs twice in one object", code=code)
        return found

    def constant(name: str) -> NoReturn:
        fail(where, "{} is not a JSON number".format(name), code=code)

    def whole(digits: str) -> int:
        # Python before 3.11 takes quadratic time for millions of digits
        if len(digits) > _MAX_DIGITS:
            fail(where, "a number of {} digits".format(len(digits)), code=code)
        return int(digits)

    def broken(digits: str) -> float:
        if len(digits) > _MAX_DIGITS or not math.isfinite(float(digits)):
            fail(where, "{} is not allowed as a number here".format(digits[:40]), code=code)
        return float(digits)

    if len(data) > _MAX_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > _MAX_VALUES:
        fail(where, "it has more than {} values".format(_MAX_VALUES), code=code)
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=pairs,
            parse_constant=constant,
            parse_int=whole,
            parse_float=broken,
        )
    except (ValueError, RecursionError) as error:
        raise DeviceError("not JSON: {}".format(error), code=code, where=where) from error


def read_json(stdin: BinaryIO, most: int) -> Any:
    """The one JSON document on stdin, of at most ``most`` bytes; "protocol.invalid"."""
    data = stdin.read(most + 1)
    if len(data) > most:
        fail("stdin", "more than {} bytes".format(most), code="protocol.invalid")
    return parse_json(data, "stdin", "protocol.invalid")


def read_digests(stdin: BinaryIO, most: int) -> Tuple[str, ...]:
    """The list of digests on stdin, of at most ``most`` bytes; "protocol.invalid"."""
    digests: Tuple[str, ...] = take(
        array(digest), read_json(stdin, most), "stdin", code="protocol.invalid"
    )
    return digests
