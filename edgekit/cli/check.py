"""What runs on a DLA and why not, without a board: ``check`` of models, ``explain`` of a rule and
``explain-log`` of a build log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import commands, completion
from edgekit.cli import options as o
from edgekit.cli.commands import argument
from edgekit.cli.output import (
    Heartbeat,
    mark_printed,
    print_json,
    say,
    say_page,
    terminal_format,
)
from edgekit.errors import EdgekitError, GateError, UsageError
from edgekit.text import percent

if TYPE_CHECKING:
    from edgekit.pipeline.steps.check import CheckResult


def _number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):  # which is in every range
        raise click.BadParameter("nan is not a percentage")
    return value


@commands.command(
    "check",
    "edgekit check model.onnx --target jetson-agx-orin-64gb\n"
    "edgekit check model.onnx -t jetson-agx-xavier --precision fp16 --fail-under 90\n"
    "edgekit check model.onnx -t jetson-agx-orin-64gb --layer /fc/Gemm\n"
    "edgekit check a.onnx b.onnx -t jetson-agx-orin-64gb --sarif edgekit.sarif",
)
@argument(
    "models",
    "ONNX files, builtin:NAME or YAML configurations.",
    nargs=-1,
    required=True,
    metavar="MODEL...",
)
@o.target
@o.precision
@o.tensorrt
@click.option("--jetpack", help="JetPack release, e.g. 6.2, instead of a TensorRT release.")
@click.option("--power-mode", help="Power mode to predict for, by NVIDIA's name, e.g. MAXN, 30W.")
@click.option(
    "--cache", type=o.FILE, help="Calibration cache; only tensors with a scale can be INT8."
)
@o.cut
@o.parser
@click.option("--by-layer", is_flag=True, help="Show one line per layer.")
@click.option("--layer", metavar="NAME", help="Show all details of a layer, ONNX node or loadable.")
@click.option(
    "--sparsity", is_flag=True, help="Show 2:4 sparsity of each convolution; reads the weights."
)
@click.option(
    "--compare-log", type=o.FILE, help="Compare the verdicts with a TensorRT or trtexec build log."
)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    callback=_number,
    help="Exit with code 1 below this percentage of MACs on the DLA.",
)
@click.option(
    "--max-loadables",
    type=click.IntRange(min=0),
    help="Exit with code 1 above this number of loadables.",
)
@click.option("--sarif", type=o.FILE, metavar="FILE", help="Also write the reasons as SARIF 2.1.0.")
@o.talk
@o.markdown
def check_command(
    models: tuple[str, ...],
    by_layer: bool,
    layer: str | None,
    sparsity: bool,
    compare_log: Path | None,
    fail_under: float | None,
    max_loadables: int | None,
    sarif: Path | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    markdown: str | None,
    **options: Any,
) -> None:
    shown = {"--by-layer": by_layer, "--layer": layer is not None, "--sparsity": sparsity,
             "--compare-log": compare_log is not None}  # fmt: skip
    given = [name for name, value in shown.items() if value]
    if len(given) > 1:
        raise UsageError(
            "--by-layer, --layer, --sparsity and --compare-log cannot be combined",
            hint="give one",
        )
    if given and len(models) > 1:
        raise UsageError(f"{given[0]} takes one model", hint="check them one by one")
    if sarif is not None or markdown is not None:
        from edgekit.pipeline.outputs import may_write

        may_write(
            {"the model": Path(models[0])} | {f"the model {one}": Path(one) for one in models[1:]},
            {"SARIF": sarif, "Markdown": None if markdown in (None, "-") else Path(markdown)},
        )
    with Heartbeat("check", quiet=quiet) as beat:
        results, unread = _all_checked(models, options, beat)
        beat("writing the answer")
        document = _check_request(results[0], layer, sparsity, compare_log)
    checks = [result.document for result in results]
    failures: list[EdgekitError] = [*unread]
    failures += [error for one in results for error in _failures(one, fail_under, max_loadables)]
    if sarif is not None:
        from edgekit.benchmark.document import write_json
        from edgekit.reports.sarif import sarif as sarif_of

        write_json(sarif, sarif_of(checks))
    together = {"schema": "edgekit.checks/1", "checks": checks,
                "failures": [error.to_json()["error"] for error in failures]}  # fmt: skip
    if markdown is not None:
        o.write_markdown(together, markdown)
    if json:
        _print_json(together if len(models) > 1 else document, checks[0])
    elif markdown != "-":
        for one in checks if len(models) > 1 else [document]:
            if len(models) > 1:
                say(one["model"])
            say_page(_check_text(one, by_layer, verbose))
    if failures:
        raise mark_printed(_one_failure(failures, len(models), json))


def _all_checked(
    models: Sequence[str], options: Mapping[str, Any], beat: Heartbeat
) -> tuple[list[CheckResult], list[EdgekitError]]:
    """Returns the checks, and the errors of the models that have none, each naming its model.

    Raises:
        EdgekitError: No model could be checked.
    """
    results, errors = [], []
    for model in models:
        try:
            results.append(_checked(model, options, beat))
        except EdgekitError as error:
            errors.append(error)
            if len(models) > 1 and not error.where.startswith(model):
                error.where = f"{model}: {error.where}" if error.where else model
    if not results:
        raise errors[0]
    return results, errors


def _checked(model: str, options: Mapping[str, Any], beat: Heartbeat) -> CheckResult:
    from edgekit.collector import collector_held

    with collector_held():  # the modules make many objects too
        from edgekit.pipeline.named_check import check_named

    cache = options["cache"]
    return check_named(
        model,
        jetpack=options["jetpack"],
        target=options["target"],
        precision=options["precision"],
        tensorrt=options["tensorrt"],
        power_mode=options["power_mode"],
        model=options["part"],
        calibration={"cache": None if cache is None else str(cache.absolute())},
        parser=options["parser"],
        on_note=beat,
    )


def _print_json(document: Any, check: Mapping[str, Any]) -> None:
    """Prints a document; a comparison with a log is a part of the check's."""
    if isinstance(document, dict):
        print_json(document)
    else:
        print_json({**check, "compare": document.to_json()})


