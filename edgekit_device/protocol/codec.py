"""Reads and writes the documents that are sent to the board or kept there, each defined once.

A document is a frozen dataclass; each field has a rule for its values::

    @document(frozen=True)
    class Lane:
        share: float = member(number(0, 1))
        segments: Tuple[SegmentEntry, ...] = member(records(SegmentEntry, least=1))

``document`` is ``dataclasses.dataclass``, made in a tenth of the time: the standard one compiles
five functions for each class, which was a third of a check.

A rule such as ``number(0, 1)`` takes a JSON value and returns the field's value, or raises
DeviceError; its caller adds the place. ``rule_schema`` returns its JSON Schema, from which the
published schemas are made. A class may have a method ``check()`` for conditions on several fields.
``read`` turns a document into a value, ``write`` a value into a document; ``load`` and ``dump`` do
the same for a file on the board.
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

#: Converts a JSON value to a field's value; raises DeviceError.
Rule = Callable[[Any], Any]
_Document = TypeVar("_Document")

# equal to no value: the field is never left out
_KEPT = object()
# attribute of a rule: its JSON Schema
_SCHEMA = "schema"
# attribute of a value that was read: the fields that ``omitted_fields`` returns
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
# a double's largest number has 309 digits
_MAX_DIGITS = 400
_MAX_SIZE = 1 << 40
_MAX_FILE = 1 << 20
_MAX_VALUES = 1 << 22  # of a document; "[]," is 3 bytes of JSON and 64 of Python
# characters of a document's text that an error shows
_SHOWN = 80


if TYPE_CHECKING:
    from dataclasses import dataclass as document
else:

    def document(kind=None, *, frozen, eq=True, kw_only=False):
        """Makes a class a frozen dataclass, like ``dataclasses.dataclass(frozen=True)``, but with
        methods that all classes share.
        """
        if kind is None:
            return lambda kind: document(kind, frozen=frozen, eq=eq, kw_only=kw_only)
        kind.__doc__ = kind.__doc__ or ""  # else the standard library generates it, slowly
        made = dataclasses.dataclass(init=False, repr=False, eq=False)(kind)
        fields = dataclasses.fields(made)
        # only the class's own fields become keyword-only; those of its base do not change
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
            # directly: ``__setattr__`` refuses changes
            held = self.__dict__
            if args:
                if len(args) > len(positional):
                    raise TypeError("{} arguments are too many".format(len(args)))
                held.update(zip(positional, args))  # noqa: B905
            if not known.issuperset(given) or not held.keys().isdisjoint(given):
                wrong = sorted(set(given) - known) or sorted(held.keys() & set(given))
                raise TypeError("unknown or repeated arguments: {}".format(", ".join(wrong)))
            held.update(given)
            # a document that was read gives most fields: defaults are looked up only if some are
            # missing
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
        return tuple(
            getattr(self, field.name) for field in dataclasses.fields(self) if field.compare
        )

    def _equals(self, other):
        # as a standard dataclass: a base's value never equals a subclass's
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _compared(self) == _compared(other)

    def _hash(self):
        return hash(_compared(self))

    def _shown(self):
        values = (
            "{}={!r}".format(field.name, getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.repr
        )
        return "{}({})".format(self.__class__.__qualname__, ", ".join(values))

    def _refuse_change(self, name, value):
        raise dataclasses.FrozenInstanceError("cannot assign to field {!r}".format(name))

    def _refuse_removal(self, name):
        raise dataclasses.FrozenInstanceError("cannot delete field {!r}".format(name))


def fail(where: str, message: str, *, code: str = _CODE, hint: str = "") -> NoReturn:
    """Raises the DeviceError of a document that is wrong at ``where``, relative to the caller."""
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
    """Returns a field of a document's class.

    Args:
        rule: Rule for its values.
        key: Its name in JSON, if different.
        absent: Value if a document leaves the field out; without it the field is required. A class
            such as ``dict`` is called.
        default: Value of a required field if the constructor is not given any.
        always: True to write the field even if it equals ``absent``.
        as_given: Like ``always``, unless the document that it was read from left it out.
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
        document: The result of ``parse_json``.
        where: The document's name, for errors about the whole document.
        code: Code of errors, except for rules with codes of their own.
        hint: Hint of errors that have none.

    Raises:
        DeviceError: ``code``, about the first field that is wrong.
    """
    return cast(_Document, take(record(kind), document, where, code=code, hint=hint))


def take(rule: Rule, value: object, where: str = "", *, code: str = _CODE, hint: str = "") -> Any:
    """Returns the result of ``rule`` for a value; other arguments and errors as in ``read``."""
    try:
        return rule(value)
    except DeviceError as error:
        raise DeviceError(
            error.message,
            # a rule's own code stays; the general code becomes the caller's
            code=code if error.code == _CODE else error.code,
            where=error.where or where,
            hint=error.hint or hint,
        ) from error


def write(value: Any) -> Any:
    """Returns the JSON document of a value, without fields that equal ``absent``; a path becomes
    its text.
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if dataclasses.is_dataclass(value):
        # a document that is read and written again has the same fields
        unwritten = omitted_fields(value)
        return {
            key: write(held)
            for name, key, absent in _written_fields(value.__class__)
            if (held := getattr(value, name)) != absent and name not in unwritten
        }
    if isinstance(value, Mapping):
        return {name: write(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [write(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def omitted_fields(value: Any) -> Sequence[str]:
    """Returns the fields that a value's document left out; ``write`` leaves them out, too."""
    found: Sequence[str] = getattr(value, _LEFT_OUT, ())
    return found


def without_fields(value: _Document, *names: str) -> _Document:
    """Returns a copy of a value whose document leaves out these fields, which are ``as_given``."""
    fields = dataclasses.fields(cast(Any, value))
    found = type(value)(
        **{field.name: getattr(value, field.name) for field in fields if field.name not in names}
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
    """Returns the value of a document in a file on the board; None if it is missing, damaged or
    larger than ``most`` bytes.

    Args:
        kind: The document's class.
        path: The file.
        most: Its largest size in bytes.
        schemas: Schemas of a document that must not be lost: another version of such a schema is
            refused. Without it another version counts as missing.
        mend: As in ``refuse_version``.

    Raises:
        DeviceError: "state.version"; "root.link", "root.owner" or "root.writable".
    """
    # imported here: only files need hashing, and the import would slow down a check
    from edgekit_device.files import read_kept

    try:
        data = read_kept(path, most)
    except OSError:
        return None
    try:
        # ``read_kept`` reads one byte more than allowed
        document = parse_json(data, path.name) if len(data) <= most else None
    except DeviceError:
        return None
    refuse_version(document, schemas, path, mend)
    try:
        return read(kind, document)
    except DeviceError:
        return None


def refuse_version(document: object, schemas: Sequence[str], path: Path, mend: str = "") -> None:
    """Refuses a document of another schema version, written by another version of edgekit.

    Args:
        document: The result of ``parse_json``.
        schemas: Schemas that this version reads.
        path: The file.
        mend: The command that mends it; "" for a command that moves the file away.

    Raises:
        DeviceError: "state.version".
    """
    found = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(found, str) or found in schemas:
        return
    # the same document in another version; a foreign schema is damage, which ``read`` finds
    if found.rpartition("/")[0] in [schema.rpartition("/")[0] for schema in schemas]:
        file = shlex.quote(str(path))
        raise DeviceError(
            "another edgekit version wrote this file: its schema is {}, and this one reads "
            "{}".format(found[:_SHOWN], " and ".join(schemas)),
            code="state.version",
            where=str(path),
            hint=mend
            or "use that edgekit version, or drop its records: on the board, mv {0} {0}.old".format(
                file
            ),
        )


def dump(value: Any) -> bytes:
    """Returns a value's document as bytes for a file: one line with sorted keys."""
    return (json.dumps(write(value), sort_keys=True) + "\n").encode("utf-8")


@lru_cache(None)
def _written_fields(kind: Any) -> List[Tuple[str, str, Any]]:
    """Returns field, key and the value if left out; ``_KEPT`` if the field is always written."""
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

    return with_schema(remembering if as_given else reader, **{"$ref": kind})


def members(
    kind: Any, rows: Sequence[Tuple[str, str, Rule]], needed: Sequence[str], ignored: str = ""
) -> Rule:
    """Returns the rule for an object of the class ``kind``, from its fields, keys and rules.

    Args:
        kind: The class.
        rows: Field, key and rule.
        needed: The required keys.
        ignored: A key that is allowed and not read.
    """
    known = frozenset((*(key for _, key, _ in rows), ignored))
    check = getattr(kind, "check", None)

    def reader(value: Any) -> Any:
        # names first: a missing or unknown key explains more than a wrong value
        _check_names(value, needed, known)
        made, key = {}, ""
        try:
            for name, key, rule in rows:
                if key in value:
                    made[name] = rule(value[key])
        except DeviceError as error:
            # rules know only their value: each level adds its own part of the place
            _prefix_place(error, key)
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


def _prefix_place(error: DeviceError, place: str) -> None:
    """Prefixes the error's place with ``place``."""
    rest = error.where
    error.where = place + ("." if rest and not rest.startswith("[") else "") + rest


# --- rules


def record(kind: type) -> Rule:
    """Takes an object with the fields of the class ``kind``."""
    return _reader(cast(Hashable, kind))


def with_schema(rule: Rule, **schema: Any) -> Rule:
    """Returns ``rule`` with the JSON Schema of the values that it takes.

    Args:
        rule: A rule that has no other schema; its attribute is set.
        schema: The keywords of JSON Schema. A rule or a class represents its own schema.
    """
    rule.__dict__[_SCHEMA] = schema
    return rule


def rule_schema(rule: Rule) -> Dict[str, object]:
    """Returns the JSON Schema that ``with_schema`` gave a rule; ``{}`` (any value) without it."""
    found: Dict[str, object] = rule.__dict__.get(_SCHEMA, {})
    return found


def nullable(rule: Rule) -> Rule:
    """Takes a value of ``rule``, or null."""
    return with_schema(
        lambda value: None if value is None else rule(value), anyOf=(rule, {"type": "null"})
    )


def array(rule: Rule, least: int = 0, most: int = _MAX_COUNT) -> Rule:
    """Takes a list of ``least`` to ``most`` entries; returns a tuple."""

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
            # as many entries were made as the index of the wrong entry
            _prefix_place(error, "[{}]".format(len(made)))
            raise
        return tuple(made)

    return with_schema(found, type="array", items=rule, minItems=least, maxItems=most)


def records(kind: type, least: int = 0, most: int = _MAX_COUNT, *, by: str = "") -> Rule:
    """Takes a list of objects; the values of their field ``by`` must be unique names."""
    entries, different = array(record(kind), least, most), names()

    def rule(value: Any) -> Any:
        found = entries(value)
        if by:
            different([getattr(item, by) for item in found])
        return found

    return with_schema(rule, **rule_schema(entries))


def mapping(rule: Rule, keys: "Rule | None" = None, least: int = 0) -> Rule:
    """Takes an object whose names match ``keys`` and whose values match ``rule``."""
    checked = keys or text()

    def found(value: Any) -> Dict[str, object]:
        if not isinstance(value, dict):
            fail("", "expected an object, found {}".format(_kind(value)))
        if len(value) < least:
            fail("", "an object of fewer than {} entries".format(least))
        made, name = {}, ""
        # names outside of the try: a wrong name is no place in the document
        for name in value:
            checked(name)
        try:
            for name, item in value.items():
                made[name] = rule(item)
        except DeviceError as error:
            _prefix_place(error, name[:_SHOWN])
            raise
        return made

    return with_schema(
        found, type="object", additionalProperties=rule, propertyNames=checked, minProperties=least
    )


def text(pattern: str = "", what: str = "", most: int = _MAX_TEXT) -> Rule:
    """Takes a string of at most ``most`` characters that ``pattern`` matches as a whole; ``what``
    describes such a string in errors.
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
        # JSON Schema searches for its pattern, while ``fullmatch`` covers the whole text
        return with_schema(rule, type="string", maxLength=most, pattern="^(?:" + pattern + ")$")
    return with_schema(rule, type="string", maxLength=most)


def names(least: int = 0, rule: "Rule | None" = None) -> Rule:
    """Takes a list of unique, non-empty strings without control characters; returns a tuple."""
    take = array(rule or text(), least)

    def found(value: Any) -> Tuple[str, ...]:
        given: Tuple[str, ...] = take(value)
        if "" in given or len(set(given)) != len(given):
            fail("", "names must be different and not empty")
        if any(_CONTROL.search(name) for name in given):
            fail("", "a name has control characters")
        return given

    return with_schema(found, **rule_schema(take), uniqueItems=True)


def choice(*known: str) -> Rule:
    """Takes any of these strings."""

    def rule(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            fail("", "{!r} is not one of {}".format(str(value)[:_SHOWN], ", ".join(known)))
        return value

    return with_schema(rule, type="string", enum=known)


def flag(value: Any) -> bool:
    """Takes true or false."""
    if not isinstance(value, bool):
        fail("", "expected true or false, found {}".format(_kind(value)))
    return value


with_schema(flag, type="boolean")


def integer(low: int, high: int) -> Rule:
    """Takes an integer (not a bool) from ``low`` to ``high``."""

    def rule(value: Any) -> int:
        # a bool is an int in Python, but not in JSON
        if not isinstance(value, int) or isinstance(value, bool):
            fail("", "expected an integer, found {}".format(_kind(value)))
        if not low <= value <= high:
            fail("", "{} is not within {} to {}".format(value, low, high))
        return value

    return with_schema(rule, type="integer", minimum=low, maximum=high)


def number(low: float, high: float) -> Rule:
    """Takes a finite number from ``low`` to ``high``; returns a float."""

    def rule(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            fail("", "expected a number, found {}".format(_kind(value)))
        # refuses NaN as well, which fails every comparison
        if not low <= value <= high:
            fail("", "{!r} is not within {} to {}".format(value, low, high))
        return float(value)

    return with_schema(rule, type="number", minimum=low, maximum=high)


def as_written(rule: Rule) -> Rule:
    """Takes a value of ``rule`` and returns it unchanged: 5 does not become 5.0."""

    def found(value: Any) -> Any:
        rule(value)
        return value

    return with_schema(found, **rule_schema(rule))


#: A finite number, unchanged. Beyond these limits arithmetic overflows.
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
    """Takes the text of a file's path."""
    return Path(_TEXT(value))


_TEXT = text()
with_schema(path, **rule_schema(_TEXT))


def shape(least: int = 0) -> Rule:
    """Takes a tensor's sizes, each ``least`` or more; -1 for an open size."""
    return array(integer(least, _MAX_SIZE), 0, _MAX_RANK)


def anything(value: Any) -> Any:
    """Takes any JSON value and returns it unchanged."""
    return value


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


# --- texts and bytes


def is_digest(value: object) -> bool:
    """Returns True if ``value`` is a SHA-256 in lower-case hex."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def is_app_name(value: object) -> bool:
    """Returns True if ``value`` can be the name of an app and of its folder."""
    return isinstance(value, str) and _APP.fullmatch(value) is not None


def is_release(value: object) -> bool:
    """Returns True if ``value`` can be a release's name: its number and the start of its digest."""
    return isinstance(value, str) and _RELEASE.fullmatch(value) is not None


def parse_json(data: bytes, where: str, code: str = "manifest.invalid") -> Any:
    """Reads strict JSON: UTF-8, no duplicate keys, no NaN or Infinity, no number beyond a double.

    Raises:
        DeviceError: ``code`` for any other input.
    """

    def pairs(items: List[Tuple[str, Any]]) -> Dict[str, object]:
        # json keeps the last of equal keys, another reader perhaps the first
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

    # separators are counted without parsing; a shorter text cannot have so many
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
    # deep nesting exceeds Python's stack
    except (ValueError, RecursionError) as error:
        raise DeviceError("not JSON: {}".format(error), code=code, where=where) from error


def read_json(stdin: BinaryIO, most: int) -> Any:
    """Returns the JSON document on stdin, of at most ``most`` bytes; raises "protocol.invalid"."""
    data = stdin.read(most + 1)
    if len(data) > most:
        fail("stdin", "more than {} bytes".format(most), code="protocol.invalid")
    return parse_json(data, "stdin", "protocol.invalid")


def read_digests(stdin: BinaryIO, most: int) -> Tuple[str, ...]:
    """Returns the digests listed on stdin, of at most ``most`` bytes; raises "protocol.invalid"."""
    digests: Tuple[str, ...] = take(
        array(digest), read_json(stdin, most), "stdin", code="protocol.invalid"
    )
    return digests
