"""Bundles: golden vectors, samples with their labels for the health check, packing, signing, and
bundles with other weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.bundles.files import PackedBundle
from edgekit.bundles.labels import MOST_BYTES, label_lines, read_labels
from edgekit.error_document import FinishedStep
from edgekit.errors import BundleError
from edgekit.files import read_file
from edgekit.network.model import Model
from edgekit.network.source import source_name
from edgekit.network.streaming import grouped, model_session, run_group
from edgekit.network.writing import save
from edgekit.pipeline.cache import Cache, StoredBundle, file_stamps, load_bundle, store_bundle
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.accuracy import artefacts
from edgekit.pipeline.steps.build import BuiltPlan, reweighed
from edgekit.pipeline.steps.build_request import memory_settings
from edgekit.pipeline.steps.calibrate import (
    calibration_inputs,
    data_name,
    first_input,
    inputs_identity,
    inputs_text,
)
from edgekit.pipeline.steps.load import lowers, source
from edgekit.pipeline.steps.method import scales, typed_identity, typed_model
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.rewrite import model, network, used_rewrites
from edgekit.placement.plan import Plan
from edgekit.reference.run import Runner
from edgekit.reference.weights import derive_weights
from edgekit.removed import FormerDict
from edgekit_device.protocol.codec import (
    choice,
    document,
    member,
    nullable,
    records,
    text,
    write,
)
from edgekit_device.protocol.manifest import LABELLED, MemorySettings

if TYPE_CHECKING:
    from edgekit.bundles.manifest import Bundle, BundleSamples, Golden
    from edgekit.pipeline.steps.deploy import InstalledRelease, SigningKey
    from edgekit.reference.artefacts import Artefacts


@document(frozen=True, kw_only=True)
class Packed(FormerDict, PackedBundle):
    """``edgekit.packed/1``: a signed bundle; ``full`` is its file with weights, or None."""

    steps: tuple[FinishedStep, ...] = member(records(FinishedStep))
    full: str | None = member(nullable(text()))
    schema: str = member(choice("edgekit.packed/1"), default="edgekit.packed/1")


def check_labels(context: Context) -> None:
    """Refuses a file of labels that cannot be read; the network is not needed for it.

    Raises:
        DataError: "data.labels".
    """
    if context.file.deploy.health.labels is not None:
        label_lines(context.config.resolve(context.file.deploy.health.labels))


def health_key(context: Context) -> list[Any]:
    """Returns what of the configuration's ``deploy.health`` is in the bundle."""
    health = context.file.deploy.health
    key: list[object] = [health.samples, context.file.accuracy.metric, health.accuracy_min]
    if health.labels is not None:
        # one that cannot be read is an error when it is read
        with suppress(OSError):
            data = read_file(context.config.resolve(health.labels), MOST_BYTES)
            key.append(hashlib.sha256(data).hexdigest())
    return key


def samples_of(context: Context, other: Model | None = None) -> BundleSamples | None:
    """Returns the first calibration inputs with the FP32 network's outputs; None for none.

    Args:
        context: The configuration.
        other: The network, with other weights; the one that came, before rewrites, when None.

    Raises:
        DataError: The inputs cannot be read.
    """
    from edgekit.bundles.manifest import BundleSamples

    health = context.file.deploy.health
    if not health.samples:
        return None
    net = network(context)
    names, tensors = list(net.outputs), net.tensors
    fp32 = model_session(other or source(context), outputs=names)
    cases = []
    feeds = (
        {name: inputs[name] for name in net.inputs}
        for inputs in islice(calibration_inputs(context), health.samples)
    )
    for group in grouped(feeds, [fp32]):
        for feed, values in zip(group, run_group(fp32, names, group), strict=True):
            outputs = dict(zip(names, values, strict=True))
            cases.append(
                (feed, {n: a.astype(tensors[n].dtype, copy=False) for n, a in outputs.items()})
            )
    labels = None
    if health.labels is not None:
        path = context.config.resolve(health.labels)
        labels = read_labels(path, len(cases), tensors[names[0]].shape)
    return BundleSamples(
        metric=context.file.accuracy.metric if labels is None else LABELLED,
        source=f"the first {len(cases)} of {inputs_text(context, name=data_name(context))}",
        synthetic=context.file.calibration.data is None,
        least=health.accuracy_min,
        cases=cases,
        labels=labels,
    )


