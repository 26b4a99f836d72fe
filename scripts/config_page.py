"""The schema as a page for people (`docs/config.md`) and as JSON Schema for editors."""

from __future__ import annotations

import json
from typing import Any

from edgekit.config.schema import ConfigFile

_INTRODUCTION = """\
# Configuration

For anyone who writes a configuration: every key with its type and default. `edgekit init` writes a
commented file for your model, and all commands read it:

```sh
edgekit init model.onnx --target jetson-agx-orin-64gb
edgekit plan model.yaml
```

The least that a file needs:

```yaml
version: 1
name: model
model: {onnx: model.onnx}
target: jetson-agx-orin-64gb
```

- All errors of a file are reported at once, with line and column; for an unknown key also the
  nearest known one. Editors can read [config.schema.json](config.schema.json).
- Relative paths are relative to the file.
- `${ENV}` is expanded in the `deploy` section only.
- Only `true` and `false` are booleans, and numbers are plain decimals: `012`, `1_000` and `22:22`
  need quotes.

This page is made from `edgekit/config/schema.py` by `scripts/make_docs.py`; do not edit it.
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
    parts = [_INTRODUCTION, "## Top level", "", *_table(schema)]
    parts += _sections(schema, definitions)
    return "\n".join(parts) + "\n"


def _sections(
    schema: dict[str, Any],
    definitions: dict[str, Any],
    place: tuple[str, ...] = (),
    shown: dict[str, str] | None = None,
) -> list[str]:
    """Returns the tables of a schema's sections; ``shown`` has the places of those of plugins."""
    parts = []
    shown = {} if shown is None else shown
    for name, field in schema["properties"].items():
        section, inner = _section(field, definitions), (*place, name)
        if section is None:
            continue
        title = ".".join(inner)
        parts += ["", f"{'##' if not place else '###'} {title}", ""]
        if (first := shown.get(section["title"])) is not None:
            parts.append(f"The keys of [{first}](#{first.replace('.', '')}).")
            continue
        if name in ("plugins", "shapes"):  # of one network, and of each of several
            shown[section["title"]] = title
        parts += [section["description"], "", *_table(section)]
        parts += _sections(section, definitions, inner, shown)
    return parts


def _section(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the object schema that a field refers to, if it does."""
    options = [*field.get("anyOf", []), *field.get("oneOf", [])]
    options += [field[key] for key in ("items", "additionalProperties") if key in field]
    for option in (field, *options):
        reference = option.get("$ref") if isinstance(option, dict) else None
        if reference:
            found: dict[str, Any] = definitions[reference.rsplit("/", 1)[1]]
            return found
    inner = (_section(option, definitions) for option in options if isinstance(option, dict))
    return next((section for section in inner if section is not None), None)


def _table(schema: dict[str, Any]) -> list[str]:
    rows = ["| key | type | default | |", "|---|---|---|---|"]
    required = schema.get("required", [])
    for name, field in schema["properties"].items():
        value = field.get("default")
        default = "required" if name in required else ""
        if name not in required and value not in (None, {}, []):
            default = f"`{json.dumps(value)}`"
        text = field.get("description", "").replace("|", "\\|")
        if examples := field.get("examples"):
            text += f" Example: `{json.dumps(examples[0])}`."
        rows.append(f"| `{name}` | {_type(field)} | {default} | {text} |")
    return rows


def _type(field: dict[str, Any]) -> str:
    if options := field.get("anyOf") or field.get("oneOf"):
        kinds = [_type(option) for option in options if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in field:
        return "section"
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        inner = field.get("items", {})
        kinds = [choice.get("type") for choice in (inner.get("oneOf") or inner.get("anyOf") or [])]
        if "$ref" in inner or "object" in kinds:
            return "list"
        kinds = [f"{kind}s" for kind in _type(inner).split(" or ")]
        return f"list of {' or '.join(kinds)}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        if not isinstance(inner, dict):
            return "section"
        kind = _type(inner)
        return f"by name: {kind}" if " or " in kind else f"{kind} by name"
    kind = str(field.get("type", ""))
    words = {"integer": "whole number", "string": "text", "boolean": "`true`, `false`"}
    return words.get(kind, kind)
