"""What a configuration asks a board to build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._golden import GOLDEN_SEED, golden_ranges

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.pipeline._work import Work
    from edgekit.trt import Decision, Lane, Request, Wish

__all__ = [
    "engines_of",
    "has_module",
    "release_of",
    "request_of",
    "settled_request",
    "wish_of",
]


def request_of(
    work: Work, probe: Mapping[str, Any], backend: str, *, model: Model | None = None
) -> tuple[Request, tuple[Lane, ...]]:
    """Returns the request for a board's build, and the engines that it is of.

    Args:
        work: The configuration's work.
        probe: What the board is.
        backend: "tensorrt" or "trtexec".
        model: Other weights in the same network; the configuration's own model when None.

    Raises:
        ConfigError: Wishes that cannot be had together, with the reason and its source.
    """
    from edgekit.quantize import cache_of
    from edgekit.trt import BuildOptions, build_request, command

    file = work.file
    decision = _decided(work, probe, backend)
    _note(work, decision)
    strong = decision.typing == "strong"
    scales = work.plan_scales
    lanes = _lanes(work, strong, model)
    used = {layer.precision for share in work.plan.plans for layer in share.layers}
    individual = file.build.refit if isinstance(file.build.refit, list) else []
    options = BuildOptions(
        backend=backend,
        tensorrt=work.tensorrt,
        typing=decision.typing,
        # a DLA runs an INT8 network's other layers in FP16
        precisions=() if strong else tuple(p for p in ("fp16", "int8") if _needs(p, used)),
        constraints=file.build.constraints,
        optimization_level=file.build.optimization_level,
        pools=_pools(work),
        calibration=cache_of(scales.scales, work.tensorrt).text if scales and not strong else None,
        refit_individual=tuple(individual),
        timing_cache=file.build.timing_cache,
    )
    release = release_of(probe) or work.tensorrt

    def line(engine: Mapping[str, Any], attempt: Mapping[str, Any]) -> list[str]:
        cache = file.build.timing_cache
        return command(engine, attempt, release, timing_cache=cache, notes=work.notes)

    tensors = work.network.tensors
    request = build_request(
        file.name,
        lanes,
        options,
        inputs=[_plain(tensors[name]) for name in work.network.inputs],
        outputs=[_plain(tensors[name]) for name in work.network.outputs],
        golden=_golden(work, len(lanes)),
        attempts=_attempts(decision),
        command=line if backend == "trtexec" else None,
    )
    return request, lanes


def settled_request(
    work: Work, probe: Mapping[str, Any], backend: str, request: Request
) -> Request:
    """Returns a request without the attempts that failed on such boards before."""
    from edgekit.trt import outcomes_file, settled

    decision = settled(
        _decided(work, probe, backend),
        outcomes_file(work.cache.folder),
        probe["fingerprint"],
        dla=_on_dla(work),
    )
    _note(work, decision)
    return request.trying(_attempts(decision))


def engines_of(work: Work, probe: Mapping[str, Any], backend: str) -> tuple[Lane, ...]:
    """Returns the engines of a board's build alone; arguments as for ``request_of``."""
    return _lanes(work, _decided(work, probe, backend).typing == "strong", None)


def _decided(work: Work, probe: Mapping[str, Any], backend: str) -> Decision:
    from edgekit.trt import decide

    return decide(
        wish_of(
            work,
            dla=_on_dla(work),
            bindings=backend == "tensorrt" or has_module(probe),
            plugins=any(layer.kind.startswith("PLUGIN") for layer in work.network.layers),
        )
    )


def _on_dla(work: Work) -> bool:
    return any(x.device != "GPU" for part in work.plan.plans for x in part.layers)


def _note(work: Work, decision: Decision) -> None:
    work.notes += [note for note in decision.notes if note not in work.notes]


def _lanes(work: Work, strong: bool, other: Model | None) -> tuple[Lane, ...]:
    from edgekit.trt import lanes_of

    scales = work.plan_scales
    given = None if strong else (scales.scales if scales else {})
    model = _model(work, strong, other)
    return lanes_of(model, work.network, work.plan, work.file.build.mode, given)


