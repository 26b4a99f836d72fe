"""Bundles: golden vectors, packing, signing, and bundles with other weights."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._bundles import load_bundle, store_bundle
from edgekit.pipeline._golden import GOLDEN_SEED, golden_ranges
from edgekit.pipeline._judged_there import health_key, samples_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Artefacts
    from edgekit.bundle import Bundle, Golden
    from edgekit.network import Model
    from edgekit.pipeline._building import Building, Built
    from edgekit.pipeline._signing import Signing
    from edgekit.pipeline._work import Work
    from edgekit.placement import Plan

__all__ = ["Packing"]

# of max|a-b| / max|b|, where a board answers what this machine predicted
_LOOSE = 0.02


class Packing:
    """The signed bundle of a configuration's build."""

    def __init__(self, building: Building, signing: Signing) -> None:
        self.building = building
        self._signing = signing
        self.work = building.work
        self._first: tuple[dict[str, bytes], dict[str, np.ndarray]] | None = None
        self._bundles: dict[str, Bundle] = {}

    @property
    def bundle(self) -> Bundle:
        """The bundle of the first board, or of this machine's build."""
        return self.bundle_of(self.building.first())

    def bundle_of(self, built: Built) -> Bundle:
        """Returns a build's bundle, signed; read back from the cache when it was packed before."""
        if built.key not in self._bundles:
            self._bundles[built.key] = self._found_or_packed(built)
        return self._bundles[built.key]

    def _found_or_packed(self, built: Built) -> Bundle:
        work = self.work
        # everything that the manifest says, beside what the engines themselves depend on
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
        from edgekit.placement import plan_from_json

        cache = self.work.cache
        found = cache.get("planned", cache.key("planned", release["digest"]))
        return None if found is None else plan_from_json(found)

    def read(self, path: Path) -> Bundle:
        """Reads a bundle file; what a stripped one lacks is taken from the cache.

        Raises:
            BundleError: It is no bundle, damaged, or of another application.
        """
        from edgekit.bundle import read
        from edgekit.errors import BundleError

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
        for entry in bundle.manifest["weights"].values():
            digest = entry["digest"]
            # what is not here either may be on the board, which tells when it is not
            with contextlib.suppress(LookupError):
                if digest not in bundle.weights:
                    found[digest] = cache.array(digest, entry["dtype"], tuple(entry["shape"]))
        return dataclasses.replace(bundle, weights={**bundle.weights, **found})

    def reweighed(self, model: Model) -> Artefacts:
        """Returns what this machine built, with another model's weights.

        Raises:
            DataError: Code ``refit.mismatch``: names, shapes or types differ.
        """
        from edgekit.build import derive_weights

        weights, values = derive_weights(self.work.artefacts.weights, model)
        return dataclasses.replace(self.work.artefacts, weights=weights, values=values)

    def with_weights(self, built: Built, model: Model, artefacts: Artefacts) -> Bundle:
        """Returns a build's bundle with another model's weights, signed.

        Args:
            built: The build.
            model: The other model.
            artefacts: What this machine would build of it.

        Raises:
            DataError: Code ``refit.mismatch``: names, shapes or types differ.
            UsageError: Code ``refit.identical``: the engines take no other weights.
        """
        from edgekit import bundle as floor

        golden = self._golden(artefacts)
        weights, values = artefacts.weights, artefacts.values
        if built.golden is not None:
            from edgekit.pipeline._board_build import reweighed

            weights, values = reweighed(self.work, self.building, built, model)
            golden = self._loosened(built, golden)
        made = floor.with_weights(
            self.bundle_of(built), weights, values, golden, model,
            samples=samples_of(self.work, model), **_issued(self.work),
        )  # fmt: skip
        signed = made.signed(floor.sign(made.manifest_bytes, self._signing.key))
        self._remember_plan(signed)
        return signed

    def _loosened(self, built: Built, golden: list[Golden]) -> list[Golden]:
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

    def _answers(self, built: Built) -> list[Golden]:
        """Returns what a build answered to the generated inputs, wherever it ran."""
        from edgekit.bundle import Golden

        if built.golden is None:
            return self._golden(built.artefacts)
        ranges = golden_ranges(next(iter(self.work.inputs())))
        return [
            Golden(case["seed"], ranges, case["outputs"], lane=case["lane"])
            for case in built.golden
        ]

    def _pack(self, built: Built) -> Bundle:
        from edgekit.bundle import pack, sign

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
        from edgekit.build import Runner
        from edgekit.bundle import Golden, golden_inputs

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
        from edgekit.build import Runner

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
    import numpy as np

    most = float(np.abs(b).max(initial=0.0))
    apart = float(np.abs(a.astype(np.float64) - b).max(initial=0.0))
    return apart / most if most else apart


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path)
