"""Packs what was built into a bundle: the manifest, its blobs and the golden vectors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit._listed import listed
from edgekit.bundle._record import canonical
from edgekit.bundle._types import Bundle, Golden, blob_view
from edgekit.errors import BundleError, DataError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Artefacts, Segment, Weight
    from edgekit.network import Model, Network, Tensor
    from edgekit.placement import Plan

__all__ = ["golden_inputs", "pack", "tensor_io", "with_weights"]

_SHOWN = 20


def pack(
    *,
    name: str,
    model: Model,
    network: Network,
    plan: Plan,
    artefacts: Artefacts,
    golden: Sequence[Golden] = (),
    mode: str = "hybrid",
    rewrites: Mapping[str, Any] | None = None,
) -> Bundle:
    """Packs a build. The same inputs give the same bytes.

    Args:
        name: The app's name on the board: letters, digits, ".", "_" and "-".
        model: The model that was built; gives digest and source.
        network: Its inputs and outputs.
        plan: Placement, target, power mode, precision and TensorRT version.
        artefacts: Engines, weights and fingerprint.
        golden: Golden vectors of the unstripped build.
        mode: "hybrid", "standalone" or "split".
        rewrites: The ``edgekit.rewrites/1`` document of how the model came about; none when None.

    Raises:
        BundleError: "bundle.invalid"; the parts do not fit together, or a name cannot be used.
    """
    blobs: dict[str, Any] = dict(artefacts.engines)
    kinds = dict.fromkeys(artefacts.engines, "engine")
    outputs = [tensor_io(network.tensors[tensor]) for tensor in network.outputs]
    cases, results = _golden(golden, outputs)
    blobs.update(results)
    kinds.update(dict.fromkeys((d for d in results if d not in kinds), "golden"))
    proofs: dict[str, Any] = {}
    if rewrites is not None:
        record = canonical(rewrites)
        digest = hashlib.sha256(record).hexdigest()
        blobs[digest], kinds[digest] = record, "record"
        proofs["rewrites"] = digest
    from edgekit import __version__

    manifest = {
        "schema": "edgekit.bundle/1",
        "name": name,
        "created_by": {"edgekit": __version__},
        "backend": artefacts.backend,
        "model": {"digest": model.digest, "source": model.source},
        "target": plan.target,
        "power_mode": plan.power_mode,
        "precision": plan.precision,
        "mode": mode,
        "tensorrt": plan.tensorrt,
        "fingerprint": dict(artefacts.fingerprint),
        "inputs": [tensor_io(network.tensors[tensor]) for tensor in network.inputs],
        "outputs": outputs,
        "lanes": [
            {"share": share, "segments": [_segment(segment) for segment in segments]}
            for share, segments in artefacts.lanes
        ],
        "weights": _weights(artefacts.weights),
        "stripped": bool(artefacts.weights),
        "blobs": {
            digest: {"bytes": len(blob_view(blob)), "kind": kinds[digest]}
            for digest, blob in blobs.items()
        },
        "golden": cases,
        "placement": {
            "layers": [[p.name, p.device, p.precision, p.segment] for p in plan.layers],
            "loadables": [
                {"core": part.core, "layers": list(part.layers), "memory": part.memory.to_json()}
                for part in plan.loadables
            ],
        },
        "plugins": [],
        **({"engines": dict(artefacts.engine_facts)} if artefacts.engine_facts else {}),
        **proofs,
    }
    return _finish(manifest, blobs, dict(artefacts.values))


def with_weights(
    bundle: Bundle,
    weights: Mapping[str, Weight],
    values: Mapping[str, np.ndarray],
    golden: Sequence[Golden],
    model: Model | None = None,
) -> Bundle:
    """Packs the same engines with other weights: a refit, without a build.

    Args:
        bundle: The bundle to start from.
        weights: The new weights by name; the same names, types and shapes.
        values: Their values by digest.
        golden: Golden vectors of the new weights.
        model: The model they are from; the old one's digest and source stay without it.

    Raises:
        DataError: "refit.mismatch", with every name that does not fit, or "refit.identical" where
            an engine takes no other weights than those that it was built with.
    """
    old = bundle.weight_entries()
    faults = [f"{name} (missing)" for name in old if name not in weights]
    faults += [f"{name} (not in the bundle)" for name in weights if name not in old]
    for name, weight in weights.items():
        was = old.get(name)
        if was and (was.dtype, was.shape) != (weight.dtype, tuple(weight.shape)):
            faults.append(
                f"{name} ({weight.dtype} {list(weight.shape)}, "
                f"the engines have {was.dtype} {list(was.shape)})"
            )
    if faults:
        raise DataError(
            f"{len(faults)} weights do not fit the bundle's engines",
            code="refit.mismatch",
            where=bundle.name,
            hint="build again, or give weights of the same names, types and shapes: "
            + listed(faults, _SHOWN),
        )
    _check_identical(bundle, old, weights)
    kept = {d: e["kind"] for d, e in bundle.manifest["blobs"].items() if e["kind"] != "golden"}
    cases, results = _golden(golden, bundle.manifest["outputs"])
    blobs = results | {digest: bundle.blobs[digest] for digest in kept}
    manifest = dict(bundle.manifest)
    if model is not None:
        manifest["model"] = {"digest": model.digest, "source": model.source}
    manifest["weights"] = _weights(weights)
    manifest["golden"] = cases
    manifest["blobs"] = {
        digest: {
            "bytes": len(blob_view(blob)),
            "kind": kept.get(digest, "golden"),
        }
        for digest, blob in blobs.items()
    }
    return _finish(manifest, blobs, dict(values))


def _check_identical(bundle: Bundle, old: Mapping[str, Any], weights: Mapping[str, Weight]) -> None:
    """Refuses other weights for engines that were built with REFIT_IDENTICAL.

    "If the refit engine weights are not identical to the original, behavior is undefined"
    (NvInfer.h 10.7, BuilderFlag::kREFIT_IDENTICAL), so no bundle may hold them.
    """
    engines = bundle.manifest.get("engines", {}).values()
    if not any(engine["refit"] == "identical" for engine in engines):
        return
    other = [name for name, weight in weights.items() if weight.digest != old[name].digest]
    if other:
        raise DataError(
            f"{len(other)} weights differ from those that the engines were built with, "
            "and REFIT_IDENTICAL takes no others",
            code="refit.identical",
            where=bundle.name,
            hint="build again, or build with build.refit: any; they are " + listed(other, _SHOWN),
        )


def tensor_io(
    tensor: Tensor, layout: str = "LINEAR", strides: Sequence[int] | None = None
) -> dict[str, Any]:
    """Returns a manifest's input or output.

    Args:
        tensor: Name, shape and type.
        layout: TensorRT's format name.
        strides: Bytes by dimension; those of a dense C-order array when None.
    """
    if strides is None:
        import numpy as np

        step, found = np.dtype(tensor.dtype).itemsize, []
        for size in reversed(tensor.shape):
            found.append(step)
            step *= size
        strides = found[::-1]
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "format": layout,
        "strides": list(strides),
    }


def golden_inputs(
    network: Network, seed: int, ranges: Mapping[str, tuple[float, float]]
) -> dict[str, np.ndarray]:
    """Returns the inputs that a board generates for a golden vector of this seed and ranges."""
    from edgekit_device._golden import golden_inputs as generate
    from edgekit_device._types import TensorEntry

    entries = [
        TensorEntry(tensor.name, tensor.dtype, tensor.shape, "LINEAR", ())
        for tensor in (network.tensors[name] for name in network.inputs)
    ]
    return generate(entries, seed, dict(ranges))


def _golden(
    golden: Sequence[Golden], outputs: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    cases, blobs = [], {}
    for case in golden:
        results = {}
        for tensor in outputs:
            value = case.outputs[tensor["name"]]
            digest = hashlib.sha256(blob_view(value)).hexdigest()
            blobs[digest] = value
            results[tensor["name"]] = {
                "blob": digest, "dtype": str(value.dtype), "shape": list(value.shape),
            }  # fmt: skip
        cases.append({
            "seed": case.seed,
            "inputs": {
                name: {"low": float(low), "high": float(high)}
                for name, (low, high) in case.ranges.items()
            },
            "outputs": results,
            "tolerance": {"relative": float(case.relative)},
            **({} if case.lane is None else {"lane": case.lane}),
        })  # fmt: skip
    return cases, blobs


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "index": segment.index,
        "device": segment.device,
        "engine": segment.engine,
        "inputs": list(segment.inputs),
        "outputs": list(segment.outputs),
        "layers": list(segment.layers),
    }


def _weights(weights: Mapping[str, Weight]) -> dict[str, dict[str, Any]]:
    import numpy as np

    return {
        name: {
            "digest": weight.digest,
            "dtype": weight.dtype,
            "shape": list(weight.shape),
            "bytes": int(np.prod(weight.shape, dtype=np.int64)) * _item_bytes(weight.dtype),
            "source": weight.source,
            "transform": weight.transform,
        }
        for name, weight in weights.items()
    }


def _item_bytes(dtype: str) -> int:
    from edgekit_device._types import WEIGHT_DTYPES

    if dtype not in WEIGHT_DTYPES:
        raise BundleError(
            f"weights of type {dtype} cannot be bundled",
            code="bundle.invalid",
            hint=f"use one of {', '.join(WEIGHT_DTYPES)}",
        )
    return WEIGHT_DTYPES[dtype]


def _finish(manifest: dict[str, Any], blobs: dict[str, Any], weights: dict[str, Any]) -> Bundle:
    """Makes the canonical bytes and has the board's own reader check them."""
    from edgekit_device._errors import DeviceError
    from edgekit_device._manifest import parse

    data = canonical(manifest)
    try:
        checked = parse(data)
    except DeviceError as error:
        raise BundleError(
            f"{error.where}: {error.message}",
            code="bundle.invalid",
            where=str(manifest["name"])[:80],
            hint=error.hint,
        ) from error
    needed = {weight.digest for weight in checked.weights.values()}
    lacking = sorted(needed - set(weights))
    if lacking:
        raise BundleError(
            f"the values of {len(lacking)} weights are not there, first {lacking[0]}",
            code="bundle.incomplete",
            where=checked.name,
        )
    kept = {digest: weights[digest] for digest in sorted(needed)}
    # what was read back is what a reader of the file sees: lists, not tuples
    return Bundle(json.loads(data), data, dict(sorted(blobs.items())), kept)
