"""INetworkDefinition, ILayer and ITensor: what a parser filled in, read and set by the caller."""

from typing import Any

from ._behaviour import plays
from ._play_base import emit

_DTYPES = {
    1: "FLOAT",
    10: "HALF",
    3: "INT8",
    6: "INT32",
    7: "INT64",
    9: "BOOL",
    2: "UINT8",
    16: "BF16",
}


def dtype_name(onnx_type: int) -> str:
    """DataType's name of an ONNX element type ("FLOAT" for one that has none here)."""
    return _DTYPES.get(onnx_type, "FLOAT")


def new_tensor(network: Any, name: str, dtype: str, shape: list[int]) -> Any:
    """A tensor of `network`."""
    types = network._s.double.factory.classes["DataType"].__members__
    formats = set(network._s.double.factory.classes["TensorFormat"].__members__.values())
    made = network._s.double.factory.new(
        "ITensor",
        network=network,
        name=name,
        # convertDtype of onnx-tensorrt before 10.0, where the enum has no INT64
        dtype=types.get(dtype) or types["INT32" if dtype == "INT64" else "FLOAT"],
        shape_values=list(shape),
        allowed_formats=sum(1 << int(member) for member in formats),
        formats_set=False,
        dtype_set=False,
        range=None,
        is_shape_tensor=False,
        is_execution_tensor=True,
        broadcast_across_batch=False,
    )
    network._s.tensors[name] = made
    return made


def _listed(items: Any, index: int) -> Any:
    """Item `index`, or None: get_layer and its kin give nullptr outside."""
    return items[index] if 0 <= index < len(items) else None


@plays("ITensor", "get shape")
def _shape(this: Any) -> Any:
    return this._s.double.factory.classes["Dims"](list(this._s.shape_values))


@plays("ITensor", "set shape")
def _set_shape(this: Any, value: Any) -> None:
    this._s.shape_values = list(value)


@plays("ITensor", "get is_network_input")
def _is_input(this: Any) -> bool:
    return this in this._s.network._s.inputs


@plays("ITensor", "get is_network_output")
def _is_output(this: Any) -> bool:
    return this in this._s.network._s.outputs


@plays("ITensor", "set allowed_formats")
def _set_formats(this: Any, value: int) -> None:
    this._s.allowed_formats = value
    this._s.formats_set = True
    _late(this, "allowed_formats")


@plays("ITensor", "set dtype")
def _set_dtype(this: Any, value: Any) -> None:
    this._s.dtype = value
    this._s.dtype_set = True
    _late(this, "dtype")


@plays("ITensor", "get dynamic_range")
def _range(this: Any) -> Any:
    return this._s.range


@plays("ITensor", "set dynamic_range")
def _set_range_tuple(this: Any, value: Any) -> None:
    low, high = value
    this._s.range = (float(low), float(high))


@plays("ITensor", "set_dynamic_range")
def _set_range(this: Any, min: float, max: float) -> bool:
    this._s.range = (float(min), float(max))
    _late(this, "dynamic_range")
    return True


def _late(this: Any, what: str) -> None:
    network = this._s.network
    if network._s.built:
        this._s.double.offend(f"{what} of tensor {this._s.name} was set after the build")


@plays("ILayer", "get num_inputs")
def _num_inputs(this: Any) -> int:
    return len(this._s.inputs)


@plays("ILayer", "get num_outputs")
def _num_outputs(this: Any) -> int:
    return len(this._s.outputs)


@plays("ILayer", "get_input")
def _get_input(this: Any, index: int) -> Any:
    return _listed(this._s.inputs, index)


@plays("ILayer", "get_output")
def _get_output(this: Any, index: int) -> Any:
    return _listed(this._s.outputs, index)


@plays("ILayer", "get precision")
def _precision(this: Any) -> Any:
    types = this._s.double.factory.classes["DataType"].__members__
    return this._s.precision or types["FLOAT"]


@plays("ILayer", "get precision_is_set")
def _precision_is_set(this: Any) -> bool:
    return this._s.precision is not None


@plays("ILayer", "set_output_type")
def _set_output_type(this: Any, index: int, dtype: Any) -> None:
    if not 0 <= index < len(this._s.outputs):
        this._s.double.offend(
            f"set_output_type({index}) of layer {this._s.name} with fewer outputs"
        )
        return
    this._s.output_types[index] = dtype


for _kind in ("input", "output", "layer"):

    def _count(this: Any, _kind: str = _kind) -> int:
        return len(vars(this._s)[f"{_kind}s"])

    def _get(this: Any, index: int, _kind: str = _kind) -> Any:
        return _listed(vars(this._s)[f"{_kind}s"], index)

    plays("INetworkDefinition", f"get num_{_kind}s")(_count)
    plays("INetworkDefinition", f"get_{_kind}")(_get)


@plays("INetworkDefinition", "get_flag")
def _get_flag(this: Any, flag: Any) -> bool:
    return bool(this._s.flags & (1 << int(flag)))


@plays("INetworkDefinition", "get has_implicit_batch_dimension")
def _implicit(_this: Any) -> bool:
    return False


@plays("INetworkDefinition", "mark_weights_refittable")
def _mark(this: Any, name: str) -> bool:
    if name not in this._s.weights:
        text = f"INetworkDefinition::markWeightsRefittable: There are no weights named {name}."
        emit(this._s.double, this._s.logger, "ERROR", text)
        return False
    this._s.refittable.add(name)
    return True


@plays("INetworkDefinition", "are_weights_marked_refittable")
def _marked(this: Any, name: str) -> bool:
    return name in this._s.refittable