def _check_request(result: CheckResult, layer: str | None, sparsity: bool, log: Path | None) -> Any:
    """Returns the document to print, or the comparison with a log."""
    if layer is not None:
        from edgekit.pipeline.steps.check import layer_document

        return layer_document(result, layer)
    if sparsity:
        from edgekit.pipeline.steps.check import sparsity_document

        return sparsity_document(result)
    if log is not None:
        from edgekit.buildlog.comparison import compare
        from edgekit.buildlog.reading import read_log

        return compare(result.network, result.judgement, read_log(log), target=result.target)
    return result.document


def _check_text(document: Any, by_layer: bool, verbose: bool) -> str:
    from edgekit.reports.terminal.buildlog import render_comparison
    from edgekit.reports.terminal.check import (
        check_layers,
        check_one_layer,
        sparsity_text,
        summary_check,
    )

    width, colour = terminal_format()
    if not isinstance(document, dict):
        return render_comparison(document, verbose=verbose)
    if document["schema"].startswith("edgekit.layer/"):
        return check_one_layer(document, width=width or 80, colour=colour)
    if document["schema"].startswith("edgekit.sparsity/"):
        return sparsity_text(document, width=width, colour=colour)
    if by_layer:
        return check_layers(document, width=width, colour=colour)
    return summary_check(document, width=min(width or 80, 80), colour=colour)


def _failures(
    result: CheckResult, fail_under: float | None, max_loadables: int | None
) -> list[GateError]:
    document = result.document
    if not result.parse.ok:  # nothing is placed that a limit could be about
        from edgekit.pipeline.steps.parse import refusal

        error = refusal(result.parse)
        error.where = document["model"]
        return [error]
    found = []
    share = document["summary"]["dla_macs_fraction"]
    if fail_under is not None and 100 * share < fail_under:
        known = "known " if document.get("unknown_cost") else ""
        # as the verdict above says it, with the digits that it takes to be below the limit
        digits = next((n for n in range(1, 6) if round(100 * share, n) < fail_under), 6)
        found.append(
            GateError(
                f"{percent(share, digits)} of the {known}MACs would run on the DLA, below the "
                f"limit of {fail_under:g} %",
                code="check.below-threshold",
                where=document["model"],
                hint="run check without --json to see why the rest cannot, and which fixes help",
            )
        )
    count = document["loadables"]
    if max_loadables is not None and count > max_loadables:
        found.append(
            GateError(
                f"{count} loadable{'' if count == 1 else 's'}, above the limit of {max_loadables}",
                code="check.too-many-loadables",
                where=document["model"],
                hint="run check without --json to see which layers split the network",
            )
        )
    return found


