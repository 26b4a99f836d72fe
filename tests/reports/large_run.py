"""Reports of networks that edgekit's own are too small or too tame for."""

from __future__ import annotations

import copy
import math
from typing import Any

from edgekit.reports.document import report_document
from edgekit.reports.schema import Report, parse_report
from tests.reports import handmade_run

HOSTILE = "</script><script>alert(1)</script>\"'&{{7*7}}\u202eabc"
LONG = "layer/" + "w" * 10_000


def monitored(clock: str = "board-measured", layers: int | None = None) -> Report:
    """Returns a run with a board's monitor, energy by rail, and a measured frame.

    ``layers`` are those kept from the end, where the ones are that no DLA runs.
    """
    return parse_report(_monitored(clock, layers))


def _monitored(clock: str, layers: int | None) -> dict[str, Any]:
    document = report_document(handmade_run.facts()).to_json()
    if layers is not None:
        document["layers"] = document["layers"][-layers:]
    document["bench"] |= {
        "clock": clock,
        "note": "Measured on the board.",
        "cold": {"open_ms": 812.0, "first_ms": 14.2},
        "memory": {"peak_rss_bytes": 412 << 20, "gpu_bytes": 96 << 20},
        "phases_ms": {
            key: {"mean": mean, "median": mean, "p99": 1.2 * mean, "max": 1.4 * mean}
            for key, mean in (("enqueue", 0.08), ("h2d", 0.05), ("compute", 2.5), ("d2h", 0.02))
        }
        | {"host": None},
        "runtime": {"library": "libnvinfer.so.10", "flags": {"graph": False, "spin": True}},
    }
    document["verdict"] |= {
        "status": "INVALID",
        "clock": clock,
        "unchecked": ["swap: no monitor told"],
        "reasons": [
            {
                "code": "bench.throttled",
                "message": "the GPU's clock fell to 612 MHz",
                "found": 612,
                "limit": 1300,
                "remedy": "cool the board and lock its clocks",
            }
        ],
    }
    times = [i / 2 for i in range(-8, 120)]

    def line(name: str, base: float, swing: float) -> dict[str, Any]:
        points = [[t, base + (swing * (1 + math.sin(t)) if t > 0 else 0.0)] for t in times]
        values = [value for _, value in points]
        return {
            "name": name,
            "min": min(values),
            "mean": sum(values) / len(values),
            "max": max(values),
            "points": points,
        }

    total = {
        "mean_mw": 9100.0,
        "median_mw": 9100.0,
        "idle_mw": 5200.0,
        "uj_per_inference": 22_000.0,
        "over_idle_uj": 9400.0,
    }
    rail = {**total, "devices": ["GPU"], "in_total": True}
    rails = ["VDD_GPU_SOC", "VDD_CPU_CV"]
    mode = {"name": "MAXN", "id": 0}
    document["power"] = {
        "clock": clock,
        "monitor": {"interval_ms": 500, "sources": ["tegrastats", "sysfs"], "samples": 120,
                    "idle_samples": 8, "facts": {}, "unknown": 0, "warnings": []},
        "series": {
            "rails_mw": [line("VDD_GPU_SOC", 5200, 2000), line("VDD_CPU_CV", 1200, 700),
                         line("VIN_SYS_5V0", 3900, 300)],
            "temperatures_c": [line("gpu", 47, 4), line("cpu", 48, 2), line("tj", 50, 4)],
            "clocks_mhz": [line("GR3D", 1300, -300), line("dla0_core", 1600, 0)],
        },
        "energy": {"by_rail": {"VDD_GPU_SOC": rail, "VDD_CPU_CV": {**rail, "idle_mw": None}},
                   "total": {**total, "rails": rails}, "baseline": "idle", "clock": clock,
                   "window_s": [0.0, 3.0], "samples": 120, "idle_samples": 8, "notes": []},
        "settings": {"mode": dict.fromkeys(("before", "during", "after"), mode),
                     "locked": True, "restored": True},
    }  # fmt: skip
    frame = document["timeline"]
    frame["measured"] = {
        "clock": clock,
        "end_us": 1.1 * frame["end_us"],
        "slots": [
            {
                **{key: slot[key] for key in ("plan", "segment", "device")},
                "start_us": 1.1 * slot["start_us"],
                "duration_us": 1.1 * slot["duration_us"],
            }
            for slot in frame["slots"]
        ],
    }
    for row in document["layers"]:
        row["measured"] = {"clock": clock, "us": 1.2 * row["predicted_us"]}
    return document


