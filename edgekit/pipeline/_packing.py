"""Bundles: golden vectors, packing, signing, and bundles with other weights."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import ConfigError, Problem

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Artefacts
    from edgekit.bundle import Bundle, Golden
    from edgekit.network import Model
    from edgekit.pipeline._work import Work

__all__ = ["Packing"]

_GOLDEN_SEED = 7


class Packing:
    """The signed bundle of a configuration's build."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._first: tuple[dict[str, bytes], dict[str, np.ndarray]] | None = None

    @cached_property
    def key(self) -> Path:
        """The private key that signs: the configuration's, or one of edgekit's own."""
        from edgekit.bundle import ensure_key

        config = self.work.config
        chosen = config.file.deploy.sign_with
        if chosen is None:
            return ensure_key(self.work.cache.folder / "keys" / "ed25519")
        path = config.resolve(chosen)
        if not path.is_file():
            hint = "make one with: ssh-keygen -t ed25519"
            problem = Problem(f"there is no signing key {path}", config.path, hint)
            raise ConfigError([problem], code="config.no-key")
        return path

    @cached_property
    def public_key(self) -> Path:
        """The public half of ``key``, which boards trust."""
        return self.key if self.key.suffix == ".pub" else self.key.with_name(self.key.name + ".pub")

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle, signed; read back from the cache when it was packed before."""
        work = self.work
        # everything that the manifest says, beside what the engines themselves depend on
        key = work.cache.key(
            "bundle", work.build_key, work.file.name, work.file.build.mode, work.plan.to_json(),
            work.source.source, work.inputs_identity, _digest(self.public_key), work.record,
        )  # fmt: skip
        record = None if work.force else work.cache.get("bundle", key)
        bundle = self._read(record) if record else None
        if bundle is None:
            work.fresh.add("bundle")
            bundle = self._pack()
            work.cache.put("bundle", key, self._store(bundle))
        return bundle

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

    def with_weights(self, model: Model) -> tuple[Bundle, Artefacts]:
        """Returns the bundle with another model's weights, signed, and its artefacts.

        Raises:
            DataError: Code ``refit.mismatch``: names, shapes or types differ.
        """
        from edgekit import bundle as floor
        from edgekit.build import derive_weights

        weights, values = derive_weights(self.work.artefacts.weights, model)
        artefacts = dataclasses.replace(self.work.artefacts, weights=weights, values=values)
        golden = self._golden(artefacts)
        made = floor.with_weights(self.bundle, weights, values, golden, model)
        return made.signed(floor.sign(made.manifest_bytes, self.key)), artefacts

    def _pack(self) -> Bundle:
        from edgekit.bundle import pack, sign

        work = self.work
        bundle = pack(
            name=work.file.name,
            model=work.model,
            network=work.network,
            plan=work.plan,
            artefacts=work.artefacts,
            golden=self._golden(work.artefacts),
            mode=work.file.build.mode,
            rewrites=work.record if work.rewrites else None,
        )
        return bundle.signed(sign(bundle.manifest_bytes, self.key))

    def _golden(self, artefacts: Artefacts) -> list[Golden]:
        """Runs the unstripped build on generated inputs of the calibration inputs' range.

        Each lane by itself, where there are several: they round at other places.
        """
        from edgekit.build import Runner
        from edgekit.bundle import Golden, golden_inputs

        work = self.work
        first = dict(next(iter(work.inputs())))
        ranges = {name: (float(value.min()), float(value.max())) for name, value in first.items()}
        inputs = golden_inputs(work.network, _GOLDEN_SEED, ranges)
        runner = Runner(artefacts, stripped=False)
        outputs = runner.run(inputs)
        if artefacts is work.artefacts:
            # a board's first inference is of the same input, and loading is what costs
            self._first = _bytes(first), runner.run(first)
        first_lane = Golden(_GOLDEN_SEED, ranges, outputs)
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

    def _store(self, bundle: Bundle) -> dict[str, Any]:
        cache = self.work.cache
        for digest, blob in bundle.blobs.items():
            cache.put_blob(digest, blob)
        return {
            "manifest": bundle.manifest_bytes.decode("utf-8"),
            "blobs": sorted(bundle.blobs),
            "signature": (bundle.signature or b"").decode("ascii"),
        }

    def _read(self, record: Mapping[str, Any]) -> Bundle | None:
        from edgekit.bundle import Bundle

        cache = self.work.cache
        manifest = json.loads(record["manifest"])
        entries = {entry["digest"]: entry for entry in manifest["weights"].values()}
        try:
            blobs = {digest: cache.blob(digest) for digest in record["blobs"]}
            weights = {
                digest: cache.array(digest, entry["dtype"], tuple(entry["shape"]))
                for digest, entry in entries.items()
            }
        except LookupError:
            return None
        return Bundle(
            manifest,
            record["manifest"].encode("utf-8"),
            blobs,
            weights,
            record["signature"].encode("ascii"),
        )


def _bytes(arrays: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in arrays.items()}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path)
