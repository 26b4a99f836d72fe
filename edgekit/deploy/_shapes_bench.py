"""The form of a board's ``bench`` answer (docs/architecture.md), as ``_shapes`` reads forms."""

from __future__ import annotations

from typing import Any

__all__ = ["BENCH"]

_TIMES: Any = {"*": "number"}
_SEGMENT_EVENT: Any = {
    "frame": "count", "lane": "count", "index": "count", "device": "text", "start_us": "number",
    "duration_us": "number",
}  # fmt: skip
_MEMORY: Any = ({"used_bytes?": "number?", "total_bytes?": "number?"}, None)
_SAMPLE: Any = {
    "t_s": "number", "wall?": "number?", "ram?": _MEMORY, "swap?": _MEMORY,
    "cpu?": [({"percent?": "number?", "mhz?": "number?"}, None)],
    "engines?": {"*": {"percent?": "number?", "mhz?": ["number"]}},
    "temperatures_c?": {"*": "number"},
    "rails_mw?": {"*": {"now": "number", "average?": "number?", "peak?": "number?"}},
    "runtime_status?": {"*": "text"}, "clocks_hz?": {"*": "number"},
    "other?": {"process_percent?": "number?", "cooling?": ({"*": "number"}, None),
               "overcurrent_events?": ({"*": "number"}, None)},
}  # fmt: skip
_MONITOR: Any = {
    "schema": "text", "interval_ms": "number", "sources": ["text"], "started_at?": "number?",
    "samples": [_SAMPLE], "idle": [_SAMPLE], "busy_from_s?": "number?",
    "facts": {"module?": "text?", "l4t?": "text?", "clock_caps_hz?": ({"*": "number"}, None)},
    "unknown": {"*": "count"}, "warnings": ["text"],
}  # fmt: skip
_POWER: Any = {
    "mode": {"*": ({"name": "text?", "id": "count?"}, None)},
    "clocks": {"*": ({"*": {"min?": "number?", "max?": "number?", "current?": "number?",
                            "locked?": "flag"}}, None)},
    "locked": "flag", "restored": "flag", "notes": ["text"],
}  # fmt: skip
_TRTEXEC: Any = {
    "program": "text?", "why": "text?",
    "engines": [{"lane": "count", "index": "count", "device": "text", "command": "text?",
                 "status": "count?", "console": "text", "times": "text?", "why": "text?"}],
}  # fmt: skip

BENCH: Any = {
    "release": "text", "backend": "text", "clock": "text", "segments_clock": "text",
    "iterations": "count", "warmup_ms": "number", "duration_s": "number",
    "latency_ms": {"median": "number", **_TIMES}, "samples_ms": ["number"],
    "throughput_qps": "number",
    "pipelined": ({"frames": "count", "throughput_qps": "number"}, None),
    "segments": [{"lane": "count", "index": "count", "device": "text", "layers": ["text"],
                  "latency_ms": {"median": "number", **_TIMES}}],
    "events": [_SEGMENT_EVENT], "pipelined_events": [_SEGMENT_EVENT], "events_start_s": "number?",
    "pipelined_start_s": "number?",
    "copies": [{"frame": "count", "phase": "text", "start_us": "number", "duration_us": "number"}],
    "nodes": ([{"lane": "count", "index": "count", "node": "text", "op?": "text?",
                "mean_us": "number", "median_us?": "number"}], None),
    "settings": {"streams?": "count", "data?": "text"},
    "phases_ms": {"*": (_TIMES, None)},
    "streams": ([{"stream": "count", "iterations": "count", "throughput_qps": "number"}], None),
    "cold": {"*": "number?"}, "memory": {"*": "count?"},
    "runtime": {"library?": "text?", "flags?": {"*": "any"}, "notes?": ["text"]},
    "environment": ({"*": "any"}, None),
    "monitor": (_MONITOR, None), "power": (_POWER, None), "trtexec": (_TRTEXEC, None),
}  # fmt: skip
