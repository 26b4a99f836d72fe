"""``edgekit plan`` and ``edgekit tune``: where every layer runs, what it costs and why; and the
search that plans, builds and measures until no plan that is left can be better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import commands, output
from edgekit.cli import options as o
from edgekit.cli.options import annotate
from edgekit.cli.output import Interrupted, console, print_json, say, show_page, terminal_format
from edgekit.errors import UsageError
from edgekit.text import counted, sentence

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.pipeline.pipeline import Pipeline


_DEVICES = ("GPU", "DLA", "DLA0", "DLA1")
_METRICS = {
    "latency": "latency_us", "energy": "energy_uj", "gpu_time": "gpu_us", "period": "period_us",
}  # fmt: skip

#: What the plan must keep and what it is made of.
plan_options = o.all_of(
    click.option("--power-mode", help="Power mode by NVIDIA's name, e.g. MAXN, 30W."),
    click.option(
        "--objective",
        help="What to optimise: latency, throughput, period, energy, gpu_time, or the makespan of "
        "several networks.",
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
        help="trtexec --exportLayerInfo of the profiled engine, to tell which rows are loadables.",
    ),
)

#: What is printed instead of the plan.
question_options = o.all_of(
    click.option("--why", metavar="LAYER", help="Explain why a layer is on its device."),
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
    click.option("--report", type=o.FILE, help="Also write the plan as an HTML page."),
    annotate,
)
_QUANTITIES = {"latency": "latency", "throughput": "throughput", "period": "period",
               "energy": "energy a frame", "gpu_time": "GPU time"}  # fmt: skip
_KINDS = 12
_NAMES = 3


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
    for text in texts:
        layers, equals, device = text.rpartition("=")
        known = device.strip().upper() in _DEVICES
        if not equals or not layers.strip() or not known:
            raise UsageError(
                f"--pin {text!r}: {device.strip()!r} is no device"
                if equals and layers.strip()
                else f"--pin {text!r} is not GLOB=DEVICE",
                hint=f'--pin "conv*=GPU"; a device is {", ".join(_DEVICES)}',
            )
        found.append({"layers": layers.strip(), "device": device.strip().upper()})
    return found


def _named(option: str, texts: Iterable[str], read: Callable[[str], Any], hint: str) -> Any:
    found: dict[str, Any] = {}
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
    found: dict[str, float] = _named("--bound", texts, float, "--bound latency_us=2000")
    return found


def parse_pools(texts: Iterable[str]) -> dict[str, int]:
    """Returns the pools of "NAME=SIZE"."""
    if not texts:
        return {}
    from edgekit.pipeline.questions import read_size

    found: dict[str, int] = _named("--pool", texts, read_size, "--pool global_dram=64MiB")
    return found


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
    """Returns the two metrics of ``--pareto``, as plans name them."""
    import difflib

    found = []
    for part in parse_names("--pareto", text):
        name = part if part in _METRICS.values() else _METRICS.get(part)
        if name is None:
            near = difflib.get_close_matches(part, _METRICS, 1)
            raise UsageError(
                f"--pareto: unknown metric {part!r}",
                hint=f"did you mean {near[0]}?" if near else f"two of {', '.join(_METRICS)}",
            )
        found.append(name)
    if len(found) != 2 or found[0] == found[1]:
        problem = "the same metric twice" if len(found) == 2 else "not two metrics"
        raise UsageError(f"--pareto {text!r}: {problem}", hint="--pareto latency,energy")
    return found[0], found[1]


def one_question(given: Mapping[str, Any]) -> str | None:
    """Returns the one option of ``given`` that was used; they print different things."""
    used = [name for name, value in given.items() if value is not None]
    if len(used) > 1:
        raise UsageError(f"{' and '.join(used)} cannot be combined", hint="give one")
    return used[0] if used else None


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
@o.tensorrt
@o.cut
@o.parser
@o.force
@o.talk
def plan_command(
    model: str | None,
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
    questions = {"--pareto": options["pareto"], "--why": options["why"],
             "--what-if": options["what_if"]}  # fmt: skip
    tables = {"--modes": options["modes"], "--targets": options["targets"]}
    table = " and ".join(name for name, value in tables.items() if value is not None)
    question = one_question({**questions, table or "--modes": table or None, "--report": report})
    if annotate is not None and (model is None or question not in (None, "--report")):
        raise UsageError("--annotate needs the plan of a model", hint="edgekit plan MODEL")
    from edgekit.pipeline.outputs import may_write_for

    if model is None:
        if profile is not None:
            raise UsageError(
                "--profile needs the model that was profiled",
                hint=f"edgekit plan MODEL --target BOARD --profile {profile}",
            )
        raise UsageError("Missing argument 'MODEL'.", hint="edgekit plan --help")
    config = _config(model, profile, layer_info, options)
    may_write_for(config, {"the report": report}, makes_folders=True)
    if config.file.model.networks:
        if annotate is not None:
            raise UsageError("--annotate takes one network, and this configuration has several")
        if question not in (None, "--report"):
            raise UsageError(
                f"{question} takes one network, and this configuration has several",
                hint="give one network's file, or leave the option out",
            )
        _plan_several(config, report, json, quiet=quiet, verbose=verbose, force=force)
        return
    with o.open_pipeline(config, quiet=quiet, verbose=verbose, force=force) as pipeline:
        if question in (None, "--report"):
            _plan(pipeline, report, annotate, json)
        else:
            _print(*_answers(pipeline, options)[question](), json)


def _plan_several(
    config: Config, report: Path | None, json: bool, *, quiet: bool, verbose: bool, force: bool
) -> None:
    from edgekit.schedule.networks import plan_networks, write_networks_report

    plans = plan_networks(config, force=force, progress=output.progress(quiet, verbose))
    document = plans.to_json()
    if report is not None:
        write_networks_report(plans, report, name=config.file.name)
    _print(document, "plans_text", json)
    if report is not None and not json:
        say(f"report  {report}")


def _config(
    model: str, profile: Path | None, layer_info: Path | None, options: dict[str, Any]
) -> Config:
    """Returns the configuration; pins of the command line come after those of the file."""
    from edgekit.config.loader import open_config

    targets = parse_names("--targets", options["targets"])
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
            "bounds": parse_bounds(options["bound"]),
            "rate_hz": options["rate_hz"],
            "dla_cores": parse_cores(options["dla_cores"]),
            "gpu": gpu,
            "max_transitions": options["max_transitions"],
            "min_loadable_layers": options["min_loadable"],
            "max_loadables": options["max_loadables"],
            "pools": parse_pools(options["pool"]),
            "profile": None if profile is None else str(profile.absolute()),
            "layer_info": None if layer_info is None else str(layer_info.absolute()),
        },
        "calibration": {
            "cache": None if options["cache"] is None else str(options["cache"].absolute()),
            "missing": options["missing"],
        },
        "build": {"mode": "standalone" if gpu is False else None},
        "parser": options["parser"],
    }
    if Path(model).suffix.lower() in (".yaml", ".yml"):
        keys["target"] = options["target"]
    pins = parse_pins(options["pin"])
    config = open_config(model, **keys)
    if pins:
        before = [pin.model_dump() for pin in config.file.placement.pin]
        config = open_config(config, placement={"pin": [*before, *pins]})
    return config


def _first(targets: list[str]) -> str | None:
    if targets == ["all"]:
        from edgekit.targets.loader import names

        return names()[0]
    return targets[0] if targets else None


def _answers(
    pipeline: Pipeline, options: dict[str, Any]
) -> dict[str, Callable[[], tuple[Any, str]]]:
    """Returns by option what it prints: the document, and who makes text of it."""

    def table() -> tuple[Any, str]:
        targets = parse_names("--targets", options["targets"])
        if targets == ["all"]:
            from edgekit.targets.loader import names

            targets = list(names())
        modes = parse_names("--modes", options["modes"])
        document = pipeline.table(
            modes=modes, targets=targets, objective=options["objective"],
            power_mode=options["power_mode"],
        )  # fmt: skip
        return document, "plan_table_text"

    return {
        "--why": lambda: (pipeline.why(options["why"]), "why_text"),
        "--what-if": lambda: (pipeline.what_if(options["what_if"]), "what_if_text"),
        "--pareto": lambda: (pipeline.pareto(*parse_metrics(options["pareto"])), "pareto_text"),
        "--modes": table,
        "--targets": table,
        "--modes and --targets": table,
    }


def _plan(pipeline: Pipeline, report: Path | None, annotate: Path | None, json: bool) -> None:
    plan = pipeline.plan()
    if report is not None:
        pipeline.plan_report(report)
    if annotate is not None:
        from edgekit.pipeline.exports import write_annotated

        write_annotated(pipeline.context, annotate)
    if json:
        print_json(plan.to_json())
        return
    from edgekit.reports.terminal.summary import summary_plan

    console().print(summary_plan(plan))
    if report is not None:
        say(f"report  {report}")


def _print(document: Any, text: str, json: bool) -> None:
    """Prints a document, or the page that the function ``text`` of the reports makes of it."""
    if json:
        print_json(document)
        return
    from edgekit.reports.terminal import plan as texts

    settings = {"width": terminal_format()[0] or 80} if text == "plans_text" else {}
    show_page(getattr(texts, text)(document, **settings))


@commands.command(
    "tune",
    "edgekit tune configs/resnet50-orin.yaml --budget 3600\n"
    "edgekit tune configs/resnet50-orin.yaml --objective throughput --rounds 8\n"
    "edgekit tune configs/resnet50-orin.yaml --from other/tuned.profile.json",
)
@o.config
@click.option(
    "--objective", help="What to optimise (default: the configuration's placement.objective)."
)
@click.option(
    "--budget", type=click.FloatRange(min=0), help="Time limit for the whole tuning, in seconds."
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=12, show_default=True,
    help="Most plans to measure.",
)  # fmt: skip
@click.option(
    "--turns", type=click.IntRange(min=0), default=5, show_default=True,
    help="Alternating measurements of the first and the best plan at the end.",
)  # fmt: skip
@click.option(
    "--tolerance", type=click.FloatRange(min=0, max=1), default=0.01, show_default=True,
    help="Smallest relative improvement worth measuring.",
)  # fmt: skip
@click.option(
    "--from", "tables", type=o.FILE, multiple=True, metavar="FILE",
    help="Measured times from an earlier tuning (tuned.profile.json); repeatable.",
)  # fmt: skip
@click.option("--anew", is_flag=True, help="Start over and ignore earlier measurements.")
@click.option("--keep", is_flag=True, help="Keep the trial application on the board.")
@o.cut
@o.out_or_former
@o.boards
@o.talk
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
    part: dict[str, Any],
    out: Path | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    from edgekit.config.loader import open_config
    from edgekit.tuning.run import tune
    from edgekit.tuning.trials import TuningRequest

    progress = output.progress(quiet, verbose)
    document = tune(
        open_config(config, model=part),
        TuningRequest(objective or "", budget, rounds, turns, tolerance),
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
        for line in tune_text(document, verbose=verbose):
            say(line)
    if document["status"] == "interrupted":
        raise Interrupted


# What ``edgekit tune`` prints: the outcome first, then what was learnt, then what was tried.


def tune_text(document: Mapping[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yields the lines of an ``edgekit.tune/1``.

    Args:
        document: The document.
        verbose: All kinds of layers and all layers by name.
    """
    from edgekit.tuning.trials import readable_value

    unit, start = document["unit"], document["start"]
    yield f"{document['clock']}: {document['note']}"
    if not document["changed"]:
        yield (
            f"The starting plan stays: {_quantity(document)} "
            f"{readable_value(start['measured'], unit)} over {counted(start['runs'], 'run')}."
        )
    else:
        yield _better(document, unit)
    if len(document["networks"]) > 1:
        yield (
            f"The original and the rewritten network were both tried; this is {_network(document)}."
        )
    bound = document["bound"]
    yield (
        f"Ended after {document['seconds']:.0f} s, {counted(len(document['trials']), 'plan')}: "
        + (document["why"] or document["status"])
        + (
            f"; no remaining plan is likely to beat {readable_value(bound['value'], unit)}."
            if bound
            else "."
        )
    )
    yield from _changes(document, verbose=verbose)
    yield from _learnt(document, verbose=verbose)
    yield from _trials(document)
    for note in document["notes"]:
        yield f"note: {sentence(note)}"
    yield f"profile  {document['files']['profile']}"
    yield f"config   {document['files']['snippet']}"


