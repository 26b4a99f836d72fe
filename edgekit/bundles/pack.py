"""Packs a build into a bundle: the manifest, its blobs and the golden vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from edgekit.bundles.manifest import (
    Blob,
    Blobs,
    Bundle,
    BundleSamples,
    Golden,
    canonical,
    golden_cases,
    issued_entry,
    make_requires,
    samples_entry,
    tensor_io,
    weight_fields,
)
from edgekit.bundles.several import in_one_bundle, together
from edgekit.errors import BundleError, DataError
from edgekit.network.source import source_name
from edgekit.reference.artefacts import Artefacts, Weight
from edgekit.text import counted, listed
from edgekit.version import __version__
from edgekit_device.detection.head import Head
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import (
    SCHEMA,
    SHAPES_SCHEMA,
    GoldenCase,
    Lane,
    Manifest,
    MemorySettings,
    ModelSource,
    Padding,
    PlacedLoadable,
    PlacementRecord,
    SegmentEntry,
    ShapeRange,
    ShapeValues,
    TensorEntry,
    Variant,
    parse,
)

if TYPE_CHECKING:
    from edgekit.network.model import Model, Network
    from edgekit.network.ranges import Profile, Values
    from edgekit.placement.plan import Plan


_SHOWN = 20
# parts of a bundle that are kept with other weights
_WEIGHT_INDEPENDENT = ("engine", "library", "record")
# least max|a-b| / max|b| if a board is compared with this machine's prediction
_LOOSE = 0.02


@dataclass(frozen=True, eq=False)
class ShapeVariant:
    """A build for a shape, or for a range of shapes.

    Attributes:
        network: The network with the shape's sizes.
        plan: The placement.
        artefacts: The engines and weights.
        golden: The golden vectors.
        profiles: The engine's ranges of sizes; empty for a single shape.
        load: "start" or "demand": the time at which a board opens it.
        values: Value ranges of further engine inputs, which contain sizes.
    """

    network: Network
    plan: Plan
    artefacts: Artefacts
    golden: Sequence[Golden] = ()
    profiles: Sequence[Profile] = ()
    load: str = "start"
    values: Values = field(default_factory=dict)


def pack(
    *,
    name: str,
    model: Model,
    network: Network,
    plan: Plan,
    artefacts: Artefacts,
    golden: Sequence[Golden] = (),
    mode: str = "hybrid",
    rewrites: Mapping[str, object] | None = None,
    samples: BundleSamples | None = None,
    counter: int | None = None,
    valid_until: str | None = None,
    memory: MemorySettings | None = None,
    variants: Sequence[ShapeVariant] = (),
    padding: Sequence[Padding] = (),
    head: Head | None = None,
) -> Bundle:
    """Packs a build. The same inputs give the same bytes.

    Args:
        name: The application's name on the board: letters, digits, ".", "_" and "-".
        model: The built model, for digest and source.
        network: The network, for inputs and outputs.
        plan: Placement, target, power mode, precision and TensorRT version.
        artefacts: Engines, weights and fingerprint.
        golden: Golden vectors of the unstripped build. Without any the manifest has
            ``without_golden``, and no self-test compares the outputs.
        mode: "hybrid", "standalone" or "split".
        rewrites: The ``edgekit.rewrites/1`` document of the model, or None.
        samples: Inputs for measuring accuracy on the board, or None.
        counter: Release counter; with it, or ``valid_until``, the manifest also has the time of
            signing.
        valid_until: End of unattended installation by boards: a day or a time, in UTC.
        memory: Settings of the board's GPU memory; None: the defaults.
        variants: The builds for further shapes.
        padding: Axes along which inputs may be padded up to a variant.
        head: The decoder of a detector's outputs, or None.

    Raises:
        BundleError: "bundle.invalid": the parts do not fit together, or a name cannot be used.
    """
    first = ShapeVariant(network, plan, artefacts, golden)
    if variants:
        every = in_one_bundle([artefacts, *(variant.artefacts for variant in variants)])
        first = replace(first, artefacts=every[0])
        variants = [
            replace(variant, artefacts=own)
            for variant, own in zip(variants, every[1:], strict=True)
        ]
        artefacts = together(every)
    blobs = Blobs()
    for digest, engine in artefacts.engines.items():
        blobs.add(engine, "engine", digest)
    for digest, library in artefacts.libraries.items():
        blobs.add(library, "library", digest)
    own, *others = (_variant_entry(variant, blobs) for variant in (first, *variants))
    record = None if rewrites is None else blobs.add(canonical(rewrites), "record")
    decoder = None if head is None else blobs.add(canonical(write(head)), "record")
    measured_on = None if samples is None else samples_entry(samples, blobs)
    weights = weight_fields(artefacts.weights)
    memory = memory or MemorySettings()
    # by digest, because equal weights are stored once
    weight_bytes = sum({weight.digest: weight.bytes for weight in weights.values()}.values())
    manifest = Manifest(
        name=name,
        backend=artefacts.backend,
        inputs=own.inputs,
        outputs=own.outputs,
        lanes=own.lanes,
        weights=weights,
        blobs=blobs.entries(),
        golden=own.golden,
        without_golden=not own.golden,
        schema=SHAPES_SCHEMA if variants or padding else SCHEMA,
        created_by={"edgekit": __version__},
        model=ModelSource(model.digest, source_name(model.source)),
        target=plan.target,
        power_mode=plan.power_mode,
        precision=plan.precision,
        mode=mode,
        tensorrt=plan.tensorrt,
        fingerprint=dict(artefacts.fingerprint),
        stripped=bool(artefacts.weights),
        placement=own.placement,
        plugins=artefacts.plugins,
        engines=dict(artefacts.entries),
        rewrites=record,
        requires=make_requires(artefacts, blobs.sizes(), weight_bytes, shared=memory.shared),
        samples=measured_on,
        issued=issued_entry(counter, valid_until),
        memory=memory,
        variants=tuple(others),
        padding=tuple(padding),
        head=decoder,
    )
    return finish(manifest, blobs.values, dict(artefacts.values))


def _golden_entries(
    vectors: Sequence[Golden], outputs: Sequence[TensorEntry], blobs: Blobs
) -> tuple[GoldenCase, ...]:
    """Returns the manifest's golden cases; their outputs become blobs."""
    cases, results = golden_cases(vectors, outputs)
    for digest, result in results.items():
        blobs.add(result, "golden", digest)
    return cases


