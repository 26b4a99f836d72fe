"""Bundles: golden vectors, samples with their labels for the health check, packing, signing, and
bundles with other weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import BundleError, DataError
from edgekit.files import regular
from edgekit.network.model import Model
from edgekit.pipeline.cache import load_bundle, store_bundle
from edgekit.pipeline.steps.build import Builder, BuiltPlan, reweighed
from edgekit.pipeline.steps.build_request import GOLDEN_SEED, golden_ranges
from edgekit.text import counted
from edgekit_device.arrays.deviation import classes_of

if TYPE_CHECKING:
    from edgekit.bundles.manifest import Bundle, BundleSamples, Golden
    from edgekit.pipeline.steps.accuracy import Work
    from edgekit.pipeline.steps.deploy import SigningKey
    from edgekit.placement.plan import Plan
    from edgekit.reference.artefacts import Artefacts


_MOST_BYTES = 16 << 20


def read_labels(path: Path, cases: int, shape: Sequence[int]) -> list[list[int]]:
    """Reads a class number a line, in the order of the calibration inputs.

    Args:
        path: The file; empty lines and what follows a ``#`` are passed over.
        cases: Inputs that travel.
        shape: Of the network's first output: what it is of classes follows from it.

    Returns:
        For each case a class for each of the batch.

    Raises:
        DataError: "data.labels".
    """
    found = classes_of(shape)
    if found is None:
        raise _bad_labels(path, f"the first output, {list(shape)}, is not one class for each input",
                   "labels are for networks that classify; leave labels out")  # fmt: skip
    rows, classes = found
    try:
        with regular(path).open(encoding="utf-8") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except (OSError, ValueError) as error:
        raise _bad_labels(
            path, f"it cannot be read: {error}", "write a class number a line"
        ) from error
    labels: list[int] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if not text.isdecimal() or not text.isascii() or len(text) > 9 or int(text) >= classes:
            raise _bad_labels(path, f"line {number}: {text[:40]!r} is no class of {classes}",
                       "write a class number a line, from 0 on")  # fmt: skip
        labels.append(int(text))
    if len(labels) < cases * rows:
        raise _bad_labels(
            path,
            f"{counted(len(labels), 'label')} for {counted(cases * rows, 'input')}",
            "write one for each, or lower deploy.health.samples",
        )
    return [labels[n * rows : (n + 1) * rows] for n in range(cases)]


def _bad_labels(path: Path, message: str, hint: str) -> DataError:
    return DataError(message, code="data.labels", where=str(path), hint=hint)


def health_key(work: Work) -> list[Any]:
    """Returns what of the configuration's ``deploy.health`` is in the bundle."""
    health = work.file.deploy.health
    key = [health.samples, work.file.accuracy.metric, health.accuracy_min]
    if health.labels is not None:
        # one that cannot be read is an error when it is read
        with suppress(OSError):
            key.append(hashlib.sha256(regular(Path(health.labels)).read_bytes()).hexdigest())
    return key


def samples_of(work: Work, model: Model | None = None) -> BundleSamples | None:
    """Returns the first calibration inputs with the FP32 network's outputs; None for none.

    Args:
        work: The configuration's work.
        model: The network, with other weights; the one that came, before rewrites, when None.

    Raises:
        DataError: The inputs cannot be read.
    """
    from edgekit.bundles.manifest import BundleSamples
    from edgekit.network.session import session
    from edgekit_device.protocol.manifest import LABELLED

    health = work.file.deploy.health
    if not health.samples:
        return None
    names, tensors = list(work.network.outputs), work.network.tensors
    wanted = work.network.inputs
    fp32 = session(model or work.source, outputs=names)
    cases = []
    for inputs in islice(work.inputs(), health.samples):
        feed = {name: inputs[name] for name in wanted}
        outputs = dict(zip(names, fp32.run(names, feed), strict=True))
        cases.append(
            (feed, {n: a.astype(tensors[n].dtype, copy=False) for n, a in outputs.items()})
        )
    labels = None
    if health.labels is not None:
        labels = read_labels(Path(health.labels), len(cases), tensors[names[0]].shape)
    return BundleSamples(
        metric=work.file.accuracy.metric if labels is None else LABELLED,
        source=f"the first {len(cases)} of {work.inputs_text}",
        synthetic=work.file.calibration.data is None,
        least=health.accuracy_min,
        cases=cases,
        labels=labels,
    )


