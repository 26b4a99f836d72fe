"""What a configuration asks for, computed when it is needed and kept in the cache.

Each value stands under the digest of what it depends on, so a value that is not needed is not
computed, and one that was computed before is read back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import EnvironmentLack, GateError
from edgekit.pipeline._cache import Cache, digest_of
from edgekit.pipeline._models import load_model, store_model

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Artefacts
    from edgekit.config import Config
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.placement import Options, Plan
    from edgekit.quantize import Scales
    from edgekit.targets import Target

__all__ = ["Work"]

Update = Callable[[float, float, str], None]


class Work:
    """The host side of a configuration, from the model to the built engines.

    Args:
        config: The configuration.
        cache: Where results are kept.
        force: Compute everything again.

    Attributes:
        update: Where long work tells how far it is; (done, total, text).
        fresh: Names of the steps that were computed and not read back.
    """

    def __init__(self, config: Config, cache: Cache, *, force: bool = False) -> None:
        self.config = config
        self.file = config.file
        self.cache = cache
        self.force = force
        self.update: Update = lambda done, total, text: None
        self.fresh: set[str] = set()
        self.notes: list[str] = []

    # -- what the configuration names ---------------------------------------------------------

    @cached_property
    def target(self) -> Target:
        """The board."""
        from edgekit.targets import get

        return get(self.file.target)

    @cached_property
    def tensorrt(self) -> str:
        """The TensorRT release whose rules hold."""
        return self.file.tensorrt or self.target.tensorrt

    @cached_property
    def source(self) -> Model:
        """The model as the user named it."""
        from edgekit import network

        section = self.file.model
        if section.onnx is not None:
            return network.load(
                self.config.resolve(section.onnx),
                shapes=section.shapes or None,
                outputs=section.outputs or None,
            )
        key = self.cache.key("builtin", section.builtin, section.seed, section.outputs)
        record = None if self.force else self.cache.get("builtin", key)
        model = load_model(self.cache, record) if record else None
        if model is None:
            self.update(0, 1, "filling the built-in network")
            model = network.builtin(section.builtin, section.seed)
            if section.outputs:
                model = network.canonical(
                    model.proto, None, outputs=section.outputs, source=model.source,
                    weights=model.weights,
                )  # fmt: skip
            record = store_model(self.cache, model)
            self.cache.put("builtin", key, record)
            # from here on the weights are memory maps of the cache, not memory
            model = load_model(self.cache, record) or model
        return model

    # -- check and rewrite --------------------------------------------------------------------

    def check(self) -> dict[str, Any]:
        """Returns the ``edgekit.check/1`` document of the model as it came."""

        def compute() -> dict[str, Any]:
            from edgekit.dla import check_document
            from edgekit.network import layers

            network = layers(self.source)
            judgement = self._judge(network)
            document: dict[str, Any] = check_document(
                self.source.source, network, judgement, self.target
            )
            return document

        result: dict[str, Any] = self._stored("check", compute, self.source.digest, *self._rules)
        return result

    @cached_property
    def _rewriting(self) -> dict[str, Any]:
        section = self.file.rewrite

        def compute() -> dict[str, Any]:
            from edgekit.rewrite import rewrite

            enable = section.enable
            if section.allow_approx:
                enable = [*(_all_rewrites() if enable == "all" else []), *section.allow_approx]
            model, applied, notes = rewrite(
                self.source,
                self.target,
                precision=self.file.precision,
                tensorrt=self.tensorrt,
                enable=enable,
                disable=section.disable,
            )
            self._rewritten = model
            return {
                "model": store_model(self.cache, model, self.source) if applied else None,
                "applied": [item.to_json() for item in applied],
                "notes": list(notes),
            }

        settings = section.model_dump()
        result: dict[str, Any] = self._stored(
            "rewrite", compute, self.source.digest, settings, *self._rules
        )
        self.notes += result["notes"]
        return result

    @property
    def rewrites(self) -> list[dict[str, Any]]:
        """The rewrites that were applied, as records."""
        applied: list[dict[str, Any]] = self._rewriting["applied"]
        return applied

    @cached_property
    def model(self) -> Model:
        """The model after the rewrites."""
        record = self._rewriting["model"]
        if record is None:
            return self.source
        rewritten: Model | None = self.__dict__.get("_rewritten")
        rewritten = rewritten or load_model(self.cache, record, self.source)
        if rewritten is None:  # somebody emptied the cache's blobs
            self.force = True
            del self._rewriting
            return self.model
        return rewritten

    @property
    def model_digest(self) -> str:
        """Digest of the model after the rewrites, without loading it."""
        record = self._rewriting["model"]
        return str(record["digest"]) if record else self.source.digest

    @cached_property
    def network(self) -> Network:
        """The layers of the rewritten model."""
        from edgekit.network import layers

        return layers(self.model)

    @cached_property
    def judgement(self) -> Judgement:
        """The verdicts on the rewritten model."""
        return self._judge(self.network)

    # -- scales and plan ----------------------------------------------------------------------

    def inputs(self) -> Iterable[Mapping[str, np.ndarray]]:
        """Returns the calibration inputs: the user's, or synthetic seeded ones."""
        section = self.file.calibration
        if section.data is None:
            from edgekit.network import synthetic_inputs

            return _Repeat(
                section.count, lambda: synthetic_inputs(self.model, section.count, section.seed)
            )
        from edgekit.quantize import load_data

        options = {"data": self.config.resolve(section.data), "count": section.count,
                   "mean": section.mean, "std": section.std, "layout": section.layout}  # fmt: skip
        return load_data({k: v for k, v in options.items() if v is not None}, self.model)

    @property
    def inputs_text(self) -> str:
        """What the calibration inputs are, for people."""
        section = self.file.calibration
        if section.data is None:
            from edgekit.network import synthetic_description

            return synthetic_description(section.count, section.seed)
        return f"at most {section.count} inputs of {section.data}"

    @cached_property
    def _inputs_identity(self) -> list[Any]:
        section = self.file.calibration
        settings = section.model_dump(exclude={"method", "cache"})
        if section.data is None:
            return [settings]
        path = self.config.resolve(section.data)
        return [settings, _identity(path)]

    @cached_property
    def scales(self) -> Scales | None:
        """INT8 scales; None for other precisions."""
        if self.file.precision != "int8":
            return None
        from edgekit.quantize import Scales, calibrate, read_cache

        section = self.file.calibration
        if section.cache is not None:
            return read_cache(self.config.resolve(section.cache), self.network)

        def compute() -> dict[str, Any]:
            scales = calibrate(
                self.model,
                self.network,
                self.inputs(),
                method=section.method,
                describe=self.inputs_text,
                progress=lambda done, total: self.update(done, total, f"input {done} of {total}"),
            )
            return {"scales": dict(scales.scales), "method": scales.method, "data": scales.data,
                    "digest": scales.digest}  # fmt: skip

        stored = self._stored(
            "calibrate", compute, self.model_digest, section.method, self._inputs_identity
        )
        return Scales(**stored)

    @cached_property
    def options(self) -> Options:
        """What the configuration asks of the placement."""
        from edgekit.placement import Options, Pin

        section = self.file.placement
        bounds = section.bounds.model_dump(exclude_none=True)
        standalone = self.file.build.mode == "standalone"
        cores = tuple(dict.fromkeys(section.dla_cores))
        if self.file.build.mode == "hybrid" and section.objective != "throughput" and cores[1:]:
            self.notes.append(
                f"a hybrid engine drives one DLA core: only core {cores[0]} is used "
                "(build.mode: split uses several)"
            )
            cores = cores[:1]
        return Options(
            objective=section.objective,
            bounds=bounds,
            dla_cores=cores,
            gpu=section.gpu and not standalone,
            pins=tuple(Pin(pin.layers, pin.device) for pin in section.pin),
            max_loadables=section.max_loadables,
        )

    @cached_property
    def plan(self) -> Plan:
        """The placement."""
        from edgekit.placement import place, plan_from_json

        found: list[Plan] = []

        def compute() -> dict[str, Any]:
            plan = place(
                self.network,
                self.judgement,
                self.target,
                precision=self.file.precision,
                power_mode=self.file.power_mode,
                options=self.options,
            )
            found.append(plan)
            return plan.to_json()

        section = self.file.placement.model_dump()
        document = self._stored(
            "plan", compute, self.model_digest, self.file.target, self.file.power_mode,
            self.file.build.mode, section, *self._rules,
        )  # fmt: skip
        plan = found[0] if found else plan_from_json(document)
        self._check_pools(plan)
        return plan

    def _check_pools(self, plan: Plan) -> None:
        pools = self.file.placement.pools
        if pools == "auto":
            return
        for name, limit in pools.model_dump(exclude_none=True).items():
            if plan.pools.get(name, 0) > limit:
                raise GateError(
                    f"the plan needs {plan.pools[name]} bytes of {name}, more than {limit}",
                    code="plan.pool",
                    where=f"placement.pools.{name}",
                    hint="raise the limit, or give 'auto'",
                )

    # -- build --------------------------------------------------------------------------------

    @cached_property
    def build_key(self) -> str:
        """Identity of the build: model, placement and scales."""
        placed = [
            [share.share, [[p.name, p.device, p.precision, p.segment] for p in share.layers]]
            for share in self.plan.plans
        ]
        scales = self.scales.digest if self.scales else None
        return self.cache.key("build", self.model_digest, placed, scales)

    @cached_property
    def artefacts(self) -> Artefacts:
        """The built engines."""
        backend = self.file.build.backend
        if backend not in ("auto", "reference"):
            raise EnvironmentLack(
                f"the {backend} backend builds on a board that has TensorRT, and none is here",
                code="build.no-tensorrt",
                hint="use build.backend: auto or reference",
            )
        from edgekit.build import build_reference
        from edgekit.pipeline._artefacts import load_artefacts, store_artefacts

        record = None if self.force else self.cache.get("build", self.build_key)
        artefacts = load_artefacts(self.cache, record) if record else None
        if artefacts is None:
            self.fresh.add("build")
            artefacts = build_reference(
                self.model,
                self.network,
                self.plan,
                self.scales,
                progress=lambda done, total: self.update(done, total, f"segment {done}"),
            )
            record = store_artefacts(self.cache, artefacts)
            self.cache.put("build", self.build_key, record)
            artefacts = load_artefacts(self.cache, record) or artefacts
        return artefacts

    @cached_property
    def accuracy(self) -> dict[str, Any]:
        """Error of the built network against FP32 over the calibration inputs."""

        def compute() -> dict[str, Any]:
            from edgekit.build import accuracy

            return {**accuracy(self.model, self.artefacts, self._told()), "data": self.inputs_text}

        result: dict[str, Any] = self._stored(
            "accuracy", compute, self.build_key, self._inputs_identity
        )
        return result

    def _told(self) -> Iterator[Mapping[str, np.ndarray]]:
        """The calibration inputs, telling how many were taken."""
        inputs = self.inputs()
        total = len(inputs) if isinstance(inputs, Sized) else 0
        for done, sample in enumerate(inputs):
            self.update(done, total, f"accuracy, input {done + 1} of {total}")
            yield sample

    def check_accuracy(self, error: Mapping[str, Any]) -> None:
        """Raises GateError when ``error`` is below the configuration's gate."""
        gate = self.file.accuracy
        value = error[gate.metric]
        # a bit-equal result has no SNR
        if gate.min is None or value is None or value >= gate.min:
            return
        raise GateError(
            f"{gate.metric} against FP32 is {value:.6g}, below {gate.min:g} ({self.inputs_text})",
            code="accuracy.below-gate",
            where="accuracy.min",
            hint="calibrate on more or better data, use precision: fp16, or lower the gate",
        )

    def other_weights(self, path: Path) -> Model:
        """Loads another model of the same graph and takes it through the same rewrites."""
        from edgekit import network
        from edgekit.rewrite import rewrite

        section = self.file.model
        other = network.load(path, shapes=section.shapes or None, outputs=section.outputs or None)
        if not self.rewrites:
            return other
        names = [item["rewrite"] for item in self.rewrites]
        return rewrite(
            other, self.target, precision=self.file.precision, tensorrt=self.tensorrt,
            enable=list(dict.fromkeys(names)),
        )[0]  # fmt: skip

    # -- helpers ------------------------------------------------------------------------------

    @cached_property
    def _rules(self) -> tuple[str, ...]:
        """What a verdict depends on beside the network."""
        cache = self.file.calibration.cache
        scales = _identity(self.config.resolve(cache)) if cache else ""
        return self.file.target, self.file.precision, self.tensorrt, scales

    def _judge(self, network: Network) -> Judgement:
        from edgekit.dla import judge
        from edgekit.quantize import read_cache

        cache = self.file.calibration.cache
        known = None
        # every tensor is taken to have a scale unless the user says which ones do
        if cache is not None and self.file.precision == "int8":
            known = read_cache(self.config.resolve(cache), network).scales
        return judge(
            network, self.target, precision=self.file.precision, tensorrt=self.tensorrt,
            scales=known,
        )  # fmt: skip

    def _stored(self, step: str, compute: Callable[[], Any], *parts: Any) -> Any:
        key = self.cache.key(step, *parts)
        result = None if self.force else self.cache.get(step, key)
        if result is None:
            self.fresh.add(step)
            result = compute()
            self.cache.put(step, key, result)
        return result


class _Repeat:
    """A sized iterable that starts anew each time it is iterated."""

    def __init__(self, count: int, begin: Callable[[], Any]) -> None:
        self._count = count
        self._begin = begin

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        return iter(self._begin())


def _all_rewrites() -> list[str]:
    from edgekit.rewrite import rewrites

    return [item.name for item in rewrites()]


def _identity(path: Path) -> str:
    """Returns what identifies data: a file's SHA-256, a folder's names, sizes and times."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        stats = [(p.relative_to(path).as_posix(), p.stat()) for p in files]
        return digest_of([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
    if not path.is_file():
        return "missing"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