def _fail(failures: Sequence[EdgekitError]) -> str:
    if any(not isinstance(one, GateError) for one in failures):
        return "cannot be checked or fail the check"
    parsed = all(one.code != "model.parse" for one in failures)
    return "miss the limits" if parsed else "cannot be parsed or miss the limits"


def _one_failure(failures: Sequence[EdgekitError], models: int, json: bool) -> EdgekitError:
    """Returns what is raised: the first failure, or of several models one that lists them all."""
    error = failures[0]
    if models > 1:
        # an error without an answer comes first, and its exit status counts
        error = EdgekitError(
            f"{len({one.where for one in failures})} of {models} models {_fail(failures)}",
            code=failures[0].code,
            hint=failures[0].hint,
        )
        error.exit_code = failures[0].exit_code
        error.details = tuple(f"{one.where}: {one.message}" for one in failures)
    if not json:
        error.hint = ""  # what it would tell has been printed
    return error


@commands.command(
    "explain",
    "edgekit explain convolution.cbuf\nedgekit explain pooling\nedgekit explain Gather",
)
@argument(
    "rule",
    "A rule's id, as check prints it, a family of rules, or an ONNX operator.",
    shell_complete=completion.rules,
)
@o.json
@o.debug
def explain_command(rule: str, json: bool) -> None:
    from edgekit.dla.explanation import explain

    found = explain(rule)
    if json:
        kinds = {"id": "rule", "operator": "operator"}
        kind = next((kind for key, kind in kinds.items() if key in found), "family")
        schema = f"edgekit.{kind}/1"
        print_json({"schema": schema, **found})
        return
    from edgekit.reports.terminal.check import rule_text

    width, colour = terminal_format()
    say_page(rule_text(found, width=min(width or 80, 80), colour=colour))


@commands.command(
    "explain-log",
    "edgekit explain-log build.log\n"
    "edgekit explain-log build.log --markdown answer.md\n"
    "edgekit explain-log build.log --model model.onnx -t jetson-agx-orin-64gb",
)
@argument("log", "A build log of trtexec, Ultralytics, DeepStream or TensorRT; - is stdin.")
@click.option("--model", metavar="MODEL", help="Also compare with the verdicts for this model.")
@o.target
@o.precision
@o.tensorrt
@o.talk
@o.markdown
def explain_log_command(
    log: str,
    model: str | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    markdown: str | None,
    **options: Any,
) -> None:
    from edgekit.pipeline.log_explanation import explain_log

    if model is None and (idle := [f"--{key}" for key, value in options.items() if value]):
        needs = "needs" if len(idle) == 1 else "need"
        raise UsageError(
            f"{' and '.join(idle)} {needs} --model: without one the log alone is explained"
        )
    name = "standard input" if log == "-" else log
    with _log_file(log) as path, Heartbeat("explain-log", quiet=quiet) as beat:
        found = explain_log(path, name=name, model=model, on_note=beat, **options)
    document = found.document
    if markdown is not None:
        o.write_markdown(document, markdown)
    if json:
        print_json(document)
    elif markdown != "-":
        from edgekit.reports.terminal.buildlog import render_comparison
        from edgekit.reports.terminal.log_explanation import log_text

        width, colour = terminal_format()
        say_page(log_text(document, verbose=verbose, width=min(width or 80, 80), colour=colour))
        if found.comparison is not None:
            say_page(f"\n{render_comparison(found.comparison, verbose=verbose)}")


@contextmanager
def _log_file(log: str) -> Iterator[Path]:
    """A file to read more than once; what comes on standard input is kept in one for a while."""
    if log != "-":
        yield Path(log)
        return
    import shutil
    import sys
    import tempfile

    with tempfile.TemporaryDirectory(prefix="edgekit-log-") as folder:
        path = Path(folder) / "log"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield path
        except EdgekitError as error:
            if error.where == str(path):
                error.where = "standard input"
            raise