def _better(document: Mapping[str, Any], unit: str) -> str:
    """Returns by how much the winner is better: the figures are what the percentage is of."""
    from edgekit.tuning.trials import readable_value

    winner, turns = document["winner"], document["turns"] or {}
    better = f"plan {winner['number']} is better in {_quantity(document)}"
    if not (document["proven"] and turns.get("turns")):
        return (
            f"{better}: {readable_value(winner['measured'], unit)}, the starting plan "
            f"{readable_value(document['start']['measured'], unit)}; not proven: the two "
            "plans were not measured in alternation."
        )
    less = "less time per frame" if document["objective"] == "throughput" else "less"
    return (
        f"{better}: {readable_value(turns['ours'], unit)}, the starting plan "
        f"{readable_value(turns['theirs'], unit)}, medians of {turns['turns']} "
        f"alternating measurements; {100 * turns['fraction']:.1f} % {less} (95 %: "
        f"{100 * turns['low']:.1f} % to {100 * turns['high']:.1f} %)."
    )


def _quantity(document: Mapping[str, Any]) -> str:
    return _QUANTITIES[document["objective"]]


def _network(document: Mapping[str, Any]) -> str:
    return "the rewritten one" if document["network"] == "rewritten" else "the original one"


def _changes(document: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    for one in document["changes"]:
        names = one["layers"] if verbose else one["layers"][:_NAMES]
        left = len(one["layers"]) - len(names)
        listed = ", ".join(names) + (f" and {left} more" if left else "")
        yield f"  {one['from']} -> {one['to']}: {listed}: {one['why']}"


def _learnt(document: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    from edgekit.reports.text import significant
    from edgekit.tuning.trials import readable_value

    learnt = document["learnt"]
    if not learnt["by_kind"]:
        return
    yield (
        "Predicted times for the board and learned times (with one standard "
        "deviation), by device and kind of layer:"
    )
    rows = sorted(learnt["by_kind"], key=lambda row: -row["learnt_us"])
    for row in rows if verbose else rows[:_KINDS]:
        yield (
            f"  {row['device']:<4} {row['kind']:<16} {counted(row['layers'], 'layer'):>12} "
            f"{readable_value(row['predicted_us']):>9} {readable_value(row['learnt_us']):>9} "
            f"+/- {readable_value(row['learnt_sd_us']):<9} x {significant(row['factor'])}"
            + (
                ""
                if row["measured_us"] is None
                else f"; measured {readable_value(row['measured_us'])}"
            )
        )
    for row in learnt["worst"][:3]:
        names = ", ".join(row["layers"][:_NAMES]) + (", ..." if len(row["layers"]) > _NAMES else "")
        yield (
            f"  largest error: {names} on the {row['device']}: predicted "
            f"{readable_value(row['predicted_us'])}, measured "
            f"{readable_value(row['measured_us'])}"
        )


def _trials(document: Mapping[str, Any]) -> Iterator[str]:
    from edgekit.tuning.trials import readable_value

    unit = document["unit"]
    yield f"Plans tried, with measured {_quantity(document)}:"
    for one in document["trials"]:
        value = "" if one["measured"] is None else f"{readable_value(one['measured'], unit)}, "
        what = (
            f"{counted(one['layers_on_dla'], 'layer')} on the DLA in "
            f"{counted(one['loadables'], 'loadable')}"
        )
        of = f" ({one['network']})" if one["network"] and len(document["networks"]) > 1 else ""
        state = "" if one["status"] == "measured" else f"; {one['status']}: {one['reason']}"
        yield f"  plan {one['number']:<3} {value}{what}{of}; {one['why']}{state}"