def _variant_entry(variant: ShapeVariant, blobs: Blobs) -> Variant:
    """Returns the manifest's entry of a variant; its golden outputs become blobs."""
    tensors = variant.network.tensors
    outputs = tuple(tensor_io(tensors[name]) for name in variant.network.outputs)
    return Variant(
        inputs=tuple(tensor_io(tensors[name]) for name in variant.network.inputs),
        outputs=outputs,
        lanes=tuple(
            Lane(
                share,
                tuple(
                    SegmentEntry(s.index, s.device, s.engine, s.inputs, s.outputs, s.layers)
                    for s in segments
                ),
            )
            for share, segments in variant.artefacts.lanes
        ),
        golden=_golden_entries(variant.golden, outputs, blobs),
        profiles=tuple(
            {name: ShapeRange(r.min, r.opt, r.max) for name, r in profile.items()}
            for profile in variant.profiles
        ),
        load=variant.load,
        placement=PlacementRecord(
            tuple((p.name, p.device, p.precision, p.segment) for p in variant.plan.layers),
            tuple(
                PlacedLoadable(part.core, part.layers, write(part.memory))
                for part in variant.plan.loadables
            ),
        ),
        values={
            name: ShapeValues(r.dtype, r.shape, r.min, r.opt, r.max)
            for name, r in variant.values.items()
        },
    )


