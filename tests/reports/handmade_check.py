"""A hand-made check: three layers, of which the DLA runs one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.error_document import VerdictReason
from edgekit.placement.check_document import Check
from edgekit_device.protocol.codec import read, write
from tests.reports import handmade_run

POOLS = {"managed_sram": 1 << 20, "local_dram": 1 << 30, "global_dram": 512 << 20}
NO_SPARSITY = {
    "kind": "predicted",
    "convolutions": [],
    "possible": 0,
    "present": None,
    "macs": 0,
    "macs_saved": 0,
    "weight_bytes_saved": 0,
    "seconds_saved": 0.0,
    "pays": None,
    "measured_speedup": {"range": [1.2, 1.5], "source": "a table"},
}


def loadable(name: str = "{ForeignNode[a...b]}", **changes: Any) -> dict[str, Any]:
    """Returns the memory of a loadable."""
    return {
        "name": name,
        "first": "a",
        "last": "b",
        "layers": ["a", "b"],
        "need": POOLS,
        "raw": {"local_dram": 0, "global_dram": 0},
        "limits": POOLS,
        "broken": [],
        "disputed": [],
        **changes,
    }


def layer(
    name: str,
    *,
    ok: bool = True,
    placed: str | None = None,
    reasons: Sequence[VerdictReason] = (),
    kind: str = "SOFTMAX",
    certainty: str = "certain",
) -> dict[str, Any]:
    """Returns a layer of a check."""
    return {
        "name": name,
        "kind": kind,
        "nodes": [f"node/{name}"],
        "from": [f"node/{name}"],
        "dla": {"ok": ok, "certainty": certainty, "reasons": [write(r) for r in reasons]},
        "placed": placed or ("DLA" if ok else "GPU"),
        "graph_output": False,
        "macs": 5,
        "weight_bytes": 0,
        "output_bytes": 4,
        "loadable": None,
        "dropped": None,
        "rewrites": [],
    }


def fix(
    *rules: str,
    gain: float | None,
    auto: float | None = None,
    loadables: int = 1,
    candidates: int | None = None,
    share: float = 1.0,
    rewrites: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns a fix of a check."""
    return {
        "rules": list(rules),
        "layers": ["prob"],
        "fix": ["mend it"],
        "loadables": loadables,
        "candidates": candidates or loadables,
        "dla_layers": 2,
        "dla_macs_fraction": share,
        "auto_us": auto,
        "gain_us": gain,
        "rewrites": list(rewrites),
        "offer": "legality" if gain is None else "latency",
    }


def document(**changes: Any) -> Check:
    """Returns a check; ``changes`` replaces keys of its JSON."""
    return read(Check, raw(**changes))


def raw(**changes: Any) -> dict[str, Any]:
    """Returns the JSON of a check."""
    return {
        "schema": "edgekit.check/1", "model": "net.onnx", "target": "jetson-agx-orin-64gb",
        "precision": "int8", "tensorrt": "10.3",
        "layers": [
            layer("conv"),
            layer("prob", ok=False, reasons=[handmade_run.REASON]),
            layer("prob2", ok=False, certainty="disputed",
                  reasons=[handmade_run.REASON, handmade_run.SHUFFLE]),
        ],
        "candidates": 3, "loadables": 1, "max_loadables": 16, "transitions": 2,
        "summary": {"layers": 3, "dla_layers": 1, "gpu_layers": 2, "dla_macs_fraction": 0.3333},
        "predicted": {"auto_us": 200.0, "gpu_only_us": 320.0, "dla_us": 50.0, "power_mode": "30W",
                      "clock": "predicted", "layers": {"conv": 1.5, "prob": 17.0}},
        "fixes": [fix("softmax.orin-axis", gain=40.0, auto=160.0, rewrites=["soft"]),
                  fix("shuffle.flatten", gain=None, auto=203.0, loadables=2)],
        "fixes_together": fix("softmax.orin-axis", "shuffle.flatten", gain=60.0, auto=140.0),
        "warnings": ["the clock is not known"], "unknown_cost": [], "memory": [],
        "memory_refused": [], "memory_core": {"need": POOLS, "limits": POOLS},
        "memory_disputes": {}, "without_slot": None, "sparsity": NO_SPARSITY,
        "parse": {"ok": True, "release": "10.3", "problems": [], "model": "as given",
                  "converted": False},
        **changes,
    }  # fmt: skip


def sparse_layer(name: str, **changes: Any) -> dict[str, Any]:
    """Returns a layer of the sparsity."""
    return {
        "layer": name,
        "possible": True,
        "certainty": "certain",
        "reasons": [],
        "macs": 1000,
        "macs_saved": 500,
        "weight_bytes": 0,
        "weight_bytes_saved": 0,
        "present": True,
        "share": 1.0,
        **changes,
    }
