"""edgekit: ONNX networks on NVIDIA Jetson boards, on the GPU and on the DLA.

    import edgekit
    document = edgekit.check("model.onnx", target="jetson-agx-orin-64gb")
    plan = edgekit.plan("configs/resnet50-orin.yaml")

Each function does what the command of the same name does; see ``edgekit._api``.
"""

from __future__ import annotations

__version__ = "0.1.0"

# type checkers know the name; importing typing takes 10 ms in which an interrupt is a traceback
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edgekit._api import (
        calibrate,
        check,
        compare,
        infer,
        pareto,
        plan,
        plan_of_log,
        plan_table,
        refit,
        rollback,
        run,
        solve,
        top,
        trace,
        tune,
        verify_rewrites,
        what_if,
        why,
    )

__all__ = [
    "__version__",
    "calibrate",
    "check",
    "compare",
    "infer",
    "pareto",
    "plan",
    "plan_networks",
    "plan_of_log",
    "plan_table",
    "refit",
    "rollback",
    "run",
    "solve",
    "top",
    "trace",
    "tune",
    "verify_rewrites",
    "what_if",
    "why",
]

# floors of the house that are functions too; see edgekit._callable
_FLOORS = ("bench", "build", "bundle", "deploy", "history", "rewrite", "sensitivity")


def __dir__() -> list[str]:
    return sorted([*__all__, *_FLOORS])


def __getattr__(name: str) -> Any:
    # nothing is imported before it is used: the command line starts in a fraction of a second
    from importlib import import_module

    if name in _FLOORS:
        return import_module(f"edgekit.{name}")
    if name in __all__:
        return getattr(import_module("edgekit._api"), name)
    raise AttributeError(f"module 'edgekit' has no attribute {name!r}")
