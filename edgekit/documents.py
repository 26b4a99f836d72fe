"""The documents that edgekit writes and reads on the host: the base of their pydantic models, and
reading a document from a file. Each is defined in the module that makes it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from edgekit.errors import DataError
from edgekit.files import parse_json, read_file
from edgekit.removed import FormerDict
from edgekit.text import printable
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import Rule, digest, read, rule_schema, write

_SHOWN = 5
_ATTRIBUTES = "Attributes:\n"
# an attribute and its text, which continues in more deeply indented lines
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_UNITS = {
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "seconds": "seconds",
    "uj": "microjoules",
    "mw": "milliwatts",
    "mhz": "megahertz",
    "hz": "times a second",
    "qps": "inferences a second",
    "bytes": "bytes",
    "percent": "percent",
    "fraction": "a part of the whole, 0 to 1",
}
# names of the parts of a rule's schema, which no key of a document has
_QUICK, _RULE = "\0quick", "\0rule"
# keywords of JSON Schema that have no effect with the value 0
_NO = ("minItems", "minProperties")


class Ruled:
    """Uses a rule of the codec for a model's field: ``Annotated[str, Ruled(device)]``.

    The value is not converted: 5 does not become 5.0.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def __get_pydantic_core_schema__(
        self, kind: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Returns a schema that checks by the rule."""

        def value(given: Any) -> Any:
            try:
                self._rule(given)
            except DeviceError as error:
                raise _codec_error(error) from error
            return given

        rule = core_schema.no_info_plain_validator_function(value)
        quick = _core_schemas(rule_schema(self._rule))
        if not quick:
            return rule
        # the rule is called if pydantic refuses, for its message
        return core_schema.union_schema([*((schema, _QUICK) for schema in quick), (rule, _RULE)])

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Returns the JSON Schema of the rule."""
        return dict(_rule_to_schema(self._rule))


def _core_schemas(schema: Mapping[str, Any]) -> list[core_schema.CoreSchema]:
    """Returns pydantic's own schemas of a rule; none if a function must check it.

    A document of 100,000 events has a million such values, and a Python function takes ten times
    as long for each.
    """
    if "enum" in schema:
        return [core_schema.literal_schema(list(schema["enum"]))]
    if schema.get("type") not in ("integer", "number"):
        return []
    low, high = schema["minimum"], schema["maximum"]
    whole = core_schema.int_schema(strict=True, ge=math.ceil(low), le=math.floor(high))
    if schema["type"] == "integer":
        return [whole]
    # JSON's 5 stays an int: a document that is read and written again has the same bytes
    return [core_schema.float_schema(strict=True, ge=low, le=high), whole]


def _codec_error(error: DeviceError) -> PydanticCustomError:
    words = f"{error.where}: {error.message}" if error.where else error.message
    facts = {"words": words, "where": error.where, "message": error.message}
    return PydanticCustomError("codec", "{words}", facts)


#: "GPU", "DLA0" or "DLA1".
Device = Annotated[str, Ruled(fields.device)]
#: "GPU" or "DLA".
DeviceKind = Annotated[str, Ruled(fields.device_kind)]
#: The number of a DLA core.
Core = Annotated[int, Ruled(fields.core)]
#: A count, a number of bytes, or an index.
Count = Annotated[int, Ruled(fields.count)]
#: A number that is not negative, such as microseconds or microjoules.
Figure = Annotated[float, Ruled(fields.figure)]
#: A number that may be negative, such as a difference.
Number = Annotated[float, Ruled(fields.difference)]
#: Two numbers, the lower first. JSON has lists, which a strict model does not accept as tuples.
Band = Annotated[tuple[Figure, Figure], Field(strict=False)]
#: A part of a whole, 0 to 1.
Fraction = Annotated[float, Ruled(fields.share)]
#: "fp32", "fp16" or "int8".
Precision = Annotated[str, Ruled(fields.precision)]
#: "predicted", "cpu-measured" or "board-measured".
ClockName = Annotated[str, Ruled(fields.clock)]
#: A TensorRT release, such as "10.3".
Release = Annotated[str, Ruled(fields.release)]
#: A board's name.
TargetName = Annotated[str, Ruled(fields.target)]
#: A SHA-256 in lower-case hex.
Digest = Annotated[str, Ruled(digest)]


class Coded:
    """Uses a codec class as the type of a model's field: ``Annotated[FrameTimes, Coded()]``."""

    def __get_pydantic_core_schema__(
        self, kind: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Returns a schema that reads and writes by the codec's rules."""

        def value(given: Any, _: Any) -> Any:
            try:
                return given if isinstance(given, kind) else read(kind, given)
            except DeviceError as error:
                raise _codec_error(error) from error

        return core_schema.no_info_wrap_validator_function(
            value,
            handler(kind),  # for the JSON Schema alone
            serialization=core_schema.plain_serializer_function_ser_schema(write),
        )


class Document(FormerDict, BaseModel):
    """A document, or a part of a document: frozen; an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        # a field may begin with "model_"
        protected_namespaces=(),
        # schemas are built at their first use: a command uses few of these classes
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Returns the class's JSON Schema; its docstring describes the attributes."""
        found = handler.resolve_ref_schema(made := handler(schema))
        if "description" in found:
            found["description"] = _without_attributes(cls)
        about = _attributes(cls)
        for name, value in found.get("properties", {}).items():
            words = about.get(name) or _unit_words(name)
            if words:
                value.setdefault("description", words)
        return made

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON object: the values that were given, in the model's order."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class OpenDocument(Document):
    """A document, or a part of a document, that keeps unknown keys."""

    model_config = ConfigDict(extra="allow")


def omitted(default: Any = None, **facts: Any) -> Any:
    """Returns a model's field that JSON leaves out while its value is ``default``.

    ``facts`` are pydantic's ``Field``'s, such as ``description`` and ``ge``.
    """
    return Field(default, exclude_if=lambda value: bool(value == default), **facts)


def json_schema(name: str, *kinds: type[Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a document.

    Args:
        name: Its schema and version, such as "edgekit.check/1".
        kinds: Its pydantic model, or its codec dataclasses.
    """
    kind = kinds[-1]
    classes = set().union(*map(_codec_classes, kinds))
    parts = {part.__name__: _codec_schema(part) for part in classes}
    if len(parts) < len(classes):
        raise TypeError(f"{name} has two classes of one name")
    for part in classes.intersection(kinds):
        if "schema" in parts[part.__name__]["properties"]:
            parts[part.__name__]["properties"]["schema"] = {"const": name}
    schema: dict[str, Any]
    if len(kinds) > 1:
        schema = {"anyOf": [_rule_to_schema(part) for part in kinds]}
    elif kind in classes:
        schema = parts.pop(kind.__name__)
    else:
        schema = TypeAdapter(kind).json_schema()
    if parts:
        schema["$defs"] = dict(sorted({**schema.get("$defs", {}), **parts}.items()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": name,
    }


def _codec_classes(kind: Any) -> set[type[Any]]:
    """Returns the dataclasses in a type, and those in the types of their fields."""
    found: set[type[Any]] = set()
    models: set[type[BaseModel]] = set()
    waiting = [kind]
    while waiting:
        here = waiting.pop()
        # the X of tuple[X, ...], X | None and Annotated[X, ...]
        waiting += get_args(here)
        if isinstance(here, type) and issubclass(here, BaseModel) and here not in models:
            models.add(here)
            waiting += [field.annotation for field in here.model_fields.values()]
        if dataclasses.is_dataclass(here) and isinstance(here, type) and here not in found:
            found.add(here)
            waiting += [
                hint
                for name, hint in get_type_hints(here).items()
                if "rule" in here.__dataclass_fields__[name].metadata
            ]
    return found


def _codec_schema(kind: type[Any]) -> dict[str, Any]:
    """Returns the JSON Schema of a codec dataclass, from its rules."""
    properties, required = {}, []
    about = _attributes(kind)
    for field in dataclasses.fields(kind):
        if "rule" not in field.metadata:
            continue
        key = field.metadata["key"] or field.name
        properties[key] = _rule_to_schema(field.metadata["rule"])
        words = about.get(field.name) or _unit_words(field.name)
        if words:
            properties[key]["description"] = words
        if field.metadata["needed"]:
            required.append(key)
        elif field.default is not dataclasses.MISSING:
            properties[key]["default"] = write(field.default)
    return {
        "description": _without_attributes(kind),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _without_attributes(kind: type[Any]) -> str:
    """Returns a class's docstring up to the section of its attributes."""
    return (inspect.getdoc(kind) or "").partition(_ATTRIBUTES)[0].rstrip()


def _attributes(kind: type[Any]) -> dict[str, str]:
    """Returns the text of each attribute from the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(vars(base).get("__doc__") or "").partition(_ATTRIBUTES)[2]
        for name, words in _ATTRIBUTE.findall(section):
            found[name] = " ".join(words.split())
    return found


def _unit_words(name: str) -> str:
    """Returns the unit in a number's name, in words; "" for none."""
    return _UNITS.get(name.rpartition("_")[2], "")


def _rule_to_schema(rule: Any) -> Any:
    """Returns the JSON Schema of a rule, or of a part of a rule's description."""
    if isinstance(rule, type):
        return {"$ref": f"#/$defs/{rule.__name__}"}
    if callable(rule):
        rule = rule_schema(rule)
        return _rule_to_schema(rule["$ref"]) if "$ref" in rule else _rule_to_schema(rule)
    if isinstance(rule, dict):
        # a rule states every limit, also those that are none
        return {
            key: _rule_to_schema(value)
            for key, value in rule.items()
            if value != 0 or key not in _NO
        }
    return [_rule_to_schema(part) for part in rule] if isinstance(rule, tuple) else rule


def load_json(path: Path, largest: int, *, unreadable: str, invalid: str, hint: str) -> Any:
    """Returns the parsed contents of a JSON file.

    Args:
        path: The file.
        largest: The maximum size in bytes.
        unreadable: The error code for a file that cannot be read or is larger.
        invalid: The error code for a file that is not JSON, has NaN or is nested too deeply.
        hint: The file to give instead.

    Raises:
        DataError: With these codes; ``where`` has the line and the column if known.
    """
    try:
        # Python's json reads NaN and Infinity, which are not JSON (RFC 8259)
        return parse_json(read_file(path, largest), parse_constant=_refuse_constant)
    except OSError as error:
        raise DataError(
            f"the file cannot be read: {error.strerror or error}",
            code=unreadable,
            where=str(path),
            hint=hint,
        ) from error
    except (ValueError, RecursionError) as error:
        place = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DataError(
            f"the file is not JSON: {why}", code=invalid, where=f"{path}{place}", hint=hint
        ) from error


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"it has the number {constant}, which is no JSON number")


def faults(error: ValidationError) -> list[ErrorDetails]:
    """Returns the faults of a document, those of :class:`Ruled` values once, by their rule."""
    found = error.errors(include_url=False)
    for fault in found:
        if _RULE in fault["loc"]:
            fault["loc"] = tuple(name for name in fault["loc"] if _RULE not in str(name))
    # a union reports a fault of each member, and the rule's has the message
    return [fault for fault in found if _QUICK not in fault["loc"]]


def fault_words(error: ValidationError) -> str:
    """Returns the errors of a document with their places, in words."""
    found = faults(error)
    words = [": ".join(filter(None, _place_and_message(fault))) for fault in found[:_SHOWN]]
    more = len(found) - _SHOWN
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Returns the place of a document's first fault, and its message."""
    return _place_and_message(faults(error)[0])


def _place_and_message(fault: ErrorDetails) -> tuple[str, str]:
    """Returns the place, such as "segments[1].latency_ms", and the message; both as the codec's."""
    inside = fault["ctx"] if fault["type"] == "codec" else {}
    names = fault["loc"]
    message = inside.get("message", re.sub(r"^Input s", "s", fault["msg"]))
    if fault["type"] == "extra_forbidden":
        message = f"unknown: {str(names[-1])!r}"
        names = names[:-1]
    where = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
    rest = inside.get("where", "")
    where += f".{rest}" if rest and not rest.startswith("[") else rest
    return printable(where.removeprefix("."), 200), message