# of max|a-b| / max|b|, where a board answers what this machine predicted
_LOOSE = 0.02


class BundlePacker:
    """The signed bundle of a configuration's build."""

    def __init__(self, building: Builder, signing: SigningKey) -> None:
        self.building = building
        self._signing = signing
        self.work = building.work
        self._first: tuple[dict[str, bytes], dict[str, np.ndarray]] | None = None
        self._bundles: dict[str, Bundle] = {}

    @property
    def bundle(self) -> Bundle:
        """The bundle of the first board, or of this machine's build."""
        return self.bundle_of(self.building.first())

    def bundle_of(self, built: BuiltPlan) -> Bundle:
        """Returns a build's bundle, signed; read back from the cache when it was packed before."""
        if built.key not in self._bundles:
            self._bundles[built.key] = self._found_or_packed(built)
        return self._bundles[built.key]

    def _found_or_packed(self, built: BuiltPlan) -> Bundle:
        work = self.work
        # everything that the manifest says, other than what the engines themselves depend on
        key = work.cache.key(
            "bundle", built.key, work.file.name, work.file.build.mode, work.plan.to_json(),
            work.source.source, work.inputs_identity, _digest(self._signing.public_key),
            work.record, health_key(work), _issued(work),
        )  # fmt: skip
        record = None if work.force else work.cache.get("bundle", key)
        bundle = load_bundle(work.cache, record) if record else None
        if bundle is None:
            work.fresh.add("bundle")
            bundle = self._pack(built)
            work.cache.put("bundle", key, store_bundle(work.cache, bundle))
        self._remember_plan(bundle)
        return bundle

    def _remember_plan(self, bundle: Bundle) -> None:
        """Keeps the plan under the bundle's digest: a board may serve it under another plan."""
        cache = self.work.cache
        key = cache.key("planned", bundle.digest)
        if cache.get("planned", key) is None:
            cache.put("planned", key, self.work.plan.to_json())

    def plan_of(self, release: Mapping[str, Any]) -> Plan | None:
        """Returns the plan of what a board serves instead of this configuration's bundle.

        None where another host, or an older edgekit, packed it.
        """
        from edgekit.placement.plan import plan_from_json

        cache = self.work.cache
        found = cache.get("planned", cache.key("planned", release["digest"]))
        return None if found is None else plan_from_json(found)

    def read(self, path: Path) -> Bundle:
        """Reads a bundle file; what a stripped one lacks is taken from the cache.

        Raises:
            BundleError: It is no bundle, damaged, or of another application.
        """
        from edgekit.bundles.files import read

        bundle = read(path)
        if bundle.name != self.work.file.name:
            raise BundleError(
                f"the bundle is of {bundle.name!r}, the configuration of {self.work.file.name!r}",
                code="bundle.other-app",
                where=str(path),
                hint="give the configuration that the bundle was made from",
            )
        cache = self.work.cache
        found = {}
        for entry in bundle.manifest.weights.values():
            digest = entry.digest
            # what is not here either may be on the board, which reports when it is not
            with contextlib.suppress(LookupError):
                if digest not in bundle.weights:
                    found[digest] = cache.array(digest, entry.dtype, entry.shape)
        return dataclasses.replace(bundle, weights={**bundle.weights, **found})

    def reweighed(self, model: Model) -> Artefacts:
        """Returns what this machine built, with another model's weights.

        Raises:
            DataError: Code ``refit.mismatch``: names, shapes or types differ.
        """
        from edgekit.reference.weights import derive_weights

        weights, values = derive_weights(self.work.artefacts.weights, model)
        return dataclasses.replace(self.work.artefacts, weights=weights, values=values)

    def with_weights(self, built: BuiltPlan, model: Model, artefacts: Artefacts) -> Bundle:
        """Returns a build's bundle with another model's weights, signed.

        Args:
            built: The build.
            model: The other model.
            artefacts: What this machine would build of it.

        Raises:
            DataError: Code ``refit.mismatch``: names, shapes or types differ.
            UsageError: Code ``refit.identical``: the engines take no other weights.
        """
        from edgekit.bundles import pack as pack_module
        from edgekit.bundles import sign as sign_module

        golden = self._golden(artefacts)
        weights, values = artefacts.weights, artefacts.values
        if built.golden is not None:
            weights, values = reweighed(self.work, self.building, built, model)
            golden = self._loosened(built, golden)
        made = pack_module.with_weights(
            self.bundle_of(built), weights, values, golden, model,
            samples=samples_of(self.work, model), **_issued(self.work),
        )  # fmt: skip
        signed = made.signed(sign_module.sign(made.manifest_bytes, self._signing.key))
        self._remember_plan(signed)
        return signed

    def _loosened(self, built: BuiltPlan, golden: list[Golden]) -> list[Golden]:
        """Gives this machine's answers the tolerance that a board's engines need.

        No board has run these weights yet: they may be twice as far from this machine's answer as
        the board's engines were with the weights that they were built with.
        """
        apart = max(
            _relative(ours.outputs[name], theirs.outputs[name])
            for ours, theirs in zip(
                self._golden(self.work.artefacts), self._answers(built), strict=True
            )
            for name in ours.outputs
        )
        return [dataclasses.replace(case, relative=max(_LOOSE, 2 * apart)) for case in golden]

    def _answers(self, built: BuiltPlan) -> list[Golden]:
        """Returns what a build answered to the generated inputs, wherever it ran."""
        from edgekit.bundles.manifest import Golden

        if built.golden is None:
            return self._golden(built.artefacts)
        ranges = golden_ranges(next(iter(self.work.inputs())))
        return [
            Golden(case["seed"], ranges, case["outputs"], lane=case["lane"])
            for case in built.golden
        ]

    def _pack(self, built: BuiltPlan) -> Bundle:
        from edgekit.bundles.pack import pack
        from edgekit.bundles.sign import sign

        work = self.work
        bundle = pack(
            name=work.file.name,
            model=work.model,
            network=work.network,
            plan=work.plan,
            artefacts=built.artefacts,
            golden=self._answers(built),
            mode=work.file.build.mode,
            rewrites=work.record if work.rewrites else None,
            samples=samples_of(work),
            **_issued(work),
        )
        return bundle.signed(sign(bundle.manifest_bytes, self._signing.key))

    def _golden(self, artefacts: Artefacts) -> list[Golden]:
        """Runs the unstripped build on generated inputs of the calibration inputs' range.

        Each lane by itself, where there are several: they round at other places.
        """
        from edgekit.bundles.manifest import Golden, golden_inputs
        from edgekit.reference.run import Runner

        work = self.work
        first = dict(next(iter(work.inputs())))
        ranges = golden_ranges(first)
        inputs = golden_inputs(work.network, GOLDEN_SEED, ranges)
        runner = Runner(artefacts, stripped=False)
        outputs = runner.run(inputs)
        if artefacts is work.artefacts:
            # a board's first inference is of the same input, and loading is what costs
            self._first = _bytes(first), runner.run(first)
        first_lane = Golden(GOLDEN_SEED, ranges, outputs)
        count = len(artefacts.lanes)
        if count == 1:
            return [first_lane]
        others = (Runner(artefacts, lane=lane, stripped=False) for lane in range(1, count))
        return [
            dataclasses.replace(first_lane, lane=0),
            *(
                dataclasses.replace(first_lane, lane=lane, outputs=runner.run(inputs))
                for lane, runner in enumerate(others, start=1)
            ),
        ]

    def unstripped(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns what the unstripped build gives on this machine."""
        from edgekit.reference.run import Runner

        if self._first is not None and self._first[0] == _bytes(inputs):
            return self._first[1]
        return Runner(self.work.artefacts, stripped=False).run(inputs)


def _issued(work: Work) -> dict[str, Any]:
    release = work.file.deploy.release
    return {"counter": release.counter, "valid_until": release.valid_until}


def _bytes(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in arrays.items()}


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    """Returns max|a-b| / max|b|."""
    most = float(np.abs(b).max(initial=0.0))
    apart = float(np.abs(a.astype(np.float64) - b).max(initial=0.0))
    return apart / most if most else apart


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path)