@computed()
def bundle_of(context: Context, built: BuiltPlan, signing: SigningKey) -> Bundle:
    """Returns a build's bundle, signed; read back from the cache when it was packed before."""
    cache = context.cache
    # everything that the manifest says, other than what the engines themselves depend on
    key = cache.key(
        "bundle", built.key, context.file.name, context.file.build.mode, plan(context).to_json(),
        source_name(source(context).source), data_name(context), inputs_identity(context),
        _digest(signing.public_key), used_rewrites(context).record.to_json(), health_key(context),
        context.file.deploy.release.model_dump(include={"counter", "valid_until"}),
        write(_memory(context, built)),
    )  # fmt: skip
    stored = None if context.force else cache.find(StoredBundle, "bundle", key)
    bundle = load_bundle(cache, stored) if stored else None
    if bundle is None:
        context.session.fresh.add("bundle")
        bundle = _pack(context, built, signing)
        cache.keep("bundle", key, store_bundle(cache, bundle))
    _remember_plan(cache, bundle, plan(context))
    return bundle


def _memory(context: Context, built: BuiltPlan) -> MemorySettings:
    """Returns what the bundle says of the GPU's memory, which only TensorRT's engines use."""
    on_gpu = built.artefacts.backend == "tensorrt"
    return memory_settings(context) if on_gpu else MemorySettings()


def _remember_plan(cache: Cache, bundle: Bundle, placed: Plan) -> None:
    """Keeps the plan under the bundle's digest: a board may serve it under another plan."""
    key = cache.key("planned", bundle.digest)
    if cache.get("planned", key) is None:
        cache.keep("planned", key, placed)


def plan_of(cache: Cache, release: InstalledRelease) -> Plan | None:
    """Returns the plan of what a board serves instead of a configuration's bundle.

    None where another host packed it.
    """
    return cache.find(Plan, "planned", cache.key("planned", release.digest))


def read_bundle(context: Context, path: Path) -> Bundle:
    """Reads a bundle file; what a stripped one lacks is taken from the cache.

    Raises:
        BundleError: It is no bundle, damaged, or of another application.
    """
    from edgekit.bundles.files import read

    bundle = read(path)
    if bundle.name != context.file.name:
        raise BundleError(
            f"the bundle is of {bundle.name!r}, but the configuration is of {context.file.name!r}",
            code="bundle.other-app",
            where=str(path),
            hint="give the configuration that the bundle was made from",
        )
    found = {}
    for entry in bundle.manifest.weights.values():
        digest = entry.digest
        # what is not here either may be on the board, which reports when it is not
        with suppress(LookupError):
            if digest not in bundle.weights:
                found[digest] = context.cache.array(digest, entry.dtype, entry.shape)
    return dataclasses.replace(bundle, weights={**bundle.weights, **found})


def with_other_values(context: Context, other: Model) -> Artefacts:
    """Returns what this machine built, with another model's weights.

    Raises:
        DataError: Code ``refit.mismatch``: names, shapes or types differ.
    """
    mine, cache = artefacts(context), context.cache
    weights, values = derive_weights(mine.weights, other, keep=cache.kept_array)
    return dataclasses.replace(mine, weights=weights, values=values)


def bundle_with_weights(
    context: Context, built: BuiltPlan, signing: SigningKey, other: Model, made: Artefacts
) -> Bundle:
    """Returns a build's bundle with another model's weights, signed.

    Args:
        context: The configuration.
        built: The build.
        signing: The key that signs.
        other: The other model.
        made: What this machine would build of it.

    Raises:
        DataError: Code ``refit.mismatch``: names, shapes or types differ.
        UsageError: Code ``refit.identical``: the engines take no other weights.
    """
    old, cache = bundle_of(context, built, signing), context.cache
    key = cache.key(
        "refit bundle", old.digest, _digest(signing.public_key), other.digest,
        source_name(other.source),
    )  # fmt: skip
    stored = None if context.force else cache.find(StoredBundle, "bundle", key)
    bundle = load_bundle(cache, stored) if stored else None
    if bundle is None:
        context.session.fresh.add("bundle")
        bundle = _with_weights(context, built, signing, other, made)
        for digest, value in bundle.weights.items():
            cache.put_blob(digest, value)
        cache.keep("bundle", key, store_bundle(cache, bundle))
    _remember_plan(cache, bundle, plan(context))
    return bundle


