"""What the documents' classes allow is what their published JSON Schemas say: parts that are codec
classes are read by the codec, and a device, a count or a figure that cannot be is refused.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import re
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import edgekit
from edgekit.documents import Coded, Document, json_schema
from edgekit.errors import DataError
from edgekit.saved_documents import DOCUMENTS, document_classes
from tests.contracts import goldens

#: Examples of texts, of which each pattern of a schema matches one.
TEXTS = (
    "a",
    "A",
    "GPU",
    "10.3",
    "0" * 64,
    "000001-" + "0" * 12,
    "2026-01-31T12:00:00Z",
    "1",
    "SHA256:" + "0" * 43,
    "small",
    "cpu",
    "-----",
    "a:b",
)


#: Names of times, energies, sizes, clocks and counts.
QUANTITY = re.compile(
    r"(_us|_uj|_ms|_s|_hz|bytes|layers|loadables|segments|iterations|frames|samples|macs|count"
    r"|counts|rows|transitions|cores)$|^(us|uj|segment|lane|index|frame|plan)$"
)
#: Of these, what may be below zero (differences, moments before the first frame), and what is no
#: quantity or device of a network.
SIGNED = {
    "BuildLog.device",
    "Copy.start_us",
    "MeasuredEvent.compute_start_us",
    "MeasuredPart.measured_us",
    "Monitor.busy_from_s",
    "MovedAlone.loadables",
    "MovedAlone.transitions",
    "RailEnergy.over_idle_uj",
    "Sample.t_s",
    "ShownSample.t_s",
    "TimelineEntry.segment",
    "TotalEnergy.over_idle_uj",
    "TracedProcess.shift_us",
    "Unfused.uj",
    "Unfused.us",
    "UnknownBoard.device",
}


def models(kind: type) -> Iterator[type[Document]]:
    for one in kind.__subclasses__():
        yield one
        yield from models(one)


def uncoded(hint: Any, coded: bool = False) -> Iterator[str]:
    """The dataclasses of an annotation that pydantic would read in its own way."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Annotated:
        coded = coded or any(isinstance(one, Coded) for one in parts[1:])
        parts = parts[:1]
    if dataclasses.is_dataclass(hint) and not coded:
        yield str(hint)
    for part in parts:
        yield from uncoded(part, coded)


def test_each_codec_class_in_a_model_is_read_by_the_codec() -> None:
    for found in pkgutil.walk_packages(edgekit.__path__, "edgekit."):
        if not found.name.endswith(("__main__", "edgekit_recap")):
            importlib.import_module(found.name)
    every = {one for one in models(Document) if one.__module__.startswith("edgekit.")}
    assert len(every) > 50
    wrong = [
        f"{one.__module__}.{one.__name__}.{name}: {kind}"
        for one in every
        for name, hint in typing.get_type_hints(one, include_extras=True).items()
        for kind in uncoded(hint)
    ]
    assert wrong == []


# --- JSON Schema, as far as the documents use it


class Schema:
    """A document's JSON Schema."""

    def __init__(self, name: str) -> None:
        self.whole = json_schema(name, *document_classes(name))

    def of(self, said: Any) -> dict[str, Any]:
        """What is said at a place, behind references."""
        found: dict[str, Any] = said if isinstance(said, dict) else {}
        while "$ref" in found:
            found = self.whole["$defs"][found["$ref"].rpartition("/")[2]]
        return found

    def choices(self, said: Any) -> list[dict[str, Any]]:
        """The alternatives at a place."""
        found = self.of(said)
        parts = found.get("anyOf", found.get("oneOf"))
        return [one for part in parts for one in self.choices(part)] if parts else [found]

    def takes(self, said: Any, value: object) -> bool:
        """Whether a plain value, or the kind of a list or an object, is allowed at a place."""
        return any(_takes(one, value) for one in self.choices(said))

    def below(self, said: Any, key: object) -> Any:
        """What is said of an item or a member."""
        for one in self.choices(said):
            if isinstance(key, int):
                if "prefixItems" in one:
                    return one["prefixItems"][key]
                if "items" in one:
                    return one["items"]
            elif key in one.get("properties", {}):
                return one["properties"][key]
            elif isinstance(one.get("additionalProperties"), dict):
                return one["additionalProperties"]
        return {}

    def fitting(self, said: Any, value: Any) -> Any:
        """``value`` with examples in the place of what the golden's short form has left out."""
        for one in self.choices(said):
            if isinstance(value, dict) and one.get("type") == "object":
                known, names = one.get("properties", {}), one.get("propertyNames", {})
                extra = one.get("additionalProperties", True)
                if set(value) - set(known) and extra is False:
                    continue
                made = {
                    key: self.fitting(known.get(key, extra), item)
                    for key, item in value.items()
                    if key in known or self.takes(names, key)
                }
                return {**{n: self.example(known[n]) for n in one.get("required", ())}, **made}
            if isinstance(value, list) and one.get("type") == "array":
                made_items = [self.fitting(self.below(one, i), x) for i, x in enumerate(value)]
                return made_items if _takes(one, made_items) else self.example(one)
            if not isinstance(value, (dict, list)) and _takes(one, value):
                return value
        return self.example(said)

    def example(self, said: Any) -> Any:
        """A value that is allowed at a place: the least one."""
        one = self.choices(said)[0]
        if "const" in one:
            return one["const"]
        if "enum" in one:
            return one["enum"][0]
        if one.get("type") == "object":
            return {name: self.example(one["properties"][name]) for name in one.get("required", ())}
        if one.get("type") == "array":
            parts = one.get("prefixItems") or [one.get("items", {})] * one.get("minItems", 0)
            return [self.example(part) for part in parts]
        tried = (*TEXTS, 0, 1, 0.5, False, None)
        return next(value for value in tried if _takes(one, value))