def with_weights(
    bundle: Bundle,
    weights: Mapping[str, Weight],
    values: Mapping[str, np.ndarray],
    golden: Sequence[Golden],
    model: Model | None = None,
    samples: BundleSamples | None = None,
    counter: int | None = None,
    valid_until: str | None = None,
    variants: Sequence[Sequence[Golden]] = (),
) -> Bundle:
    """Packs the same engines with other weights: a refit without a build.

    Args:
        bundle: The bundle to start from.
        weights: The new weights by name; the same names, types and shapes.
        values: The weights' values by digest.
        golden: Golden vectors of the new weights.
        model: The weights' model; None: digest and source of the old model are kept.
        samples: Inputs with the FP32 outputs for these weights, or None.
        counter: As for ``pack``.
        valid_until: As for ``pack``.
        variants: Golden vectors of the further variants.

    Raises:
        DataError: "refit.mismatch", with every name that does not match, or "refit.identical": an
            engine only accepts the weights of its build.
    """
    old = bundle.weight_entries()
    faults = [f"{name} (missing)" for name in old if name not in weights]
    faults += [f"{name} (not in the bundle)" for name in weights if name not in old]
    for name, weight in weights.items():
        was = old.get(name)
        if was and (was.dtype, was.shape) != (weight.dtype, tuple(weight.shape)):
            faults.append(
                f"{name} ({weight.dtype} {list(weight.shape)} instead of {was.dtype} "
                f"{list(was.shape)})"
            )
    if faults:
        raise DataError(
            f"{counted(len(faults), 'weight')} with another name, type or shape than "
            "in the engines",
            code="refit.mismatch",
            where=bundle.name,
            hint="build again, or give weights with the same names, types and shapes: "
            + listed(faults, _SHOWN),
        )
    _check_identical(bundle, old, weights)
    blobs = Blobs()
    before = bundle.manifest
    for digest, entry in before.blobs.items():
        if entry.kind in _WEIGHT_INDEPENDENT:
            blobs.add(bundle.blobs[digest], entry.kind, digest)
    cases = _golden_entries(golden, before.outputs, blobs)
    others = tuple(
        replace(variant, golden=_golden_entries(vectors, variant.outputs, blobs))
        for variant, vectors in zip(before.variants, variants, strict=True)
    )
    measured_on = None if samples is None else samples_entry(samples, blobs)
    manifest = replace(
        before,
        model=before.model
        if model is None
        else ModelSource(model.digest, source_name(model.source)),
        weights=weight_fields(weights),
        golden=cases,
        without_golden=not cases,
        variants=others,
        samples=measured_on,
        issued=issued_entry(counter, valid_until),
        blobs=blobs.entries(),
    )
    if before.requires is not None:
        # adjusted by the difference of the blobs' sizes
        more = sum(manifest.sizes().values()) - sum(before.sizes().values())
        disk = max(before.requires.disk_bytes + more, 0)
        manifest = replace(manifest, requires=replace(before.requires, disk_bytes=disk))
    return finish(manifest, blobs.values, dict(values))


def _check_identical(
    bundle: Bundle, old: Mapping[str, Weight], weights: Mapping[str, Weight]
) -> None:
    """Refuses other weights for engines that were built with REFIT_IDENTICAL.

    "If the refit engine weights are not identical to the original, behavior is undefined"
    (NvInfer.h 10.7, BuilderFlag::kREFIT_IDENTICAL), so no bundle may contain them.
    """
    if not any(engine.refit == "identical" for engine in bundle.manifest.engines.values()):
        return
    other = [name for name, weight in weights.items() if weight.digest != old[name].digest]
    if other:
        raise DataError(
            f"{counted(len(other), 'weight')} with values that the engines were not built "
            "with; REFIT_IDENTICAL requires the same values",
            code="refit.identical",
            where=bundle.name,
            hint="build again, or build with build.refit: any; changed weights: "
            + listed(other, _SHOWN),
        )


def finish(manifest: Manifest, blobs: Mapping[str, Blob], weights: Mapping[str, Blob]) -> Bundle:
    """Makes the canonical bytes and checks them with the board's own reader."""
    data = canonical(write(manifest))
    try:
        checked = parse(data)
    except DeviceError as error:
        raise BundleError(
            f"{error.where}: {error.message}",
            code="bundle.invalid",
            where=manifest.name[:80],
            hint=error.hint,
        ) from error
    needed = {weight.digest for weight in checked.weights.values()}
    lacking = sorted(needed - set(weights))
    if lacking:
        raise BundleError(
            f"the values of {counted(len(lacking), 'weight')} are missing, the first is "
            f"{lacking[0]}",
            code="bundle.incomplete",
            where=checked.name,
        )
    referenced = {digest: weights[digest] for digest in sorted(needed)}
    return Bundle(checked, data, dict(sorted(blobs.items())), referenced)


def loosen_golden(
    cases: Sequence[Golden], here: Sequence[Golden], board: Sequence[Golden]
) -> list[Golden]:
    """Returns this machine's golden vectors with the tolerance that a board's engines need.

    No board has run these weights yet: the allowed difference from this machine's outputs is twice
    the difference of the board's engines with the build's weights.

    Args:
        cases: This machine's outputs with the other weights.
        here: This machine's outputs with the build's weights.
        board: The board's outputs with the build's weights.
    """
    apart = max(
        _relative(ours.outputs[name], theirs.outputs[name])
        for ours, theirs in zip(here, board, strict=True)
        for name in ours.outputs
    )
    return [replace(case, relative=max(_LOOSE, 2 * apart)) for case in cases]


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    """Returns max|a-b| / max|b|."""
    most = float(np.abs(b).max(initial=0.0))
    apart = float(np.abs(a.astype(np.float64) - b).max(initial=0.0))
    return apart / most if most else apart
