"""The documents that edgekit writes and reads on the host: the base of their pydantic models, and
how one is read from a file. Each is defined in the module that makes it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
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
from edgekit.text import plain
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import Rule, digest, read, stated, write

_SHOWN = 5
# keywords of JSON Schema that say nothing with the value 0
_NO = ("minItems", "minProperties")


class Ruled:
    """Makes a rule of the codec that of a model's field: ``Annotated[str, Ruled(device)]``.

    The value stays as it was written: 5 does not become 5.0.
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
                raise _refused(error) from error
            return given

        return core_schema.no_info_plain_validator_function(value)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Returns what the rule says."""
        return dict(_stated(self._rule))


def _refused(error: DeviceError) -> PydanticCustomError:
    words = f"{error.where}: {error.message}" if error.where else error.message
    facts = {"words": words, "where": error.where, "message": error.message}
    return PydanticCustomError("codec", "{words}", facts)


#: "GPU", "DLA0" or "DLA1".
Device = Annotated[str, Ruled(fields.device)]
#: "GPU" or "DLA".
DeviceKind = Annotated[str, Ruled(fields.device_kind)]
#: The number of a DLA core.
Core = Annotated[int, Ruled(fields.core)]
#: How many, how many bytes, or an index.
Count = Annotated[int, Ruled(fields.count)]
#: A figure that is not below zero, such as microseconds or microjoules.
Figure = Annotated[float, Ruled(fields.figure)]
#: A figure that may be below zero, such as a difference.
Number = Annotated[float, Ruled(fields.difference)]
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
    """Makes a codec class the type of a model's field: ``Annotated[FrameTimes, Coded()]``."""

    def __get_pydantic_core_schema__(
        self, kind: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Returns a schema that reads and writes by the codec's rules."""

        def value(given: Any, _: Any) -> Any:
            try:
                return given if isinstance(given, kind) else read(kind, given)
            except DeviceError as error:
                raise _refused(error) from error

        return core_schema.no_info_wrap_validator_function(
            value,
            handler(kind),  # for the JSON Schema alone
            serialization=core_schema.plain_serializer_function_ser_schema(write),
        )


class Document(FormerDict, BaseModel):
    """A document, or a part of one: frozen, and a key that it does not name is an error."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,
    )

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON object: the values that were given, in the model's order."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class OpenDocument(Document):
    """A document, or a part of one, that keeps keys which it does not name."""

    model_config = ConfigDict(extra="allow")


def omitted(default: Any = None, **facts: Any) -> Any:
    """Returns a model's field that JSON leaves out while its value is ``default``.

    ``facts`` are pydantic's ``Field``'s, such as ``description`` and ``ge``.
    """
    return Field(default, exclude_if=lambda value: bool(value == default), **facts)


def json_schema(kind: type[Any], name: str) -> dict[str, Any]:
    """Returns the JSON Schema of a document.

    Args:
        kind: Its pydantic model, or its codec dataclass.
        name: Its schema and version, such as "edgekit.check/1".
    """
    classes = list(_codec_classes(kind))
    parts = {part.__name__: _codec_schema(part) for part in classes}
    if len(parts) < len(classes):
        raise TypeError(f"{name} has two classes of one name")
    schema = parts.pop(kind.__name__) if kind in classes else TypeAdapter(kind).json_schema()
    if kind in classes and "schema" in schema["properties"]:
        schema["properties"]["schema"] = {"const": name}
    if parts:
        schema["$defs"] = dict(sorted({**schema.get("$defs", {}), **parts}.items()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": name,
    }  # fmt: skip


def _codec_classes(kind: Any) -> set[type[Any]]:
    """Returns the dataclasses that a type names, and those that its fields name."""
    found: set[type[Any]] = set()
    models: set[type[BaseModel]] = set()
    waiting = [kind]
    while waiting:
        here = waiting.pop()
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
    """Returns the JSON Schema of a codec dataclass, as its rules say it."""
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        if "rule" not in field.metadata:
            continue
        key = field.metadata["key"] or field.name
        properties[key] = _stated(field.metadata["rule"])
        if field.metadata["needed"]:
            required.append(key)
        elif field.default is not dataclasses.MISSING:
            properties[key]["default"] = write(field.default)
    return {
        "description": inspect.getdoc(kind),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _stated(said: Any) -> Any:
    """Returns the JSON Schema of a rule, or of what is said in one."""
    if isinstance(said, type):
        return {"$ref": f"#/$defs/{said.__name__}"}
    if callable(said):
        said = stated(said)
        return _stated(said["$ref"]) if "$ref" in said else _stated(said)
    if isinstance(said, dict):
        return {key: _stated(value) for key, value in said.items() if value != 0 or key not in _NO}
    return [_stated(one) for one in said] if isinstance(said, tuple) else said


def load_json(path: Path, largest: int, *, unreadable: str, invalid: str, hint: str) -> Any:
    """Returns what a JSON file says.

    Args:
        path: The file.
        largest: The most bytes that it may have.
        unreadable: The code of the error for a file that cannot be read or is larger.
        invalid: The code of the error for a file that is no JSON, has a number that is none (NaN)
            or is nested too deeply.
        hint: Which file to give instead.

    Raises:
        DataError: With these codes; ``where`` has the line and the column if they are known.
    """
    try:
        return parse_json(read_file(path, largest), parse_constant=_refuse)
    except OSError as error:
        raise DataError(
            f"the file cannot be read: {error.strerror or error}",
            code=unreadable, where=str(path), hint=hint,
        ) from error  # fmt: skip
    except (ValueError, RecursionError) as error:
        place = f":{error.lineno}:{error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DataError(
            f"the file is not JSON: {why}", code=invalid, where=f"{path}{place}", hint=hint
        ) from error


def _refuse(constant: str) -> None:
    raise ValueError(f"it has the number {constant}, which is no JSON number")


def place(fault: ErrorDetails) -> str:
    """Returns where in a document something is wrong: "segments[1].latency_ms"."""
    names = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in fault["loc"])
    return plain("".join(names).removeprefix("."), 200)


def fault_words(error: ValidationError) -> str:
    """Returns what is wrong with a document, and where."""
    faults = error.errors(include_url=False, include_context=False)
    words = [f"{place(one)}: {_lowered(one['msg'])}" for one in faults[:_SHOWN]]
    more = len(faults) - _SHOWN
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Returns where the first fault of a document is, and what is wrong there."""
    first = error.errors(include_url=False)[0]
    inside = first["ctx"] if first["type"] == "codec" else {}
    where = ".".join(filter(None, (place(first), inside.get("where"))))
    return where, inside.get("message", _lowered(first["msg"]))


def _lowered(message: str) -> str:
    return re.sub(r"^Input s", "s", message)
