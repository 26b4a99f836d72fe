"""The documents that edgekit writes and reads on the host: the base of their pydantic models, and
how one is read from a file. Each is defined in the module that makes it.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from edgekit.files import parse_json, read_file
from edgekit.removed import FormerDict
from edgekit.text import plain
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read, write

_SHOWN = 5


def _unchanged(value: Any, check: Any) -> Any:
    """Checks a number and keeps it as it was written: 5 does not become 5.0."""
    check(value)
    return value


# beyond these arithmetic overflows
Number = Annotated[float, Field(ge=-1e100, le=1e100), WrapValidator(_unchanged)]


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
                words = f"{error.where}: {error.message}" if error.where else error.message
                facts = {"words": words, "where": error.where, "message": error.message}
                raise PydanticCustomError("codec", "{words}", facts) from error

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
    schema = TypeAdapter(kind).json_schema()
    definitions = schema.get("$defs", {})
    for part in _codec_classes(kind):
        _use_json_names(part, schema if part is kind else definitions.get(part.__name__, {}))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = name
    if dataclasses.is_dataclass(kind) and "schema" in schema["properties"]:
        schema["properties"]["schema"] = {"const": name}
    return schema


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
            waiting += get_type_hints(here).values()
    return found


def _use_json_names(kind: type[Any], schema: dict[str, Any]) -> None:
    """Gives a codec dataclass's schema the keys of JSON, and refuses others."""
    known = schema.get("properties", {})
    keys = {
        field.name: field.metadata["key"] or field.name
        for field in dataclasses.fields(kind)
        if "rule" in field.metadata
    }
    schema["properties"] = {key: known[name] for name, key in keys.items() if name in known}
    schema["required"] = [
        keys[field.name]
        for field in dataclasses.fields(kind)
        if field.name in keys and field.metadata["needed"]
    ]
    schema["additionalProperties"] = False


def load_json(path: Path, largest: int) -> Any:
    """Returns what a JSON file says.

    Raises:
        OSError: It cannot be read, or is larger (``EFBIG``).
        ValueError: It is no JSON, or has a number that is none (NaN).
        RecursionError: It is nested too deeply.
    """
    return parse_json(read_file(path, largest), parse_constant=_refuse)


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