def _model(work: Work, strong: bool, other: Model | None) -> Model:
    """Returns the model that the board builds from, with types in it for a strongly typed one."""
    if not strong or work.file.precision == "fp32":
        return other or work.model
    if work.plan_scales is not None and other is None:
        return work.typed
    from edgekit.quantize import to_qdq

    scales = work.plan_scales.scales if work.plan_scales is not None else {}
    fp16 = work.fp16_layers(work.network)
    return to_qdq(other or work.model, work.network, scales, fp16_layers=fp16)


def wish_of(work: Work, *, dla: bool, bindings: bool = True, plugins: bool = False) -> Wish:
    """Returns what a configuration asks of TensorRT.

    Args:
        work: The configuration's work.
        dla: Whether the plan uses a DLA.
        bindings: Whether the board has TensorRT's Python module.
        plugins: Whether the network has layers that are plugins.
    """
    from edgekit.trt import Wish, release

    build, document = work.file.build, work.config.document
    refit: Any = tuple(build.refit) if isinstance(build.refit, list) else build.refit
    keys = ("mode", "strip", "refit", "version_compatible", "lean", "hardware_compatible")
    paths = [("tensorrt",), ("precision",), ("model",), ("model", "shapes")]
    paths += [("build", key) for key in keys]
    return Wish(
        target=work.file.target,
        tensorrt=work.tensorrt,
        mode=build.mode,
        dla=dla,
        precision=work.file.precision,
        # where types stand in the network, the model is given Q/DQ nodes for the board
        qdq="weak" not in release(work.tensorrt).typings,
        strip=build.strip,
        refit=refit,
        version_compatible=build.version_compatible,
        lean=build.lean,
        hardware_compatible=build.hardware_compatible,
        plugins=plugins,
        bindings=bindings,
        places={".".join(path): document.where(path) for path in paths if document.knows(path)},
    )


def has_module(probe: Mapping[str, Any]) -> bool:
    """Whether a board has TensorRT's Python module with its builder."""
    module: Any = probe.get("tensorrt") or {}
    return bool((module.get("python") or {}).get("full"))


def release_of(probe: Mapping[str, Any]) -> str:
    """Returns the TensorRT release that builds on a board, "10.3.0.30"; empty where unknown."""
    return str(probe["fingerprint"].get("tensorrt") or "")


def _needs(precision: str, used: set[str]) -> bool:
    return precision in used or (precision == "fp16" and "int8" in used)


def _attempts(decision: Decision) -> dict[str, list[dict[str, Any]]]:
    kinds = {"plan": decision.plans, "loadable": decision.loadables}
    return {
        kind: [{"flags": list(one.flags), "gives_up": one.gives_up} for one in tried]
        for kind, tried in kinds.items()
    }


def _plain(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _golden(work: Work, lanes: int) -> list[dict[str, Any]]:
    spans = golden_ranges(next(iter(work.inputs())))
    ranges = {name: {"low": low, "high": high} for name, (low, high) in spans.items()}
    numbers: list[int | None] = [None] if lanes == 1 else [*range(lanes)]
    return [{"seed": GOLDEN_SEED, "inputs": ranges, "lane": number} for number in numbers]


def _pools(work: Work) -> dict[str, int]:
    """Returns the memory pools by TensorRT's names.

    What the plan needs is a prediction: a loadable gets TensorRT's default too where that is more.
    """
    from edgekit.dla import pool_limits

    section = work.file.placement.pools
    given = {} if section == "auto" else section.model_dump(exclude_none=True)
    limits = pool_limits(work.target).to_json()
    found = {
        f"DLA_{name.upper()}": given.get(name) or max(limits[name], work.plan.pools.get(name, 0))
        for name in limits
    }
    workspace = work.file.build.workspace_mib
    return {**found, "WORKSPACE": workspace << 20} if workspace else found
