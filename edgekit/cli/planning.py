"""``edgekit plan`` and ``edgekit tune``: the placement of every layer with costs and reasons; and
the search that plans, builds and measures until no remaining plan can be better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from edgekit import api
from edgekit.cli import commands, completion, output
from edgekit.cli import options as o
from edgekit.cli.options import annotate
from edgekit.cli.output import Interrupted, console, print_json, say, show_page, terminal_format
from edgekit.errors import UsageError
from edgekit.text import read_size

_Value = TypeVar("_Value")
#: The report function of a document, by its class.
_TEXTS = {
    "Plans": "plans_text",
    "Why": "why_text",
    "WhyModules": "why_modules_text",
    "WhatIf": "what_if_text",
    "Pareto": "pareto_text",
    "PlanTable": "plan_table_text",
}

_PLAN_OPTIONS = o.combine(
    click.option("--power-mode", help="Power mode by NVIDIA's name, e.g. MAXN, 30W."),
    click.option(
        "--objective",
        help="What to optimise: latency, throughput, period, energy, gpu_time, or the makespan of "
        "several networks.",
        shell_complete=completion.objectives,
    ),
    click.option(
        "--bound",
        multiple=True,
        metavar="NAME=VALUE",
        help="Upper limit for latency_us, energy_uj, gpu_us or period_us; repeatable.",
    ),
    click.option(
        "--rate-hz",
        type=float,
        metavar="RATE",
        help="Frames a second that the plan keeps up with; energy is then of a frame at this rate, "
        "otherwise back to back.",
    ),
    click.option(
        "--pin",
        multiple=True,
        metavar="GLOB=DEVICE",
        help="Pin layers to GPU, DLA, DLA0 or DLA1; repeatable, later pins win.",
    ),
    click.option("--dla-cores", help="DLA cores to use: 0, 0,1 or none."),
    click.option(
        "--gpu/--no-gpu", default=None, help="--no-gpu plans standalone loadables, DLA only."
    ),
    click.option(
        "--max-transitions",
        type=click.IntRange(min=0),
        metavar="N",
        help="Most changes between devices.",
    ),
    click.option(
        "--min-loadable",
        type=click.IntRange(min=1),
        metavar="N",
        help="Fewest layers in a loadable.",
    ),
    click.option(
        "--max-loadables",
        type=click.IntRange(min=1),
        metavar="N",
        help="Most loadables on a DLA core.",
    ),
    click.option(
        "--pool",
        multiple=True,
        metavar="NAME=SIZE",
        help="Limit of a DLA memory pool for each loadable, e.g. global_dram=64MiB; repeatable.",
    ),
    click.option(
        "--profile",
        type=o.FILE,
        help="Measured times to use instead of predicted ones: a trtexec profile, an "
        "edgekit bench or a verbose build log.",
    ),
    click.option(
        "--cache",
        type=o.FILE,
        help="Calibration cache with the network's INT8 scales.",
    ),
    o.missing,
    click.option(
        "--layer-info",
        type=o.FILE,
        help="trtexec --exportLayerInfo of the profiled engine: identifies the loadables' rows.",
    ),
)

_QUESTION_OPTIONS = o.combine(
    click.option(
        "--why", metavar="LAYER", help="Explain why a layer, or a PyTorch module, is where it is."
    ),
    click.option(
        "--by-module",
        is_flag=True,
        help="Show the plan's tree of PyTorch modules, and why layers are on the GPU.",
    ),
    click.option(
        "--what-if",
        metavar="CHANGES",
        help='Compare the plan with a changed one, e.g. "pin conv* GPU; mode 30W".',
    ),
    click.option(
        "--pareto", metavar="A,B", help="Show the best trade-offs of two metrics: latency,energy."
    ),
    click.option("--modes", metavar="all|A,B", help="Compare the board's power modes."),
    click.option("--targets", metavar="all|A,B", help="Compare boards."),
)


@dataclass(frozen=True)
class PlanOptions:
    """The options of a plan: its limits and its input."""

    power_mode: str | None
    objective: str | None
    bound: tuple[str, ...]
    rate_hz: float | None
    pin: tuple[str, ...]
    dla_cores: str | None
    gpu: bool | None
    max_transitions: int | None
    min_loadable: int | None
    max_loadables: int | None
    pool: tuple[str, ...]
    profile: Path | None
    cache: Path | None
    missing: str | None
    layer_info: Path | None


@dataclass(frozen=True)
class Questions:
    """The options that print an answer instead of the plan; only a single option may be given."""

    why: str | None
    by_module: bool
    what_if: str | None
    pareto: str | None
    modes: str | None
    targets: str | None

    def given_option(self, report: Path | None) -> str | None:
        """Returns the given option (``report`` counts as an option).

        Raises:
            UsageError: Several are given; each prints another text.
        """
        tables = {"--modes": self.modes, "--targets": self.targets}
        table = " and ".join(name for name, value in tables.items() if value is not None)
        given = {
            "--pareto": self.pareto,
            "--why": self.why,
            "--what-if": self.what_if,
            "--by-module": self.by_module or None,
            table: table or None,
            "--report": report,
        }
        used = [name for name, value in given.items() if value is not None]
        if len(used) > 1:
            raise UsageError(f"{' and '.join(used)} cannot be combined", hint="give one")
        return used[0] if used else None


def _fill_dataclass(name: str, kind: type[Any], options: o.Decorator) -> o.Decorator:
    """Returns a decorator that passes the ``options`` to a command as ``name``, a ``kind``."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def filled(**given: Any) -> Any:
            own = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            return function(**{name: own}, **given)

        return options(filled)

    return decorate


