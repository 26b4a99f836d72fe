"""The weights of a model by the name a refitter knows them, as onnx-tensorrt's ModelRefitter does.

Initializers under their own name, Constant nodes under their output, the two factors of each folded
BatchNormalization as "tmp_batch_norm_weight", "tmp_batch_norm_weight_0", ... (scale, then bias, in
node order). Written here apart from edgekit's own rules, so that the two can disagree.
"""

from typing import Any

BATCH_NORM = "tmp_batch_norm_weight"


def refit_weights(model: Any) -> dict[str, Any]:
    """Refit name -> NumPy array of `model` (a ModelProto with its weights)."""
    import numpy as np
    from onnx import numpy_helper

    graph = model.graph
    tensors = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value":
                    tensors[node.output[0]] = numpy_helper.to_array(attribute.t)
    folded: dict[str, Any] = {}
    eaten: set[str] = set()
    for node in graph.node:
        if node.op_type != "BatchNormalization" or any(
            name not in tensors for name in node.input[1:]
        ):
            continue
        epsilon = next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5)
        scale, bias, mean, variance = (tensors[name].astype(np.float32) for name in node.input[1:5])
        factor = scale / np.sqrt(variance + np.float32(epsilon))
        for value in (factor, bias - mean * factor):
            folded[_counted(len(folded))] = value.astype(np.float32)
        eaten.update(node.input[1:5])
    used = {
        name for node in graph.node for name in node.input if node.op_type != "BatchNormalization"
    }
    floats = {
        name: value
        for name, value in tensors.items()
        if name in used and value.dtype.kind == "f" and value.size
    }
    return {**floats, **folded}


def _counted(number: int) -> str:
    return BATCH_NORM if number == 0 else f"{BATCH_NORM}_{number - 1}"


def set_refit_weights(model: Any, values: dict[str, Any]) -> None:
    """Puts refit values into `model`: a folded pair as scale and bias of mean 0, variance 1."""
    import numpy as np
    from onnx import numpy_helper

    slots = {one.name: one for one in model.graph.initializer}
    counter = 0
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in values:
            for attribute in node.attribute:
                if attribute.name == "value":
                    attribute.t.CopyFrom(numpy_helper.from_array(values[node.output[0]]))
        if node.op_type != "BatchNormalization" or any(
            name not in slots for name in node.input[1:]
        ):
            continue
        pair = [values.get(_counted(counter)), values.get(_counted(counter + 1))]
        counter += 2
        if any(one is None for one in pair):
            continue
        epsilon = next((one.f for one in node.attribute if one.name == "epsilon"), 1e-5)
        zero, one = np.zeros_like(pair[0]), np.ones_like(pair[0]) - np.float32(epsilon)
        for name, value in zip(node.input[1:5], (*pair, zero, one), strict=True):
            slots[name].CopyFrom(numpy_helper.from_array(value, name))
    for name, value in values.items():
        if name in slots:
            slots[name].CopyFrom(numpy_helper.from_array(value, name))
