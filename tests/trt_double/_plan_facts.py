"""What the double's plan keeps: how it was built, its I/O, layers and weights."""

import hashlib
from typing import Any

from ._build_log import foreign, subgraphs
from ._play_config import flag_names
from ._play_plugins import creators_of
from ._rules import formats


def _format_of(double: Any, tensor: Any, names: list[str]) -> str:
    return names[0] if tensor._s.formats_set and names else "LINEAR"


def _io(network: Any, scales: dict[str, float]) -> list[dict[str, Any]]:
    double = network._s.double
    found = []
    for mode, tensors in (("INPUT", network._s.inputs), ("OUTPUT", network._s.outputs)):
        for tensor in tensors:
            state = tensor._s
            scale = scales.get(state.name)
            if state.range is not None:
                scale = max(abs(one) for one in state.range) / 127.0
            found.append(
                {
                    "name": state.name,
                    "mode": mode,
                    "dtype": state.dtype.name,
                    "shape": list(state.shape_values),
                    "format": _format_of(double, tensor, formats(double, state.allowed_formats)),
                    "scale": scale,
                }
            )
    return found


def digest(value: Any) -> str:
    """SHA-256 of an array's bytes."""
    return hashlib.sha256(value.tobytes()).hexdigest()


def refit_kind(flags: set[str]) -> str:
    """How an engine of these flags is refitted: STRIP_PLAN alone implies REFIT_IDENTICAL."""
    if "REFIT" in flags:
        return "any"
    if "REFIT_INDIVIDUAL" in flags:
        return "individual"
    if flags & {"REFIT_IDENTICAL", "STRIP_PLAN"}:
        return "identical"
    return "none"


def facts_of(
    network: Any, config: Any, on_dla: list[Any], scales: dict[str, float]
) -> dict[str, Any]:
    """The plan's facts."""
    flags = set(flag_names(config))
    layers, inside = [], {id(one) for one in on_dla}
    for group in subgraphs(on_dla, network._s.layers):
        layers.append({"name": foreign(group), "type": "DLA", "order": _at(network, group[0])})
    for layer in network._s.layers:
        if id(layer) not in inside and layer._s.kind_name != "CONSTANT":
            layers.append(
                {"name": layer._s.name, "type": layer._s.kind_name, "order": _at(network, layer)}
            )
    refit = refit_kind(flags)
    weights = {
        name: {"dtype": str(value.dtype), "shape": list(value.shape), "digest": digest(value)}
        for name, value in network._s.weights.items()
        if refit != "none" and (refit != "individual" or name in network._s.refittable)
    }
    plugins = {
        "plugins": sorted(set(network._s.plugins.values())),
        "plugins_embedded": sorted(
            "|".join(row)
            for path in config._s.plugins_to_serialize
            for row in creators_of(network._s.double, path) or ()
        ),
    }
    return {
        "name": network._s.name,
        "flags": sorted(flags),
        "io": _io(network, scales),
        "layers": sorted(layers, key=lambda one: one["order"]),
        "weights": weights,
        "refit": refit,
        "stripped": "STRIP_PLAN" in flags,
        "version_compatible": "VERSION_COMPATIBLE" in flags,
        "lean_embedded": "VERSION_COMPATIBLE" in flags and "EXCLUDE_LEAN_RUNTIME" not in flags,
        **{name: rows for name, rows in plugins.items() if rows},
        "dla": bool(on_dla),
        "capability": config._s.engine_capability.name,
        "verbosity": config._s.profiling_verbosity.name,
        "profiles": [dict(one._s.shapes) for one in config._s.profiles],
        **_sharing(network, config),
        "refitted": "STRIP_PLAN" not in flags,
    }


def _sharing(network: Any, config: Any) -> dict[str, bool]:
    """Whether several contexts may have a profile at once, of a plan with profiles."""
    if not config._s.profiles:
        return {}
    # the default from 10.0 on (NvInfer.h, PreviewFeature::kPROFILE_SHARING_0806)
    default = network._s.double.build >= (10,)
    return {"profile_sharing": default or "PROFILE_SHARING_0806" in config._s.preview}


def _at(network: Any, layer: Any) -> int:
    return next(at for at, one in enumerate(network._s.layers) if one is layer)


def model_of(network: Any, facts: dict[str, Any]) -> bytes:
    """The network's ONNX, without the refittable weights where the plan is stripped."""
    import onnx

    from ._onnx_weights import set_refit_weights

    model = onnx.ModelProto()
    model.CopyFrom(network._s.model)
    # folded as the builder folds, so that a refitted engine gives the bits of one never stripped
    build = network._s.double.build
    set_refit_weights(model, network._s.weights, build)
    if facts["stripped"]:
        zeros = {
            name: value * 0
            for name, value in network._s.weights.items()
            if name in facts["weights"]
        }
        set_refit_weights(model, zeros, build)
    return bytes(model.SerializeToString())