plan_options = _fill_dataclass("wanted", PlanOptions, _PLAN_OPTIONS)
question_options = _fill_dataclass("asked", Questions, _QUESTION_OPTIONS)


def parse_cores(text: str | None) -> list[int] | None:
    """Returns the cores of "0,1" or "none"."""
    if text is None:
        return None
    if text.strip().lower() == "none":
        return []
    hint = "--dla-cores 0,1 or --dla-cores none"
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--dla-cores {text!r} is not a list of cores", hint=hint) from None
    if len(set(found)) < len(found):
        raise UsageError(f"--dla-cores {text!r} names a core twice", hint=hint)
    return found


def parse_pins(texts: Iterable[str]) -> list[dict[str, str]]:
    """Returns the pins of "GLOB=DEVICE"."""
    found = []
    devices = api.known_names("devices")
    for text in texts:
        # from the right: a layer's name may have a "="
        layers, equals, device = text.rpartition("=")
        upper = device.strip().upper()
        # the configuration accepts Ultralytics' device names and notes it
        name = upper if upper in devices else device.strip()
        if not equals or not layers.strip() or api.device_named(name) not in devices:
            raise UsageError(
                f"--pin {text!r}: {device.strip()!r} is no device"
                if equals and layers.strip()
                else f"--pin {text!r} is not GLOB=DEVICE",
                hint=f'--pin "conv*=GPU"; a device is {", ".join(devices)}',
            )
        found.append({"layers": layers.strip(), "device": name})
    return found


def _parse_named(
    option: str, texts: Iterable[str], read: Callable[[str], _Value], hint: str
) -> dict[str, _Value]:
    found = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            if name in found:
                raise UsageError(f"{name} is given twice", hint="give it once")
            if not name or not value:
                raise ValueError
            found[name] = read(value)
        except ValueError:
            raise UsageError(f"{option} {text!r} is not NAME=VALUE", hint=hint) from None
        except UsageError as error:
            error.where = option
            raise
    return found


def parse_bounds(texts: Iterable[str]) -> dict[str, float]:
    """Returns the bounds of "NAME=VALUE"."""
    return _parse_named("--bound", texts, float, "--bound latency_us=2000")


def parse_pools(texts: Iterable[str]) -> dict[str, int]:
    """Returns the pools of "NAME=SIZE"."""
    return _parse_named("--pool", texts, read_size, "--pool global_dram=64MiB")


def parse_names(option: str, text: str | None) -> list[str]:
    """Returns the names of a list with commas."""
    if text is None:
        return []
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise UsageError(f"{option} {text!r} has an empty name", hint=f"{option} A,B")
    if "all" in found and len(found) > 1:
        raise UsageError(
            f"{option} {text!r}: all cannot be combined with names", hint=f"{option} all"
        )
    return found


def parse_metrics(text: str) -> tuple[str, str]:
    """Returns the two metrics of ``--pareto``."""
    found = parse_names("--pareto", text)
    if len(found) != 2:
        raise UsageError(f"--pareto {text!r}: not two metrics", hint="--pareto latency,energy")
    return found[0], found[1]


