"""What NumPy folds in one call is what onnx's reference computes."""

import numpy as np
import pytest
from onnx import helper

from edgekit.network.loading.folding import fold_with_numpy, run
from edgekit.network.protos import onnx_elem_type, tensor_type

RANDOM = np.random.default_rng(0)
WIDE, ROW = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 2), (4, 1)))
PLACES = np.array([[2, -1], [0, 0]])
CASES = [
    ("Add", [WIDE, ROW], {}),
    ("Sub", [WIDE.astype(np.float16), ROW.astype(np.float16)], {}),
    ("Mul", [PLACES, PLACES], {}),
    ("Transpose", [WIDE], {"perm": [2, 0, 1]}),
    ("Transpose", [WIDE], {}),
    ("Gather", [WIDE, PLACES], {}),
    ("Gather", [WIDE, PLACES % 2], {"axis": -1}),
    ("Concat", [WIDE, WIDE[:1]], {"axis": 0}),
]


@pytest.mark.parametrize(("op", "values", "given"), CASES)
def test_one_call_is_the_reference(op, values, given):
    named = {f"i{index}": value for index, value in enumerate(values)}
    node = helper.make_node(op, list(named), ["y"], **given)
    found = fold_with_numpy(node, named)
    forms = {**named, "y": found}
    types = {name: tensor_type(onnx_elem_type(v.dtype), v.shape) for name, v in forms.items()}
    expected = run(node, named, types, 13)["y"]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("op", "values"),
    [("Div", [WIDE, ROW]), ("Gather", [WIDE, np.array([3])]), ("Add", [WIDE, PLACES])],
)
def test_the_rest_is_left_to_it(op, values):
    named = {f"i{index}": value for index, value in enumerate(values)}
    assert fold_with_numpy(helper.make_node(op, list(named), ["y"]), named) is None
