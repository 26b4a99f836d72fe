"""ICudaEngine and the inspector: what a plan says of itself."""

from typing import Any

from ._behaviour import plays
from ._formats import NUMPY
from ._plan_format import write
from ._play_cache import host_memory
from ._play_inspector import description
from ._value_shapes import make_shapes

_VECTOR = {"CHW2": 2, "CHW4": 4, "CHW16": 16, "CHW32": 32, "DLA_HWC4": 4, "HWC8": 8, "HWC16": 16}
_BITS = {"FLOAT": 4, "HALF": 2, "INT8": 1, "INT32": 4, "INT64": 8, "BOOL": 1, "UINT8": 1}


def io_of(this: Any, name: str) -> dict[str, Any]:
    """One I/O tensor's facts."""
    for one in this._s.facts["io"]:
        if one["name"] == name:
            return dict(one)
    raise KeyError(f"Could not find tensor {name} in the engine's I/O tensors")


def _enum(this: Any, kind: str, name: str) -> Any:
    return this._s.double.factory.classes[kind].__members__[name]


@plays("ICudaEngine", "get num_io_tensors")
def _num_io(this: Any) -> int:
    return len(this._s.facts["io"])


@plays("ICudaEngine", "get_tensor_name")
def _name(this: Any, index: int) -> str:
    return str(this._s.facts["io"][index]["name"])


@plays("ICudaEngine", "get_tensor_mode")
def _mode(this: Any, name: str) -> Any:
    return _enum(this, "TensorIOMode", io_of(this, name)["mode"])


@plays("ICudaEngine", "get_tensor_dtype")
def _dtype(this: Any, name: str) -> Any:
    return _enum(this, "DataType", io_of(this, name)["dtype"])


@plays("ICudaEngine", "get_tensor_shape")
def _shape(this: Any, name: str) -> Any:
    return this._s.double.factory.classes["Dims"](io_of(this, name)["shape"])


@plays("ICudaEngine", "get_tensor_location")
def _location(this: Any, name: str) -> Any:
    if "TensorLocation" not in this._s.double.factory.classes:  # lean 8.6: it is not registered
        raise TypeError("Unable to convert function return value to a Python type! TensorLocation")
    return _enum(this, "TensorLocation", "HOST" if on_host(this, name) else "DEVICE")


@plays("ICudaEngine", "get_tensor_format")
def _format(this: Any, name: str, profile_index: int = 0) -> Any:
    if "TensorFormat" not in this._s.double.factory.classes:  # lean: the type is not registered
        raise TypeError("Unable to convert function return value to a Python type! TensorFormat")
    return _enum(this, "TensorFormat", io_of(this, name)["format"])


@plays("ICudaEngine", "get_tensor_format_desc")
def _format_desc(this: Any, name: str, profile_index: int = 0) -> str:
    return description(io_of(this, name))


@plays("ICudaEngine", "get_tensor_vectorized_dim")
def _vectorized(this: Any, name: str, profile_index: int = 0) -> int:
    return 1 if io_of(this, name)["format"] in _VECTOR else -1


@plays("ICudaEngine", "get_tensor_components_per_element")
def _components(this: Any, name: str, profile_index: int = 0) -> int:
    return _VECTOR.get(io_of(this, name)["format"], -1)


@plays("ICudaEngine", "get_tensor_profile_shape")
def _profile_shape(this: Any, name: str, profile_index: int) -> list[Any]:
    dims = this._s.double.factory.classes["Dims"]
    profiles = this._s.facts["profiles"]
    shapes = profiles[profile_index].get(name) if profiles else None
    return [dims(one) for one in shapes or [io_of(this, name)["shape"]] * 3]


@plays("ICudaEngine", "is_shape_inference_io")
def on_host(this: Any, name: str) -> bool:
    """Whether the tensor's values make shapes."""
    import onnx

    return io_of(this, name)["name"] in make_shapes(onnx.load_model_from_string(this._s.model))


for _key, _value in {
    "num_layers": lambda facts: len(facts["layers"]),
    "num_optimization_profiles": lambda facts: max(1, len(facts["profiles"])),
    "refittable": lambda facts: facts["refit"] != "none",
    "name": lambda facts: facts["name"],
    "num_aux_streams": lambda _facts: 0,
    "has_implicit_batch_dimension": lambda _facts: False,
}.items():
    plays("ICudaEngine", f"get {_key}")(lambda this, _value=_value: _value(this._s.facts))


@plays("ICudaEngine", "get engine_capability")
def _capability(this: Any) -> Any:
    return _enum(this, "EngineCapability", this._s.facts["capability"])


@plays("ICudaEngine", "get profiling_verbosity")
def _verbosity(this: Any) -> Any:
    return _enum(this, "ProfilingVerbosity", this._s.facts["verbosity"])


@plays("ICudaEngine", "create_serialization_config")
def _config(this: Any) -> Any:
    flags = this._s.double.factory.classes["SerializationFlag"].__members__
    mask = (1 << int(flags["EXCLUDE_WEIGHTS"])) if this._s.facts["stripped"] else 0
    return this._s.double.factory.new("ISerializationConfig", flags=mask)


@plays("ISerializationConfig", "set_flag")
def _set_flag(this: Any, flag: Any) -> bool:
    this._s.flags |= 1 << int(flag)
    return True


@plays("ISerializationConfig", "clear_flag")
def _clear_flag(this: Any, flag: Any) -> bool:
    this._s.flags &= ~(1 << int(flag))
    return True


@plays("ISerializationConfig", "get_flag")
def _get_flag(this: Any, flag: Any) -> bool:
    return bool(this._s.flags & (1 << int(flag)))


@plays("ICudaEngine", "serialize")
def _serialize(this: Any) -> Any:
    return _plan(this, set() if not this._s.facts["stripped"] else {"EXCLUDE_WEIGHTS"})


@plays("ICudaEngine", "serialize_with_config")
def _serialize_with(this: Any, arg0: Any) -> Any:
    members = this._s.double.factory.classes["SerializationFlag"].__members__
    flags = {name for name, one in members.items() if arg0._s.flags & (1 << int(one))}
    # what the builder was told of the runtime is not kept: the config says it anew
    carried = this._s.facts["version_compatible"] and "EXCLUDE_LEAN_RUNTIME" not in flags
    return _plan(this, flags, lean_embedded=carried)


def _plan(this: Any, flags: set[str], **more: Any) -> Any:
    from ._play_refit import current_model

    state, facts = this._s, {**this._s.facts, **more}
    without = "EXCLUDE_WEIGHTS" in flags
    if facts["stripped"] and not without:
        if not state.refitted:
            state.double.offend("weights were serialised before the stripped engine was refitted")
        facts.update(stripped=False, refitted=True)
        if "INCLUDE_REFIT" not in flags:
            facts.update(refit="none", weights={})
    model = state.model if without else current_model(this)
    return host_memory(state.double, write(state.plan_version, facts, model, loadable=False))


assert set(_BITS) == set(NUMPY)
