"""The documents that edgekit writes and reads on the host: the base of their pydantic models, and
how one is read from a file. Each is defined in the module that makes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import ErrorDetails

from edgekit.files import parse_json, read_file
from edgekit.text import plain

_SHOWN = 5


def _unchanged(value: Any, check: Any) -> Any:
    """Checks a number and keeps it as it was written: 5 does not become 5.0."""
    check(value)
    return value


# beyond these arithmetic overflows
Number = Annotated[float, Field(ge=-1e100, le=1e100), WrapValidator(_unchanged)]


class Document(BaseModel):
    """A document, or a part of one. Keys that are not named in it are kept."""

    model_config = ConfigDict(
        extra="allow", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )

    def to_json(self) -> dict[str, Any]:
        """Returns it as it is written: what was given, in the model's order."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def json_schema(model: type[BaseModel], name: str) -> dict[str, Any]:
    """Returns the JSON Schema of a document as docs/ has it.

    Args:
        model: The document's.
        name: What its "schema" says.
    """
    schema = model.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = name
    return schema


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


def _lowered(message: str) -> str:
    return re.sub(r"^Input s", "s", message)
