"""The schema as a page for people (`docs/config.md`) and as JSON Schema for editors."""

from __future__ import annotations

import json
from typing import Any

from edgekit.config.schema import ConfigFile

_INTRODUCTION = """\
# Configuration

Made from the schema by `scripts/make_docs.py`; do not edit. Editors read
[config.schema.json](config.schema.json).

A configuration is one YAML file. Unknown keys are refused with the nearest known key, and every
fault of the file is reported at once, with line and column. Relative paths are relative to the
file. `${ENV}` is expanded in the `deploy` section and nowhere else. A plain scalar is a boolean
only when it is `true` or `false`; numbers are plain decimals (`012`, `1_000` and `22:22` are
refused without quotes).
"""


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a configuration file."""
    schema = ConfigFile.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "edgekit configuration"
    return schema


def config_page() -> str:
    """Returns ``docs/config.md``."""
    schema = json_schema()
    definitions = schema["$defs"]
    parts = [_INTRODUCTION, "## Top level", "", *_table(schema, definitions)]
    for name, field in schema["properties"].items():
        section = _section(field, definitions)
        if section is None:
            continue
        parts += ["", f"## {name}", "", section["description"], "", *_table(section, definitions)]
        for inner, inner_field in section["properties"].items():
            nested = _section(inner_field, definitions)
            if nested is not None:
                parts += ["", f"### {name}.{inner}", "", nested["description"], ""]
                parts += _table(nested, definitions)
    return "\n".join(parts) + "\n"


def _section(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the object schema that a field refers to, if it does."""
    options = [field, field.get("items", {}), *field.get("anyOf", [])]
    for option in options:
        reference = option.get("$ref") if isinstance(option, dict) else None
        if reference:
            found: dict[str, Any] = definitions[reference.rsplit("/", 1)[1]]
            return found
    return None


def _table(schema: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    required = schema.get("required", [])
    for name, field in schema["properties"].items():
        default = "required" if name in required else _default(field.get("default"))
        text = field.get("description", "").replace("|", "\\|")
        if examples := field.get("examples"):
            text += f" Example: `{json.dumps(examples[0])}`."
        rows.append(f"| `{name}` | {_type(field)} | {default} | {text} |")
    return rows


def _default(value: Any) -> str:
    return "" if value in (None, {}, []) else f"`{json.dumps(value)}`"


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        kinds = [_type(option) for option in field["anyOf"] if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in field:
        return "section"
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        inner = field.get("items", {})
        return "list" if "$ref" in inner else f"list of {_type(inner)}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return f"names to {_type(inner)}" if isinstance(inner, dict) else "section"
    kind = str(field.get("type", ""))
    words = {"integer": "whole number", "string": "text", "boolean": "`true`, `false`"}
    return words.get(kind, kind)
