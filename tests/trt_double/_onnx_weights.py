"""The weights of a model by the name a refitter knows them, as onnx-tensorrt's ModelRefitter does.

Initializers under their own name, Constant nodes under their output. What the importer makes has a
counted name: the two factors of each folded BatchNormalization (scale, then bias, in node order)
as "tmp_batch_norm_weight", "tmp_batch_norm_weight_0", ...; from 10.14 on "tmp_refittable_weight"
and so on, among them the value of each ConstantOfShape. Written here apart from edgekit's own
rules, so that the two can disagree.
"""

from collections.abc import Iterator
from typing import Any

Build = tuple[int, ...]
_COUNTS_ALL = (10, 14)


def refit_weights(model: Any, build: Build) -> dict[str, Any]:
    """Refit name -> NumPy array of `model` (a ModelProto with its weights), by release."""
    import numpy as np
    from onnx import numpy_helper

    graph = model.graph
    tensors = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensors[node.output[0]] = numpy_helper.to_array(attribute.t)
    made: dict[str, Any] = {}
    for node, names in _counted(model, build):
        if node.op_type == "ConstantOfShape":
            values = [numpy_helper.to_array(one.t) for one in node.attribute]
            made[names[0]] = values[0] if values else np.zeros(1, np.float32)
        else:
            parameters = [tensors[name] for name in node.input[1:5]]
            made.update(zip(names, _folded(parameters, _epsilon(node)), strict=True))
    used = {
        name for node in graph.node for name in node.input if node.op_type != "BatchNormalization"
    }
    floats = {
        name: value
        for name, value in tensors.items()
        if name in used and value.dtype.kind == "f" and value.size
    }
    return {**floats, **made}


def set_refit_weights(model: Any, values: dict[str, Any], build: Build) -> None:
    """Puts refit values into `model`: a folded pair as scale and bias of mean 0, variance 1."""
    import numpy as np
    from onnx import helper, numpy_helper

    slots = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in values:
            for attribute in node.attribute:
                if attribute.name == "value":
                    attribute.t.CopyFrom(numpy_helper.from_array(values[node.output[0]]))
    for node, names in _counted(model, build):
        given = [values.get(name) for name in names]
        if any(one is None for one in given):
            continue
        if node.op_type == "ConstantOfShape":
            value = numpy_helper.from_array(given[0].reshape(1))
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("value", value))
            continue
        kind = given[0].dtype
        zero, one = np.zeros_like(given[0]), np.ones_like(given[0]) - _epsilon(node)
        for name, array in zip(node.input[1:5], (*given, zero, one), strict=True):
            slots[name].CopyFrom(numpy_helper.from_array(array.astype(kind), name))
    for name, value in values.items():
        if name in slots:
            slots[name].CopyFrom(numpy_helper.from_array(value, name))


def _counted(model: Any, build: Build) -> Iterator[tuple[Any, list[str]]]:
    """Nodes that the importer makes weights of, with the names of those."""
    every = build >= _COUNTS_ALL
    prefix, number = "tmp_refittable_weight" if every else "tmp_batch_norm_weight", 0
    known = {one.name for one in model.graph.initializer}
    known |= {one.output[0] for one in model.graph.node if one.op_type == "Constant"}
    for node in model.graph.node:
        folds = node.op_type == "BatchNormalization" and known.issuperset(node.input[1:5])
        many = 2 if folds else int(every and node.op_type == "ConstantOfShape")
        places = range(number, number + many)
        if many:
            yield node, [f"{prefix}_{place - 1}" if place else prefix for place in places]
        number += many


def _epsilon(node: Any) -> Any:
    import numpy as np

    return np.float32(next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5))


def _folded(parameters: list[Any], epsilon: Any) -> tuple[Any, Any]:
    """Scale and bias: half only where all four are, computed in float32 all the same."""
    import numpy as np

    half = {one.dtype for one in parameters} == {np.dtype(np.float16)}
    narrow = _half if half else np.float32
    scale, bias, mean, variance = (one.astype(np.float32) for one in parameters)
    factor = narrow(scale / np.sqrt(variance + np.float32(narrow(epsilon))))
    return factor, narrow(bias - mean * factor.astype(np.float32))


def _half(values: Any) -> Any:
    """Nearest float16, ties away from zero: a neighbour that is as near but farther out wins."""
    import numpy as np

    near = np.asarray(values).astype(np.float16)
    out = np.nextafter(near, np.copysign(np.float16(np.inf), near))
    wide = np.asarray(values, np.float64)
    return np.where(np.abs(out - wide) == np.abs(near - wide), out, near)
