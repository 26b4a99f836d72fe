"""What is done on the boards: installing, other weights, one inference and the benchmark."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import BoardError, UsageError
from edgekit.pipeline._boards import serving_of, taken_back_note
from edgekit.pipeline._host_steps import HOST_STEPS
from edgekit.pipeline._installing import Installing
from edgekit.pipeline._outputs import may_write_for
from edgekit.pipeline._sensing import Sensing

if TYPE_CHECKING:
    from edgekit.bundle import Bundle
    from edgekit.deploy import BoardClient
    from edgekit.pipeline._work import Work

__all__ = ["Serving"]


class Serving(Sensing):
    """From the bundle to a board that serves it."""

    def deploy(self, file: Path | None = None) -> dict[str, Any]:
        """Installs the bundle on every board and returns an ``edgekit.deploy/1``.

        Args:
            file: A bundle to install instead of building one; weights that a stripped bundle
                lacks come from the cache or are on the board already.

        Raises:
            BoardError: Among others "install.taken-back", without ``again``.
        """
        if file is not None:
            self._only("deploy", "refit", "self-test")
            bundle = self.packing.read(file)
            for client in self.boards.clients():
                self.building.check_bundle(client, bundle.manifest)
            # its signature is the board's to judge, also when it serves that bundle already
            releases = self.boards.install(
                lambda client: bundle, self._steps, always=True, put_back=self._again
            )
        else:
            self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test")
            self._host()
            self._bundle()
            releases = self.boards.install(
                self.bundle_for, self._steps, always=self._force, put_back=self._again
            )
        return {"schema": "edgekit.deploy/1", "steps": self._step_list(),
                "releases": [_release(r) for r in releases]}  # fmt: skip

    def rollback(self, reason: str | None = None) -> dict[str, Any]:
        """Takes every board back to its previous release; ``reason`` is for their histories."""
        app = self.file.name
        boards = []
        for client in self.boards.clients():
            before = self.boards.serves(client, app)
            with self.boards.hinting(client):
                answer = client.rollback(app, reason)
            boards.append({**self.boards.describe(client), "from": before and before[0],
                           "to": answer["current"]})  # fmt: skip
        return {"schema": "edgekit.rollback/1", "app": app, "boards": boards}

    def refit(self, weights: Path) -> dict[str, Any]:
        """Deploys the same engines with the weights of another file."""
        self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test")
        self._steps.names.insert(self._steps.names.index("deploy"), "weights")
        self._host()
        self._bundle()
        work = self.work
        if work.network.opaque:
            raise UsageError(
                "what a board must answer with other weights is computed here, where "
                f"{work.network.opaque[0]!r} cannot run",
                code="refit.opaque",
                hint="edgekit deploy builds engines of the other file",
            )
        with self._steps.step("weights") as step:
            model = work.other_weights(weights)
            artefacts = self.packing.reweighed(model)
            bundles: dict[str, Bundle] = {}
            changed = tensors = 0
            for built in self.building.every():
                old = self.packing.bundle_of(built)
                bundle = self.packing.with_weights(built, model, artefacts)
                before = {name: entry["digest"] for name, entry in old.manifest["weights"].items()}
                after = {
                    name: entry["digest"] for name, entry in bundle.manifest["weights"].items()
                }
                changed = max(
                    changed, sum(before[name] != digest for name, digest in after.items())
                )
                tensors = max(tensors, len(after))
                # nothing to ship where nothing changed
                bundles[built.key] = bundle if before != after else old
            error = work.measure(model, artefacts)
            step.detail = (
                f"{changed} of {counted(tensors, 'tensor')} changed, "
                f"cosine {error['cosine']:.5f} against FP32"
            )
            work.check_accuracy(error)
        try:
            releases = self.boards.install(
                lambda client: bundles[self.building.for_board(client).key],
                self._steps,
                always=self._force,
                put_back=self._again,
            )
        except BoardError as failed:
            if failed.code == "install.taken-back":
                again = shlex.join(
                    ["edgekit", "refit", self.config.path, "--weights", str(weights), "--again"]
                )
                failed.hint = f"{again} puts it back; nothing else does"
            if failed.code == "selftest.failed" and self.building.backend != "reference":
                failed.hint = _off(work, weights)
            raise
        for built in self.building.every():
            old, bundle = self.packing.bundle_of(built), bundles[built.key]
            if bundle is not old:
                # infer and bench must not take this release for an outdated one
                key = self.cache.key("refitted", old.digest)
                refitted = self.cache.get("refitted", key) or []
                self.cache.put("refitted", key, sorted({*refitted, bundle.digest}))
        return {
            "schema": "edgekit.refit/1",
            "steps": self._step_list(),
            "tensors": tensors,
            "changed": changed,
            "accuracy": error,
            "digest": next(iter(bundles.values())).digest,
            "releases": [_release(r) for r in releases],
        }

    def infer(self, source: Path | None = None, output: Path | None = None) -> dict[str, Any]:
        """Runs one inference on the first board and returns an ``edgekit.infer/1``."""
        from edgekit.pipeline._inference import inputs_of

        self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test", "infer")
        may_write_for(
            self.config, {"the outputs": output}, {"the inputs": source}, makes_folders=True
        )
        if source is not None:
            inputs_of(self, source)  # wrong inputs are told before anything is built
        release = self._deployed()
        return self._infer(release, source, output)

    def bench(self) -> dict[str, Any]:
        """Measures on the first board and returns an ``edgekit.bench/1``."""
        self._only(*HOST_STEPS, "bundle", "deploy", "refit", "self-test", "bench")
        release = self._deployed()
        return self._bench(release, again=True)

    def bundle_for(self, client: BoardClient) -> Bundle:
        """Returns a board's bundle: engines are not portable between kinds of boards."""
        return self.packing.bundle_of(self.building.for_board(client))

    def _deployed(self) -> dict[str, Any]:
        """Brings the first board to the bundle, unless it serves it or a refit of it.

        Where the bundle was taken back it is what serves instead.
        """
        self._host()
        self._bundle()
        client = self.boards.clients()[0]
        bundle = self.bundle_for(client)
        refitted = self.cache.get("refitted", self.cache.key("refitted", bundle.digest)) or []
        state = client.releases(bundle.name)["apps"].get(bundle.name, {})
        serving = serving_of(state)
        if serving and serving["digest"] in refitted:
            release = {"board": self.boards.describe(client), "release": serving["id"],
                       "digest": serving["digest"], "refitted": True}  # fmt: skip
            back = state.get("taken_back")
            gone = back and back["release"].endswith(bundle.digest[:12])
            with Installing(client, bundle, self._steps) as shown:
                shown.reused(serving["id"], other=bool(gone))
            if gone:
                path = self.config.path
                note = taken_back_note(client.name, serving["id"], back, path)
                release |= {"taken_back": back, "notes": [note]}
            return release
        return self.boards.install(
            self.bundle_for, self._steps, put_back=self._again, or_serving=True
        )[0]

    def _infer(
        self, release: Mapping[str, Any], source: Path | None = None, output: Path | None = None
    ) -> dict[str, Any]:
        from edgekit.pipeline._inference import infer

        with self._step("infer") as step:
            return infer(self, release, source, output, step)

    def _bench(self, release: Mapping[str, Any], *, again: bool = False) -> dict[str, Any]:
        from edgekit.pipeline._inference import bench

        with self._step("bench") as step:
            return bench(self, release, step, again=again)


def _off(work: Work, weights: Path) -> str:
    """Says why a board's engines may be off with other weights, and what to do about it."""
    built = f"build engines of {weights} itself: name it as the model, edgekit run"
    if work.scales is None:
        return f"these weights may need more than FP16's range or precision; {built}"
    return (
        "with these weights activations may leave the ranges that were calibrated, or use little "
        f"of them; calibrate again and {built}"
    )


def _release(result: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("board", "release", "digest", "bytes_sent", "previous", "reused")
    # a release kept by an older edgekit has no notes
    return {**{key: result.get(key) for key in keys}, "notes": result.get("notes", [])}