@commands.command(
    "plan",
    "edgekit plan configs/resnet50-orin.yaml\nedgekit plan model.onnx "
    "-t jetson-agx-orin-64gb --objective throughput --dla-cores 0,1\nedgekit plan model.onnx "
    '-t jetson-agx-orin-64gb --bound latency_us=2000 --objective energy --pin "conv1=GPU"\n'
    "edgekit plan model.onnx -t jetson-agx-orin-64gb --why conv1\nedgekit plan model.onnx "
    '-t jetson-agx-orin-64gb --what-if "pin conv* GPU; mode 30W"\nedgekit plan model.onnx '
    "-t jetson-agx-orin-64gb --modes all",
)
@o.optional_model
@o.target
@o.precision
@plan_options
@question_options
@click.option("--report", type=o.FILE, help="Also write the plan as an HTML page.")
@annotate
@o.tensorrt
@o.cut_or_torch
@o.leave
@o.parser
@o.force
@o.reports
def plan_command(
    model: str | None,
    target: str | None,
    precision: str | None,
    wanted: PlanOptions,
    asked: Questions,
    report: Path | None,
    annotate: Path | None,
    tensorrt: str | None,
    part: api.ModelPart,
    parser: bool | None,
    json: bool,
    **settings: Any,
) -> None:
    question = asked.given_option(report)
    if annotate is not None and (model is None or question not in (None, "--report")):
        raise UsageError("--annotate needs the plan of a model", hint="edgekit plan MODEL")
    if model is None:
        if wanted.profile is not None:
            raise UsageError(
                "--profile needs the model that was profiled",
                hint=f"edgekit plan MODEL --target BOARD --profile {wanted.profile}",
            )
        raise UsageError("Missing argument 'MODEL'.", hint="edgekit plan --help")
    profile, layer_info, cache = wanted.profile, wanted.layer_info, wanted.cache
    try:
        found = api.answer_plan(
            model,
            layer="*" if asked.by_module else asked.why,
            changes=asked.what_if,
            metrics=None if asked.pareto is None else parse_metrics(asked.pareto),
            modes=parse_names("--modes", asked.modes),
            targets=parse_names("--targets", asked.targets),
            pins=parse_pins(wanted.pin),
            power_mode=wanted.power_mode,
            report=report,
            annotate=annotate,
            target=target,
            precision=precision,
            tensorrt=tensorrt,
            model=part,
            parser=parser,
            placement={
                "objective": wanted.objective,
                "bounds": parse_bounds(wanted.bound),
                "rate_hz": wanted.rate_hz,
                "dla_cores": parse_cores(wanted.dla_cores),
                "gpu": wanted.gpu,
                "max_transitions": wanted.max_transitions,
                "min_loadable_layers": wanted.min_loadable,
                "max_loadables": wanted.max_loadables,
                "pools": parse_pools(wanted.pool),
                # absolute: paths of a configuration are relative to its file, options to the
                # current folder
                "profile": None if profile is None else profile.absolute(),
                "layer_info": None if layer_info is None else layer_info.absolute(),
            },
            calibration={
                "cache": None if cache is None else cache.absolute(),
                "missing": wanted.missing,
            },
            **settings,
        )
    except UsageError as error:
        if asked.by_module and error.code == "layer.several":
            raise o.no_modules(model) from error
        raise
    _print(found, json)
    if report is not None and not json:
        say(f"report  {report}")


def _print(document: Any, json: bool) -> None:
    """Prints a plan, or the answer to a question about it."""
    # by name, so that only the module of the text to print is imported
    kind = type(document).__name__
    if json:
        print_json(document)
    elif kind == "Plan":
        from edgekit.reports.terminal.summary import summary_plan

        console().print(summary_plan(document))
    else:
        from edgekit.reports.terminal import plan as texts

        settings = {"width": terminal_format()[0] or 80} if kind == "Plans" else {}
        show_page(getattr(texts, _TEXTS[kind])(document, **settings))


@commands.command(
    "tune",
    "edgekit tune configs/resnet50-orin.yaml --budget 3600\n"
    "edgekit tune configs/resnet50-orin.yaml --objective throughput --rounds 8\n"
    "edgekit tune configs/resnet50-orin.yaml --from other/tuned.profile.json",
)
@o.config
@click.option(
    "--objective",
    help="What to optimise (default: the configuration's placement.objective).",
    shell_complete=completion.objectives,
)
@click.option(
    "--budget", type=click.FloatRange(min=0), help="Time limit for the whole tuning, in seconds."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="Most plans to measure.",
)
@click.option(
    "--turns",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Alternating measurements of the first and the best plan at the end.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, max=1),
    default=0.01,
    show_default=True,
    help="Smallest relative improvement worth measuring.",
)
@click.option(
    "--from",
    "tables",
    type=o.FILE,
    multiple=True,
    metavar="FILE",
    help="Measured times from an earlier tuning (tuned.profile.json); repeatable.",
)
@click.option("--anew", is_flag=True, help="Start over and ignore earlier measurements.")
@click.option("--keep", is_flag=True, help="Keep the trial application on the board.")
@o.cut_or_torch
@o.out_or_former
@o.board_options
@o.output_options
def tune_command(
    config: str,
    objective: str | None,
    budget: float | None,
    rounds: int,
    turns: int,
    tolerance: float,
    tables: tuple[Path, ...],
    anew: bool,
    keep: bool,
    part: api.ModelPart,
    out: Path | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    progress = output.progress(quiet, verbose)
    document = api.tune(
        config,
        api.tuning_request(objective, budget, rounds, turns, tolerance),
        model=part,
        out=out,
        tables=tables,
        keep=keep,
        anew=anew,
        on_note=progress.note,
        progress=progress if verbose else None,
        **settings,
    )
    if json:
        print_json(document)
    else:
        for line in api.tune_lines(document, verbose=verbose):
            say(line)
    if document.status == "interrupted":
        raise Interrupted