def _with_weights(
    context: Context, built: BuiltPlan, signing: SigningKey, other: Model, made: Artefacts
) -> Bundle:
    from edgekit.bundles.pack import loosened, with_weights
    from edgekit.bundles.sign import sign

    golden, _ = _golden(context, made)
    weights, values = made.weights, made.values
    if built.golden is not None:
        weights, values = reweighed(context, built, other)
        golden = loosened(golden, _own_golden(context), _answers(context, built))
    bundle = with_weights(
        bundle_of(context, built, signing), weights, values, golden, other,
        samples=samples_of(context, other), counter=context.file.deploy.release.counter,
        valid_until=context.file.deploy.release.valid_until,
    )  # fmt: skip
    return bundle.signed(sign(bundle.manifest_bytes, signing.key))


def _answers(context: Context, built: BuiltPlan) -> list[Golden]:
    """Returns what a build answered to the generated inputs, wherever it ran."""
    from edgekit.bundles.manifest import Golden, golden_ranges

    if built.golden is None:
        return _own_golden(context)
    ranges = golden_ranges(first_input(context))
    return [Golden(case.seed, ranges, case.outputs, lane=case.lane) for case in built.golden]


def _pack(context: Context, built: BuiltPlan, signing: SigningKey) -> Bundle:
    from edgekit.bundles.pack import pack
    from edgekit.bundles.sign import sign

    rewrites = used_rewrites(context)
    bundle = pack(
        name=context.file.name,
        model=model(context),
        network=network(context),
        plan=plan(context),
        artefacts=built.artefacts,
        golden=_answers(context, built),
        mode=context.file.build.mode,
        rewrites=rewrites.record.to_json() if rewrites.applied else None,
        samples=samples_of(context),
        counter=context.file.deploy.release.counter,
        valid_until=context.file.deploy.release.valid_until,
        memory=_memory(context, built),
    )
    return bundle.signed(sign(bundle.manifest_bytes, signing.key))


def _own_golden(context: Context) -> list[Golden]:
    return _own_answers(context)[0]


@computed()
def _own_answers(context: Context) -> tuple[list[Golden], dict[str, np.ndarray]]:
    """Returns what this machine's build answers: the golden vectors, and of the first input.

    A board's first inference is of that same input, and loading is what costs.
    """
    return _golden(context, artefacts(context))


def _golden(context: Context, built: Artefacts) -> tuple[list[Golden], dict[str, np.ndarray]]:
    """Runs the unstripped build on generated inputs of the calibration inputs' range.

    Each lane by itself, where there are several: they round at other places. Also returns what the
    first lane answers to the first calibration input.
    """
    from edgekit.bundles.manifest import GOLDEN_SEED, Golden, golden_inputs, golden_ranges

    first = first_input(context)
    ranges = golden_ranges(first)
    inputs = golden_inputs(network(context), GOLDEN_SEED, ranges)
    outputs, answer = Runner(built, stripped=False).run_group([inputs, first])
    first_lane = Golden(GOLDEN_SEED, ranges, outputs)
    count = len(built.lanes)
    if count == 1:
        return [first_lane], answer
    others = (Runner(built, lane=lane, stripped=False) for lane in range(1, count))
    cases = [
        dataclasses.replace(first_lane, lane=0),
        *(
            dataclasses.replace(first_lane, lane=lane, outputs=other.run(inputs))
            for lane, other in enumerate(others, start=1)
        ),
    ]
    return cases, answer


def unstripped_outputs(context: Context, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns what the unstripped build gives on this machine."""
    if _bytes(inputs) == _bytes(first_input(context)):
        return _own_answers(context)[1]
    return Runner(artefacts(context), stripped=False).run(inputs)


def write_bundle(context: Context, bundle: Bundle, path: Path) -> None:
    """Writes a bundle's file unless it is there."""
    from edgekit.bundles.files import write

    stripped = context.file.build.strip is not False
    key = context.cache.key("written", bundle.digest, stripped, str(path.absolute()))
    stamps = context.cache.get("written", key)
    # the file may have been removed, or replaced by another configuration's
    if context.force or stamps is None or stamps != file_stamps([path]):
        context.session.fresh.add("bundle")
        write(bundle, path, stripped=stripped)
        context.cache.put("written", key, file_stamps([path]))


def write_typed(context: Context, path: Path) -> Path | None:
    """Writes the Q/DQ model unless it is there; returns None where a release needs none.

    Raises:
        ModelError: It cannot be written.
    """
    if not lowers(context) or scales(context) is None:
        return None
    key = context.cache.key("qdq", *typed_identity(context), str(path.absolute()))
    stamps = context.cache.get("qdq", key)
    if context.force or stamps is None or stamps != file_stamps([path]):
        context.session.fresh.add("bundle")
        save(typed_model(context), path)
        context.cache.put("qdq", key, file_stamps([path]))
    return path


def _bytes(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in arrays.items()}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path)
