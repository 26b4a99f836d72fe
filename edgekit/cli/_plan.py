"""``edgekit plan``: places every layer and says what it costs, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.cli import _options as o
from edgekit.cli import _plan_options as read
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.pipeline import Pipeline

__all__ = ["command"]


@o.command(
    "plan",
    "edgekit plan configs/resnet50-orin.yaml\nedgekit plan model.onnx "
    "-t jetson-agx-orin-64gb --objective throughput --dla-cores 0,1\nedgekit plan model.onnx "
    '-t jetson-agx-orin-64gb --bound latency_us=2000 --objective energy --pin "conv1=GPU"\n'
    "edgekit plan model.onnx -t jetson-agx-orin-64gb --why conv1\nedgekit plan model.onnx "
    '-t jetson-agx-orin-64gb --what-if "pin conv* GPU; mode 30W"\nedgekit plan model.onnx '
    "-t jetson-agx-orin-64gb --modes all\nedgekit plan --problem problem.json --json",
)
@o.optional_model
@o.target
@o.precision
@read.wishes
@read.questions
@o.tensorrt
@o.cut
@o.force
@o.talk
def command(
    model: str | None,
    problem: Path | None,
    profile: Path | None,
    layer_info: Path | None,
    report: Path | None,
    annotate: Path | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    force: bool,
    **options: Any,
) -> None:
    asked = {"--pareto": options["pareto"], "--why": options["why"],
             "--what-if": options["what_if"]}  # fmt: skip
    tables = {"--modes": options["modes"], "--targets": options["targets"]}
    table = " and ".join(name for name, value in tables.items() if value is not None)
    question = read.one_question(
        {**asked, table or "--modes": table or None, "--problem": problem, "--report": report}
    )
    if annotate is not None and (model is None or question not in (None, "--report")):
        raise UsageError("--annotate goes with the plan of a model", hint="edgekit plan MODEL")
    from edgekit.pipeline import may_write_for

    if model is None or problem is not None:
        given = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
        given["--gpu"] = None if options["gpu"] is None else "given"  # False counts as not given
        given["--shape, --batch or --outputs"] = [v for v in given.pop("--part").values() if v]
        if problem is not None:
            read.only_with("--problem", {"a model": model, "--profile": profile,
                            "--layer-info": layer_info, **given},
                           "the problem's document says everything")  # fmt: skip
            _print(_solved(problem, quiet, verbose), "solution_text", json)
        elif profile is not None:
            read.only_with("--profile without a model", {"--report": report, **given},
                           "give the model, too")  # fmt: skip
            _print(_of_log(profile, layer_info, quiet, verbose), "log_plan_text", json)
        else:
            raise UsageError("Missing argument 'MODEL'.", hint="edgekit plan --help")
        return
    config = _config(model, profile, layer_info, options)
    may_write_for(config, {"the report": report}, makes_folders=True)
    if config.file.model.networks:
        if annotate is not None:
            raise UsageError("--annotate takes one network, and this configuration has several")
        if question not in (None, "--report"):
            raise UsageError(
                f"{question} takes one network, and this configuration has several",
                hint="give the network's file, or leave the option out",
            )
        _several(config, report, json, quiet=quiet, verbose=verbose, force=force)
        return
    with o.open_pipeline(config, quiet=quiet, verbose=verbose, force=force) as pipeline:
        if question in (None, "--report"):
            _plan(pipeline, report, annotate, json)
        else:
            _print(*_answers(pipeline, options)[question](), json)


def _several(
    config: Config, report: Path | None, json: bool, *, quiet: bool, verbose: bool, force: bool
) -> None:
    from edgekit.pipeline import plan_networks, write_networks_report

    plans = plan_networks(config, force=force, progress=o.progress(quiet, verbose))
    document = plans.to_json()
    if report is not None:
        write_networks_report(plans, report, name=config.file.name)
    _print(document, "plans_text", json)
    if report is not None and not json:
        o.say(f"report  {report}")


def _config(
    model: str, profile: Path | None, layer_info: Path | None, options: dict[str, Any]
) -> Config:
    """Returns the configuration; pins of the command line come after those of the file."""
    from edgekit.config import open_config

    targets = read.names("--targets", options["targets"])
    gpu = options["gpu"]
    keys = {
        "target": options["target"] or _first(targets),
        "precision": options["precision"],
        # of several boards some may lack the mode: the table says so
        "power_mode": None if targets else options["power_mode"],
        "tensorrt": options["tensorrt"],
        "model": options["part"],
        "placement": {
            "objective": options["objective"],
            "bounds": read.bounds(options["bound"]),
            "dla_cores": read.cores(options["dla_cores"]),
            "gpu": gpu,
            "max_transitions": options["max_transitions"],
            "min_loadable_layers": options["min_loadable"],
            "max_loadables": options["max_loadables"],
            "pools": read.pools(options["pool"]),
            "profile": None if profile is None else str(profile.absolute()),
            "layer_info": None if layer_info is None else str(layer_info.absolute()),
        },
        "calibration": {
            "cache": None if options["cache"] is None else str(options["cache"].absolute()),
            "missing": options["missing"],
        },
        "build": {"mode": "standalone" if gpu is False else None},
    }
    if Path(model).suffix.lower() in (".yaml", ".yml"):
        keys["target"] = options["target"]
    pins = read.pins(options["pin"])
    config = open_config(model, **keys)
    if pins:
        before = [pin.model_dump() for pin in config.file.placement.pin]
        config = open_config(config, placement={"pin": [*before, *pins]})
    return config


def _first(targets: list[str]) -> str | None:
    if targets == ["all"]:
        from edgekit.targets import names

        return names()[0]
    return targets[0] if targets else None


def _answers(
    pipeline: Pipeline, options: dict[str, Any]
) -> dict[str, Callable[[], tuple[Any, str]]]:
    """Returns by option what it prints: the document, and who makes text of it."""

    def table() -> tuple[Any, str]:
        targets = read.names("--targets", options["targets"])
        if targets == ["all"]:
            from edgekit.targets import names

            targets = list(names())
        modes = read.names("--modes", options["modes"])
        document = pipeline.table(
            modes=modes, targets=targets, objective=options["objective"],
            power_mode=options["power_mode"],
        )  # fmt: skip
        return document, "plan_table_text"

    return {
        "--why": lambda: (pipeline.why(options["why"]), "why_text"),
        "--what-if": lambda: (pipeline.what_if(options["what_if"]), "what_if_text"),
        "--pareto": lambda: (pipeline.pareto(*read.metrics(options["pareto"])), "pareto_text"),
        "--modes": table,
        "--targets": table,
        "--modes and --targets": table,
    }


def _plan(pipeline: Pipeline, report: Path | None, annotate: Path | None, json: bool) -> None:
    plan = pipeline.plan()
    if report is not None:
        pipeline.plan_report(report)
    if annotate is not None:
        from edgekit.pipeline import write_annotated

        write_annotated(pipeline, annotate)
    if json:
        o.print_json(plan.to_json())
        return
    from edgekit.report import summary_plan

    o.console().print(summary_plan(plan))
    if report is not None:
        o.say(f"report  {report}")


def _print(document: Any, text: str, json: bool) -> None:
    if json:
        o.print_json(document)
        return
    from edgekit import report

    width, colour = o.paper()
    o.say_page(getattr(report, text)(document, width=width or 80, colour=colour))


def _solved(path: Path, quiet: bool, verbose: bool) -> dict[str, Any]:
    from edgekit.pipeline import solve_problem

    return solve_problem(path, o.progress(quiet, verbose))


def _of_log(path: Path, layer_info: Path | None, quiet: bool, verbose: bool) -> dict[str, Any]:
    from edgekit.pipeline import plan_of_profile

    return plan_of_profile(path, o.progress(quiet, verbose), layer_info=layer_info)
