"""The lock files agree with each other, and the SBOM lists what they lock."""

import json
import re
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def locked(name):
    """(name, version, marker) -> hashes."""
    found, hashes = {}, set()
    for line in (ROOT / name).read_text().splitlines():
        if line[:1].isalnum():
            requirement = Requirement(line.rstrip("\\ "))
            (version,) = requirement.specifier
            hashes = found.setdefault((requirement.name, version.version), set())
        hashes |= set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def test_what_runs_is_locked_in_the_versions_that_are_tested():
    everything, runtime = locked("requirements-lock.txt"), locked("requirements-runtime-lock.txt")
    assert runtime.items() <= everything.items()
    build = locked("requirements-build-lock.txt")
    assert "hatchling" in {name for name, _ in build}
    assert build.items() <= everything.items()
    assert all(everything.values())
    text = (ROOT / "pyproject.toml").read_text()
    required = re.findall(r'^  "([\w-]+)>=[\d.]+",', text.split("[project.optional")[0], re.M)
    assert len(required) > 5
    assert set(required) <= {name for name, _ in runtime}
    assert not re.search(r"https?://", (ROOT / "requirements-lock.txt").read_text())


def test_the_sbom_lists_every_locked_dependency_and_is_the_same_each_time(tmp_path):
    texts = []
    for name in ("one.json", "two.json"):
        subprocess.run(
            [sys.executable, ROOT / "scripts" / "sbom.py", "-o", tmp_path / name], check=True
        )
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    listed = {
        (canonicalize_name(one["name"]), one["version"]): {
            each["content"] for each in one["hashes"]
        }
        for one in document["components"]
    }
    assert listed == locked("requirements-runtime-lock.txt")
    references = [one["bom-ref"] for one in document["components"]]
    assert len(set(references)) == len(references)
