"""SARIF 2.1.0 of checks, as code scanning reads it: a result for each reason that keeps a layer off
the DLA, with the rule's text, fix and sources.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from edgekit.dla.rules import Rule, load_rules
from edgekit.version import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"certain": "warning", "disputed": "note"}
# what a source begins with: github.com/NVIDIA/TensorRT, docs.nvidia.com
_PLACE = re.compile(r"(?:[\w-]+\.)+[a-z]{2,}(?:/[^\s,:;()]+)*")


def sarif(checks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one SARIF log with one run for ``edgekit.check/1`` documents.

    A disputed verdict is a note, any other a warning. The location is the model's file, the layer
    its logical location; a result of the same rule and layer keeps its fingerprint.
    """
    known = load_rules().rules
    results = [result for check in checks for result in _results(check, known)]
    used = list(dict.fromkeys(result["ruleId"] for result in results))
    places = {rule: index for index, rule in enumerate(used)}
    for result in results:
        result["ruleIndex"] = places[result["ruleId"]]
    driver = {
        "name": "edgekit",
        "semanticVersion": __version__,
        "rules": [_rule(known[rule]) for rule in used],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _results(check: Mapping[str, Any], known: Mapping[str, Rule]) -> Iterator[dict[str, Any]]:
    for layer in check["layers"]:
        verdict = layer["dla"]
        if not verdict["ok"]:
            for reason in verdict["reasons"]:
                text = f"{layer['name']} ({layer['kind']}): {reason['message']}"
                fix = f" Fix: {reason['fix']}." if reason["fix"] else ""
                level = _LEVELS.get(verdict["certainty"], "warning")
                yield _result(check, layer, reason["rule"], level, f"{text}.{fix}")
        elif layer["dropped"] in known:
            rule = known[layer["dropped"]]
            text = f"{layer['name']} ({layer['kind']}): {rule.text}. Fix: {rule.to_json()['fix']}."
            yield _result(check, layer, rule.id, "note", text)


def _result(
    check: Mapping[str, Any], layer: Mapping[str, Any], rule: str, level: str, text: str
) -> dict[str, Any]:
    print_of = hashlib.sha256(f"{rule}\0{layer['name']}\0{check['target']}".encode())
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(check["model"])},
                    # a model has no lines, and code scanning shows no result without one
                    "region": {"startLine": 1},
                },
                "logicalLocations": [
                    {"name": layer["name"], "fullyQualifiedName": layer["name"], "kind": "layer"}
                ],
            }
        ],
        "partialFingerprints": {"primaryLocationLineHash": f"{print_of.hexdigest()[:16]}:1"},
        "properties": {
            "target": check["target"],
            "precision": check["precision"],
            "tensorrt": check["tensorrt"],
        },
    }


def _uri(model: str) -> str:
    """A path below the working directory as relative, which code scanning asks for."""
    if model.startswith("builtin:"):
        return quote(model, safe=":/")
    path = Path(model)
    if path.is_absolute():
        here = Path.cwd()
        if not path.is_relative_to(here):
            return path.as_uri()
        path = path.relative_to(here)
    return quote(os.path.normpath(path).replace(os.sep, "/"))


def _rule(rule: Rule) -> dict[str, Any]:
    facts = rule.to_json()
    sources = [f"{one['title']} ({one['where']})" for one in facts["sources"]]
    text = f"{rule.text}.\n\nFix: {facts['fix']}.\n\nSource: {'; '.join(sources)}."
    lines = "\n".join(f"- {source}" for source in sources)
    found: dict[str, Any] = {
        "id": rule.id,
        "shortDescription": {"text": f"{rule.text}."},
        "fullDescription": {
            "text": f"{rule.text}." + (f" Limit: {rule.limit}." * bool(rule.limit))
        },
        "help": {
            "text": text,
            "markdown": f"{rule.text}.\n\n**Fix:** {facts['fix']}.\n\n**Sources:**\n\n{lines}\n",
        },
        "properties": {"certainty": rule.certainty, "tags": ["dla", rule.family]},
    }
    link = next((match[0] for place in rule.places if (match := _PLACE.match(place))), "")
    if link:
        found["helpUri"] = f"https://{link}"
    return found