def _takes(one: dict[str, Any], value: Any) -> bool:
    kinds = one.get("type", ())
    found = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    if kinds and not any(found[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if "const" in one and value != one["const"]:
        return False
    if "enum" in one and value not in one["enum"]:
        return False
    if isinstance(value, str) and not re.search(one.get("pattern", ""), value):
        return False
    if isinstance(value, list):
        return one.get("minItems", 0) <= len(value) <= one.get("maxItems", len(value))
    if found["number"]:
        least, above = one.get("minimum", value), one.get("exclusiveMinimum", value - 1)
        return bool(least <= value and above < value <= one.get("maximum", value))
    return True


# --- real documents, as the goldens hold them


def _documents(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if value.get("schema") in DOCUMENTS:
            yield value
        for item in value.values():
            yield from _documents(item)
    elif isinstance(value, list):
        for item in value:
            yield from _documents(item)


@cache
def _recorded() -> dict[str, dict[str, Any]]:
    """A golden document of each schema: the richest."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(goldens.FOLDER.rglob("*.json")):
        golden = path.read_text(encoding="utf-8").replace('"<measured>"', "0.5")
        for one in _documents(goldens.read(golden)):
            name = one["schema"]
            if len(json.dumps(one)) > len(json.dumps(found.get(name, {}))):
                found[name] = one
    return found


def real_document(name: str, schema: Schema) -> dict[str, Any]:
    """A golden document that its class reads; an example of a document without a golden."""
    made = schema.fitting(schema.whole, _recorded().get(name, {}))
    assert isinstance(made, dict)
    return made


def leaves(schema: Schema, said: Any, value: Any, place: tuple[Any, ...] = ()) -> Iterator[Any]:
    """The texts and numbers of a document: places, what the schema says of them, and values."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(schema, schema.below(said, key), item, (*place, key))
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield place, said, value


def replaced(value: Any, place: tuple[Any, ...], new: object) -> Any:
    if not place:
        return new
    made = value.copy()
    made[place[0]] = replaced(value[place[0]], place[1:], new)
    return made


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_devices_times_and_sizes_have_rules(name: str) -> None:
    schema = Schema(name)
    kind = document_classes(name)[-1].__name__
    parts = {kind: schema.whole, **schema.whole.get("$defs", {})}
    free = {
        f"{part}.{key}"
        for part, found in parts.items()
        for key, said in found.get("properties", {}).items()
        if (key == "device" and schema.takes(said, "XPU"))
        or (QUANTITY.search(key) and schema.takes(said, -1))
    }
    assert free <= SIGNED


#: Their parts belong together, such as digests: their own tests have documents for that.
APART = {"edgekit.bundle/1", "edgekit.bundle/2", "edgekit.bundle/3", "edgekit.head/1"}


@pytest.mark.parametrize("name", sorted(set(DOCUMENTS) - APART))
def test_what_the_schema_refuses_the_class_refuses_with_its_place(name: str) -> None:
    schema = Schema(name)
    document = real_document(name, schema)
    edgekit.read_document(document)
    seen = set()
    for place, said, value in leaves(schema, schema.whole, document):
        wrong = "XPU\0" if isinstance(value, str) else -1
        kind = tuple(part for part in place if not isinstance(part, int))
        if place[-1] == "schema" or kind in seen or schema.takes(said, wrong):
            continue
        seen.add(kind)
        with pytest.raises(DataError) as caught:
            edgekit.read_document(replaced(document, place, wrong))
        assert str(place[-1]) in caught.value.where, place
