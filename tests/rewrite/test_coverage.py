"""What the data says of each operator that needs a reconstruction, and what there is."""

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.rewrite import rewrites


def _read(name):
    return read_knowledge(data_folder("dla") / f"{name}.yaml")


def _rows():
    document = _read("reconstruction")
    return [*document["operators"].items(), *((row["form"], row) for row in document["forms"])]


def test_every_operator_to_reconstruct_has_its_rewrites_or_a_reason():
    marked = {
        name
        for name, row in _read("operators")["operators"].items()
        if "reconstruction" in {row["trt"], row["dla"]}
    }
    assert set(_read("reconstruction")["operators"]) == marked
    for name, row in _rows():
        assert bool(row.get("rewrites")) != bool(row.get("why_not")), name


def test_the_matrix_promises_21_reconstructions_to_tensorrt():
    rows = _read("operators")["operators"]
    promised = {name for name, row in rows.items() if row["trt"] == "reconstruction"}
    done = {name for name, row in _read("reconstruction")["operators"].items() if "rewrites" in row}
    assert len(promised) == 21
    # these two are for calibration, which has scales for them
    assert promised - done == {"DequantizeLinear", "QuantizeLinear"}


def test_every_name_is_that_of_one_rewrite():
    names = [item.name for item in rewrites()]
    assert len(set(names)) == len(names)
    named = {name for _, row in _rows() for name in row.get("rewrites", ())}
    assert named - set(names) == set()
