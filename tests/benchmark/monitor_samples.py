"""A short monitor document, and a measurement that says when its frames ran."""

STARTED = 1_750_000_000.0  # that of nsys_export


def monitor(count=10, step=0.1, wall=STARTED):
    def sample(t):
        return {
            "t_s": t,
            "wall": None if wall is None else wall + t,
            "rails_mw": {"VDD_GPU_SOC": {"now": 4000 + 1000 * (t > 0), "average": None}},
            "temperatures_c": {"tj": 45.5},
            "engines": {
                "GR3D": {"on": True, "percent": 87, "mhz": [1300]},
                "NVDLA0": {"on": False},
            },
            "clocks_hz": {"dla0_core": 1_600_000_000},
            "runtime_status": {"dla0": "active" if t >= 0 else "suspended"},
            "ram": {"used_bytes": 1 << 30, "total_bytes": 1 << 34},
            "cpu": [{"percent": 10, "mhz": None}, None, {"percent": 30, "mhz": 2201}],
        }

    return {
        "schema": "edgekit.monitor/1",
        "interval_ms": 1000 * step,
        "idle": [sample(-1.0)],
        "samples": [sample(round(number * step, 6)) for number in range(count)],
    }


def measured(**options):
    """The loader's fields beside its frames: they began 0.25 s into the measurement."""
    return {"monitor": monitor(**options), "events_start_s": 0.25}
