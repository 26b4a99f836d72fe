"""What the data says of each operator that needs a reconstruction, and what there is."""

from pathlib import Path

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


def test_the_matrix_promises_21_reconstructions_to_tensorrt():
    rows = _read("operators")["operators"]
    promised = {name for name, row in rows.items() if row["trt"] == "reconstruction"}
    answered = _read("reconstruction")["operators"].items()
    done = {name for name, row in answered if {"rewrites", "by_hand"} & set(row)}
    assert len(promised) == 21
    # these two are for calibration, which has scales for them
    assert promised - done == {"DequantizeLinear", "QuantizeLinear"}


def test_every_name_is_that_of_one_rewrite():
    names = [item.name for item in REWRITES]
    assert len(set(names)) == len(names)
    named = {name for _, row in _rows() for name in row.get("rewrites", ())}
    assert named - set(names) == set()


def test_the_page_has_every_rewrite_once_and_every_operator():
    page = (Path(__file__).parents[2] / "docs" / "rewrites.md").read_text()
    for item in REWRITES:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{item.name}` |")]
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 5
        assert cells[1].startswith(item.operators[0])
        assert item.reason[1:].replace("|", "&#124;") == cells[2][1:]
        assert (cells[3] == "yes") != item.approximate
        assert bool(cells[4]) == item.enabling
    marked = page.partition("## NVIDIA's")[2].partition("\n## ")[0]
    for name in _read("reconstruction")["operators"]:
        assert f"\n| {name} | " in marked
    for name in _read("reconstruction")["without"]:
        assert f"\n| {name} | " in page.rpartition("## ")[2]