def large(layers: int = 2000, run: int = 60) -> Report:
    """Returns a run of so many layers; the device changes every ``run`` of them."""
    document = report_document(handmade_run.facts()).to_json()
    rows = [copy.deepcopy(document["layers"][3 + i % 100]) for i in range(layers)]
    segments: list[dict[str, Any]] = []
    for i, row in enumerate(rows):
        segment, gpu = i // run, i // run % 2 == 0
        row |= {
            "number": i + 1,
            "name": f"backbone/stage{i // 100}/block{i // 10 % 10}/conv_{i}",
            "segment": segment,
            "device": "GPU" if gpu else f"DLA{segment // 2 % 2}",
            "predicted_us": 5.0 + 40 * abs(math.sin(i)),
        }
        if i % run == 0:
            segments.append(
                {
                    "segment": segment,
                    "device": row["device"],
                    "layers": 0,
                    "first": row["name"],
                    "macs": 0,
                    "predicted_us": 0.0,
                }
            )
        segments[-1]["layers"] += 1
        segments[-1]["predicted_us"] += row["predicted_us"]
        segments[-1]["last"] = row["name"]
    edges = [[i, i + 1] for i in range(1, layers)] + [[i, i + 5] for i in range(2, layers - 5, 7)]
    document["layers"] = rows
    document["graph"] = {
        "edges": edges,
        "segments": segments,
        "segment_edges": [[i, i + 1, 1] for i in range(len(segments) - 1)],
    }
    document["why_not"][0]["layers"] = [
        {"name": rows[i]["name"], "message": "m", "found": "f", "limit": "l"} for i in range(50)
    ]
    return parse_report(document)


def hostile() -> Report:
    """Returns a run whose names would break out of the page, or break its layout."""
    document = _monitored("board-measured", None)
    names = (HOSTILE, LONG, "模型/" * 40, "\u05d0\u05d1\u05d2 " * 30, "a\nb\tc\x1b[31m")
    for row, name in zip(document["layers"], names, strict=False):
        row["name"] = row["kind"] = name
        row["reasons"] = [
            dict.fromkeys(("rule", "message", "found", "limit", "source", "fix"), name)
        ]
    for one, name in zip(document["graph"]["segments"], names, strict=False):
        one["first"] = one["last"] = name
    for loadable in document["placement"]["loadables"]:
        loadable |= {"first": HOSTILE, "last": LONG}
    document |= {
        "name": LONG[:300],
        "model": LONG,
        "config": f"{HOSTILE}\n{LONG}",
        "environment": {HOSTILE: LONG},
        "files": {HOSTILE: LONG},
        "notes": [HOSTILE, LONG],
        "power_mode": HOSTILE,
        "headline": LONG[:2000],
    }
    document["why_not"].append(
        {
            "rule": LONG,
            "count": 1,
            "sources": [HOSTILE],
            "fixes": [LONG],
            "layers": [{"name": LONG, "message": LONG, "found": HOSTILE, "limit": HOSTILE}],
        }
    )
    document["verdict"]["reasons"].append(
        {"code": LONG, "message": LONG, "found": 0, "limit": 1, "remedy": HOSTILE}
    )
    document["power"]["series"]["rails_mw"][0]["name"] = LONG
    return parse_report(document)
