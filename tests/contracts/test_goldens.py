"""The net itself: what it sees, what it leaves out, and where it holds."""

from __future__ import annotations

import json

import pytest

from tests.contracts import goldens
from tests.contracts.brief import brief
from tests.contracts.normalise import normalised

LAYERS = [
    {"name": f"n{i}", "nodes": [f"n{i}"] * 20, "device": "GPU", "us": i / 3, "dla": {"ok": True}}
    for i in range(5)
]


def stored(document):
    return goldens.read(goldens.text_of(goldens.compact(document)))


def found(old, new, tolerance=None):
    return list(goldens.differences(stored(old), stored(new), tolerance))


def changed(layer: int, **values):
    return {"layers": [{**one, **values} if i == layer else one for i, one in enumerate(LAYERS)]}


def test_a_difference_is_located():
    assert found({"layers": LAYERS}, {"layers": LAYERS}) == []
    assert found({"layers": LAYERS}, changed(2, device="DLA0")) == [
        'layers.n2.device: "GPU" -> "DLA0"'
    ]
    (long,) = found({"layers": LAYERS}, changed(3, nodes=["x"] * 20))
    assert long.startswith("layers.n3.nodes: ")
    assert found({"layers": LAYERS}, {"layers": LAYERS[:4]})[0].startswith("layers.n4: gone")
    assert found({"layers": LAYERS}, {"layers": LAYERS[::-1]}) == ["layers: in another order"]
    assert found({"a": [1, 2]}, {"a": [1, 3], "b": None}) == ["a[1]: 2 -> 3", "b: new, null"]
    assert found({"a": 1}, {"a": 1.0}) == ["a: 1 -> 1.0"]
    assert found({"a": 1}, {"a": True}) == ["a: 1 -> true"]


def test_a_tolerance_is_for_floats_alone():
    near, far = changed(2, us=2 / 3 * (1 + 1e-9)), changed(2, us=0.67)
    assert found({"layers": LAYERS}, near)
    assert found({"layers": LAYERS}, near, 1e-6) == []
    assert found({"layers": LAYERS}, far, 1e-6)
    assert found({"layers": LAYERS}, changed(2, device="DLA0"), 1e-6)
    assert found({"note": "takes 7.1 ms"}, {"note": "takes 7.2 ms"}, 1e-6) == []
    assert found({"note": "takes 7.1 ms"}, {"note": "takes 7.9 ms"}, 1e-6)
    assert found({"note": "7.1 ms"}, {"note": "7.1 us"}, 1e-6)


def test_a_stored_text_reads_back_and_has_one_order():
    document = {"b": LAYERS, "a": [1, "é", None], "c": {"columns": 1}}
    text = goldens.text_of(goldens.compact(document))
    again = goldens.text_of(goldens.compact(dict(reversed(document.items()))))
    assert text == again
    assert goldens.read(text) == goldens.compact(document)


def test_in_short_each_difference_is_seen_by_column():
    def short(document, tolerance=None):
        return list(goldens.differences(brief({"layers": LAYERS}), brief(document), tolerance))

    assert short({"layers": LAYERS}) == []
    assert short(changed(2, device="DLA0")) == [
        'layers.device: "5 x GPU" -> "2 x GPU, DLA0, 2 x GPU"'
    ]
    assert short(changed(3, nodes=["x"] * 20))[0].startswith("layers.nodes: ")
    assert short(changed(3, us=1.2), 1e-6)[0].startswith("layers.us: ")
    assert short(changed(3, us=1 + 1e-8)) == []
    many = [i / 3 for i in range(99)]
    old, new = brief({"a": many}), brief({"a": [*many[:50], 7.0, *many[51:]]})
    assert [*goldens.differences(old, new, None)] != []
    assert brief("x" * 200) != brief("x" * 199 + "y")


def test_machine_facts_are_words():
    document = {
        "seconds": 1.5,
        "host": None,
        "pid": 7,
        "predicted_us": 3.25,
        "file": "/home/me/x/a.onnx",
        "note": "since 2026-01-02T03:04:05Z",
    }
    assert normalised(document, {"/home/me": "<home>", "/home/me/x": "<tmp>"}) == {
        "seconds": "<seconds>",
        "host": None,
        "pid": "<pid>",
        "predicted_us": 3.25,
        "file": "<tmp>/a.onnx",
        "note": "since <date>",
    }
    assert normalised({"port": 1}, {}, {"port": "<port>"}) == {"port": "<port>"}


def test_the_environment_is_recorded():
    for path in goldens.FOLDER.rglob("*environment.json"):
        recorded = json.loads(path.read_text())
        assert recorded.keys() == json.loads(goldens.here()).keys()
        # else the bytes would be compared nowhere
        assert recorded["lock"] == goldens.locked(), (
            "run scripts/record-contracts with the new lock"
        )


def test_the_lock_covers_what_is_required():
    tomllib = pytest.importorskip("tomllib")
    packaging = pytest.importorskip("packaging.requirements")
    project = tomllib.loads((goldens.LOCK.parent / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    lines = goldens.LOCK.read_text().splitlines()
    locked = [line.split()[0].split("==") for line in lines if "==" in line and line[:1].isalnum()]
    for requirement in map(packaging.Requirement, wanted):
        versions = [found for name, found in locked if name == requirement.name.lower()]
        assert versions, f"requirements-lock.txt lacks {requirement}"
        assert all(map(requirement.specifier.contains, versions)), requirement


def test_no_golden_names_a_place_of_this_machine():
    for path in goldens.FOLDER.rglob("*.json"):
        text = path.read_text()
        assert not any(place in text for place in ("/tmp/", "/home/", "/root/", "/work")), path
