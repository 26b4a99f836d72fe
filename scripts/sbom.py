#!/usr/bin/env python3
"""Writes the SBOM of a release: CycloneDX 1.6 JSON of edgekit and the packages in its lock file.

    python scripts/sbom.py -o sbom.cdx.json

It reads requirements-runtime-lock.txt alone: the same lock file gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?: *; *([^\\]+?))? *\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    version = re.search(r'__version__ = "([^"]+)"', (ROOT / "edgekit" / "version.py").read_text())
    assert version
    document = sbom((ROOT / "requirements-runtime-lock.txt").read_text(), version[1])
    parser.parse_args().output.write_text(json.dumps(document, indent=2) + "\n")


def sbom(lock: str, version: str) -> dict[str, Any]:
    """The document for a lock file's text and edgekit's version."""
    packages: list[dict[str, Any]] = []
    for line in lock.splitlines():
        if found := _PACKAGE.match(line):
            packages.append(_component(found[1], found[2]))
            # where a package is not for every Python or system
            if found[3]:
                packages[-1]["properties"] = [{"name": "python:marker", "value": found[3]}]
        for digest in _HASH.findall(line):
            packages[-1]["hashes"].append({"alg": "SHA-256", "content": digest})
    root = {**_component("edgekit", version), "type": "application"}
    root["licenses"] = [{"license": {"id": "Apache-2.0"}}]
    del root["hashes"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, version + lock)}",
        "version": 1,
        "metadata": {"component": root},
        "components": packages,
    }


def _component(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [],
    }


if __name__ == "__main__":
    main()
