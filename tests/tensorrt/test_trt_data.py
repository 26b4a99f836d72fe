"""The files under trt/ are whole, of one mind, and agree with the bindings' API."""

import json
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from edgekit.errors import DataError
from edgekit.knowledge import data_folder, read_facts
from edgekit.targets.board import PLATFORMS
from edgekit.tensorrt.releases import (
    FeatureFacts,
    FeatureRule,
    ReleaseFacts,
    feature_rules,
    features,
    release,
    release_facts,
)

API = Path(__file__).parents[1] / "data" / "tensorrt_api"
VERSIONS = sorted(file.stem for file in API.glob("*.json"))
DLA = {"DLA_HYBRID", "DLA_STANDALONE"}

_STATUSES = ("required", "allowed", "ignored", "forbidden", "not_applicable", "unknown")


def read(name):
    return yaml.safe_load((data_folder("trt") / name).read_text())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_has_the_names_that_its_bindings_have(version):
    symbols = json.loads((API / f"{version}.json").read_text())["symbols"]
    on = release(version)
    wrong = [name for name in release_facts().names if on.has(name) != (name in symbols)]
    assert wrong == []


@pytest.mark.parametrize("version", VERSIONS)
def test_no_builder_flag_of_the_bindings_is_left_out(version):
    symbols = json.loads((API / f"{version}.json").read_text())["symbols"]
    for enum in ("BuilderFlag", "NetworkDefinitionCreationFlag", "MemoryPoolType", "TensorFormat"):
        members = {
            n
            for n, row in symbols.items()
            if n.startswith(f"{enum}.") and row["kind"] == "enum_member"
        }
        assert members
        assert members <= release_facts().names.keys()


def test_sources_are_all_named_and_all_used():
    known = set(read("_sources.yaml")["sources"])
    used = set()

    def walk(value, key=""):
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, name)
        elif isinstance(value, list) and key in ("source", "python_source"):
            used.update(value)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    files = [
        "features",
        "guide",
        "layers",
        "log_errors",
        "operators",
        "plugins",
        "releases",
        "runtime",
        "settings",
    ]
    for file in [*files, "trtexec_flags"]:
        walk(read(f"{file}.yaml"))
    assert used == known


def test_rows_are_of_known_features_and_statuses():
    known = set(features())
    for row in feature_rules():
        assert set(row.of) <= known
        assert row.status in _STATUSES
        assert row.basis in ("header", "docs", "source", "blog", "issue", "inferred")
        assert row.why
        assert row.sources or row.status == "unknown", row.of
        assert set(row.platforms) <= set(PLATFORMS)
    assert {feature.flag for feature in features().values() if feature.flag} <= set(
        release_facts().names
    )


def overlap(a: FeatureRule, b: FeatureRule) -> bool:
    """Whether some sampled release has both."""
    return any(
        a.holds(on, "x") and b.holds(on, "x")
        for on in map(release, [*release_facts().sampled, *release_facts().inferred])
    )


def test_no_two_rows_contradict_each_other():
    for a, b in combinations(feature_rules(), 2):
        if set(a.of) == set(b.of) and a.platforms == b.platforms:
            assert not overlap(a, b), a.of


def test_every_feature_has_a_row_with_each_dla_wherever_it_exists():
    """Nothing about a DLA is left to silence."""
    driven = [release(text) for text in ("8.5.2", "8.6.1", "10.3.0", "10.7.0", "11.4.1")]
    for on in driven:
        for name, feature in features().items():
            if name in DLA or not feature.on(on):
                continue
            for dla in DLA:
                found = [
                    row
                    for row in feature_rules()
                    if set(row.of) == {dla, name} and row.holds(on, "jetson-agx-orin-64gb")
                ]
                assert found, (on.text, dla, name)


@pytest.mark.parametrize(
    ("name", "kind", "old", "new", "said"),
    [
        (
            "releases",
            ReleaseFacts,
            'since: "10.6"',
            "since: 10.6",
            "since: expected a string, found float",
        ),
        (
            "releases",
            ReleaseFacts,
            "weak: {until:",
            "weak: {till:",
            "typing.weak: unknown: 'till'",
        ),
        (
            "releases",
            ReleaseFacts,
            "warnings:\n",
            "warnings:\n  - {}\n",
            "warnings[0]: missing: features",
        ),
        (
            "features",
            FeatureFacts,
            "profiles: 1",
            "profiles: -1",
            "limits[0].profiles: -1 is not within",
        ),
        ("features", FeatureFacts, "status: forbidden, ", "", "rows[0]: missing: status"),
    ],
)
def test_a_fault_in_a_file_is_refused_with_its_place(name, kind, old, new, said, tmp_path):
    text = (data_folder("trt") / f"{name}.yaml").read_text()
    assert old in text
    path = tmp_path / f"{name}.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        read_facts(kind, path, f"edgekit.tensorrt-{name}/1")
    assert said in caught.value.message
    assert caught.value.where == str(path)


def test_what_a_build_may_leave_out_says_what_is_lost():
    assert all(features()[name].without for name in read("features.yaml")["give_up"])
