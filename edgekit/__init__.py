"""edgekit: ONNX networks on NVIDIA Jetson boards, on the GPU and on the DLA.

    import edgekit
    found = edgekit.check("model.onnx", target="jetson-agx-orin-64gb")
    plan = edgekit.plan("configs/resnet50-orin.yaml")

Each function does the same as the command of its name; see ``edgekit.api``.
"""

from __future__ import annotations

from edgekit.version import __version__

# type checkers know the name; importing typing takes 10 ms in which an interrupt is a traceback
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edgekit.api import (
        abort_rollout,
        add_power,
        apply_releases,
        bench,
        build,
        bundle,
        calibrate,
        cancel_job,
        check,
        check_models,
        compare,
        compile,
        deploy,
        detect,
        diff_caches,
        doctor,
        explain,
        explain_log,
        export,
        export_history,
        export_rollout,
        fleet_boards,
        from_qdq,
        history,
        infer,
        init,
        job_log,
        jobs,
        list_rewrites,
        list_targets,
        load,
        mark_measurement,
        measurements,
        merge_caches,
        open_config,
        pareto,
        pause_rollout,
        plan,
        plan_networks,
        plan_table,
        prune_history,
        read_document,
        refit,
        releases,
        remove,
        remove_job,
        report,
        resume_rollout,
        rewrite,
        roll_back_rollout,
        rollback,
        rollout,
        rollout_status,
        rollouts,
        run,
        selftest,
        sensitivity,
        serve,
        set_up,
        show_cache,
        status,
        to_qdq,
        top,
        trace,
        trust,
        tune,
        verify_rewrites,
        watch_board,
        watch_job,
        what_if,
        why,
    )

__all__ = [
    "__version__",
    "abort_rollout",
    "add_power",
    "apply_releases",
    "bench",
    "build",
    "bundle",
    "calibrate",
    "cancel_job",
    "check",
    "check_models",
    "compare",
    "compile",
    "deploy",
    "detect",
    "diff_caches",
    "doctor",
    "explain",
    "explain_log",
    "export",
    "export_history",
    "export_rollout",
    "fleet_boards",
    "from_qdq",
    "history",
    "infer",
    "init",
    "job_log",
    "jobs",
    "list_rewrites",
    "list_targets",
    "load",
    "mark_measurement",
    "measurements",
    "merge_caches",
    "open_config",
    "pareto",
    "pause_rollout",
    "plan",
    "plan_networks",
    "plan_table",
    "prune_history",
    "read_document",
    "refit",
    "releases",
    "remove",
    "remove_job",
    "report",
    "resume_rollout",
    "rewrite",
    "roll_back_rollout",
    "rollback",
    "rollout",
    "rollout_status",
    "rollouts",
    "run",
    "selftest",
    "sensitivity",
    "serve",
    "set_up",
    "show_cache",
    "status",
    "to_qdq",
    "top",
    "trace",
    "trust",
    "tune",
    "verify_rewrites",
    "watch_board",
    "watch_job",
    "what_if",
    "why",
]

# a name that goes, with the one to use instead: it works for one minor release and warns
_FORMER: dict[str, str] = {}


def __dir__() -> list[str]:
    # dir() and a shell's completion show the public names, which are not loaded yet
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # modules are imported on first use: the command line starts in a fraction of a second
    from importlib import import_module

    if name in _FORMER:
        import warnings

        warnings.warn(
            f"edgekit.{name} is deprecated; use edgekit.{_FORMER[name]}",
            DeprecationWarning,
            stacklevel=2,
        )
        name = _FORMER[name]
    if name in __all__:
        function = getattr(import_module("edgekit.api"), name)
        return import_module("edgekit.arguments").checked(function)
    gone = import_module("edgekit.removed").NAMES
    instead = f": {gone[name]}" if name in gone else ""
    raise AttributeError(f"module 'edgekit' has no attribute {name!r}{instead}")
