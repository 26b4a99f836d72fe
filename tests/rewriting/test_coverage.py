"""What the data says of each operator that needs a reconstruction, and what there is."""

from edgekit.knowledge import data_folder, read_knowledge
from edgekit.rewriting.rules.order import REWRITES


def _read(name):
    return read_knowledge(data_folder("dla") / f"{name}.yaml")


def _rows():
    document = _read("reconstruction")
    return [*document["operators"].items(), *((row["form"], row) for row in document["forms"])]


def test_every_operator_to_reconstruct_has_its_rewrites_a_way_by_hand_or_a_reason():
    marked = {
        name
        for name, row in _read("operators")["operators"].items()
        if "reconstruction" in {row["trt"], row["dla"]}
    }
    assert set(_read("reconstruction")["operators"]) == marked
    for name, row in _rows():
        assert len({"rewrites", "by_hand", "why_not"} & set(row)) == 1, name


def test_every_name_is_that_of_one_rewrite():
    names = [item.name for item in REWRITES]
    assert len(set(names)) == len(names)
    named = {name for _, row in _rows() for name in row.get("rewrites", ())}
    assert named - set(names) == set()
