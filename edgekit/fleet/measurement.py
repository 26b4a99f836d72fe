"""The benchmark of many boards at a time: which are slower than others of their kind."""

from __future__ import annotations

import contextlib
import shlex
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgekit.benchmark.document import measured_facts
from edgekit.bundles.manifest import Bundle
from edgekit.config.loader import open_config
from edgekit.deployment.client import BoardClient
from edgekit.errors import EdgekitError
from edgekit.fleet.driver import BoardPool, SshDriver
from edgekit.fleet.inventory import load_inventory, select
from edgekit.fleet.waves import FleetBoard, RolloutSettings
from edgekit.knowledge import cache_folder
from edgekit.pipeline.steps.bench import board_settings, tensorrt_of
from edgekit.targets.loader import get


def bench(
    config: str | Path,
    inventory: str | Path,
    *,
    selector: str | None = None,
    parallel: int = 8,
    accept_host_key: bool = False,
    on_note: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures the release that serves on each board and returns an ``edgekit.fleet-bench/1``.

    Args:
        config: Says the application and how it is measured (``bench``).
        inventory: The boards.
        selector: Which of them.
        parallel: Boards at a time.
        accept_host_key: Accept unknown host keys this once.
        on_note: Called with a line for each board.
    """
    file = open_config(config).file
    members = select(load_inventory(inventory).members, selector)
    app = str(file.name)
    target = get(file.target)
    planned = target.mode(file.power_mode).name
    found: dict[str, dict[str, Any]] = {}
    driver = SshDriver(app, _no_bundle, state_folder=cache_folder(), idle=0,
                       accept_host_key=accept_host_key)  # fmt: skip

    def measure(row: dict[str, Any]) -> Mapping[str, Any]:
        with driver.client(row["member"]) as client:
            hello = client.hello()
            # a board that has TensorRT may serve with the reference backend, too
            backend = _serving(client, app) or ("tensorrt" if hello["tensorrt"] else "reference")
            tensorrt = None
            if backend != "reference":
                tensorrt = tensorrt_of(file.bench, hello, client.probe)
            settings = board_settings(file.bench, backend=backend, tensorrt=tensorrt)
            return client.bench(app, settings)

    def done(row: dict[str, Any], answer: Mapping[str, Any]) -> None:
        keys = ("release", "backend", "clock", "iterations", "latency_ms", "throughput_qps")
        facts = measured_facts(answer, target, planned, config=shlex.quote(str(config)))
        measured = {
            "verdict": facts["verdict"],
            "energy": facts["energy"],
            "power": answer.get("power"),
        }
        found[row["name"]] = {**{key: answer.get(key) for key in keys}, **measured, "error": None}
        if on_note:
            median, status = facts["latency_ms"]["median"], facts["verdict"]["status"]
            on_note(f"{row['name']}: {median:.3f} ms, {status}")

    def failed(row: dict[str, Any], error: EdgekitError, again: bool) -> None:
        found[row["name"]] = {"error": error.to_json()["error"]}
        if on_note:
            on_note(f"{row['name']}: {error.message}")

    with contextlib.closing(driver):
        BoardPool(RolloutSettings(parallel=parallel, deadline_s=0), lambda: False).each(
            [{"name": m.name, "member": m} for m in members],
            measure,
            begin=lambda row: None,
            done=done,
            failed=failed,
        )
    boards = [{"board": m.name, "labels": dict(m.labels), **found[m.name]} for m in members]
    own = "every board was measured with its release's own frames, not with bench.inputs"
    return {
        "schema": "edgekit.fleet-bench/1", "app": app, "boards": boards,
        "kinds": _kinds(members, found), "notes": [own] if file.bench.inputs else [],
    }  # fmt: skip


def _serving(client: BoardClient, app: str) -> str | None:
    """The backend of the release that serves; None where an older loader has not written it."""
    state = client.releases(app)["apps"].get(app, {})
    for release in state.get("releases", ()):
        if release["id"] == state.get("current"):
            backend = release.get("backend")
            return str(backend) if backend else None
    return None


def _kinds(
    members: tuple[FleetBoard, ...], found: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    medians: dict[str, dict[str, float]] = defaultdict(dict)
    for member in members:
        if not found[member.name]["error"]:
            latency = found[member.name]["latency_ms"]["median"]
            medians[member.labels.get("kind", "")][member.name] = latency
    return [
        {
            "kind": kind,
            "boards": len(times),
            "median_ms": statistics.median(times.values()),
            "slowest": (slowest := max(times, key=lambda name: times[name])),
            "slowest_ms": times[slowest],
        }
        for kind, times in sorted(medians.items())
    ]


def _no_bundle(client: BoardClient, member: FleetBoard) -> Bundle:
    raise AssertionError("a benchmark installs nothing")
