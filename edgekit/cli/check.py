"""Commands about DLA support, without a board: ``check`` of models, ``explain`` of a rule and
``explain-log`` of a build log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit import api
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

if TYPE_CHECKING:
    from edgekit.api import Check, CheckResult, ComparedCheck, LayerCheck, SparsityCheck
    from edgekit.removed import FormerDict


def _refuse_nan(
    _context: click.Context, _option: click.Parameter, value: float | None
) -> float | None:
    if value is not None and math.isnan(value):  # nan passes every range check
        raise click.BadParameter("nan is not a percentage")
    return value


@commands.command(
    "check",
    "edgekit check model.onnx --target jetson-agx-orin-64gb\n"
    "edgekit check model.onnx -t jetson-agx-xavier --precision fp16 --fail-under 90\n"
    "edgekit check model.onnx -t jetson-agx-orin-64gb --layer /fc/Gemm\n"
    "edgekit check model.onnx -t jetson-agx-orin-64gb --shape x:1x3x320..1280x320..1280\n"
    "edgekit check a.onnx b.onnx -t jetson-agx-orin-64gb --sarif edgekit.sarif",
)
@argument(
    "models",
    "ONNX files, PyTorch files or package.module:factory, builtin:NAME, or YAML configurations.",
    nargs=-1,
    required=True,
    metavar="MODEL...",
    shell_complete=completion.models,
)
@o.target
@o.precision
@o.tensorrt
@click.option("--jetpack", help="JetPack release, e.g. 6.2, instead of a TensorRT release.")
@click.option("--power-mode", help="Power mode to predict for, by NVIDIA's name, e.g. MAXN, 30W.")
@click.option(
    "--cache", type=o.FILE, help="Calibration cache; only tensors with a scale can be INT8."
)
@o.cut_or_torch
@o.leave
@o.parser
@click.option("--by-layer", is_flag=True, help="Show one line per layer.")
@click.option(
    "--by-module",
    is_flag=True,
    help="Show the tree of PyTorch modules, opened where layers differ.",
)
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
    callback=_refuse_nan,
    help="Exit with code 1 below this percentage of MACs on the DLA.",
)
@click.option(
    "--max-loadables",
    type=click.IntRange(min=0),
    help="Exit with code 1 above this number of loadables.",
)
@click.option("--sarif", type=o.FILE, metavar="FILE", help="Also write the reasons as SARIF 2.1.0.")
@o.output_options
@o.markdown
def check_command(
    models: tuple[str, ...],
    by_layer: bool,
    by_module: bool,
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
    shown = {
        "--by-layer": by_layer,
        "--by-module": by_module,
        "--layer": layer is not None,
        "--sparsity": sparsity,
        "--compare-log": compare_log is not None,
    }
    given = [name for name, value in shown.items() if value]
    if len(given) > 1:
        raise UsageError(
            "--by-layer, --by-module, --layer, --sparsity and --compare-log cannot be combined",
            hint="give one",
        )
    if given and len(models) > 1:
        raise UsageError(f"{given[0]} takes one model", hint="check them one by one")
    rows = "layers" if by_layer else "modules" if by_module else ""
    file = None if markdown in (None, "-") else Path(markdown)
    cache = options["cache"]
    with Heartbeat("check", quiet=quiet) as beat:
        checked = api.check_models(
            models,
            fail_under=fail_under,
            max_loadables=max_loadables,
            sarif=sarif,
            markdown=file,
            jetpack=options["jetpack"],
            target=options["target"],
            precision=options["precision"],
            tensorrt=options["tensorrt"],
            power_mode=options["power_mode"],
            model=options["part"],
            # absolute: a path in a configuration is relative to its file, an option to the current
            # folder
            calibration={"cache": None if cache is None else str(cache.absolute())},
            parser=options["parser"],
            on_note=beat,
        )
        beat("writing the answer")
        document, page = _answer(checked.results[0], layer, sparsity, compare_log, rows, verbose)
    if markdown == "-":
        o.write_markdown(checked.document, markdown)
    if json:
        print_json(checked.document if len(models) > 1 else document)
    elif markdown == "-":
        pass
    elif len(models) > 1:
        for result in checked.results:
            say(result.document.model)
            say_page(_check_page(result.document))
    else:
        say_page(page())
    if checked.failures:
        raise mark_printed(_one_failure(checked.failures, len(models), json))


def _answer(
    result: CheckResult,
    layer: str | None,
    sparsity: bool,
    log: Path | None,
    rows: str,
    verbose: bool,
) -> tuple[FormerDict, Callable[[], str]]:
    """Returns the document, and a function that makes its text."""
    if layer is not None:
        facts = result.layer(layer)
        return facts, partial(_layer_page, facts)
    if sparsity:
        sparse = result.sparsity()
        return sparse, partial(_sparsity_page, sparse)
    if log is not None:
        compared = result.compare(log)
        return compared, partial(_comparison_page, compared, verbose)
    if rows == "modules" and not result.document.modules:
        raise o.no_modules(result.document.model)
    return result.document, partial(_check_page, result.document, rows)


def _check_page(check: Check, rows: str = "") -> str:
    from edgekit.reports.terminal.check import check_layers, check_modules, summary_check

    width, colour = terminal_format()
    if rows == "layers":
        return check_layers(check, width=width, colour=colour)
    if rows == "modules":
        return check_modules(check, width=width, colour=colour)
    return summary_check(check, width=min(width or 80, 80), colour=colour)


def _layer_page(facts: LayerCheck) -> str:
    from edgekit.reports.terminal.check import check_one_layer

    width, colour = terminal_format()
    return check_one_layer(facts, width=width or 80, colour=colour)


def _sparsity_page(sparse: SparsityCheck) -> str:
    from edgekit.reports.terminal.check import sparsity_text

    width, colour = terminal_format()
    return sparsity_text(sparse, width=width, colour=colour)


def _comparison_page(compared: ComparedCheck, verbose: bool) -> str:
    from edgekit.reports.terminal.buildlog import render_comparison

    assert compared.compare is not None
    return render_comparison(compared.compare, verbose=verbose)


def _failure_words(failures: Sequence[EdgekitError]) -> str:
    if any(not isinstance(failure, GateError) for failure in failures):
        return "cannot be checked or fail the check"
    parsed = all(failure.code != "model.parse" for failure in failures)
    return "miss the limits" if parsed else "cannot be parsed or miss the limits"


def _one_failure(failures: Sequence[EdgekitError], models: int, json: bool) -> EdgekitError:
    """Returns the error to raise: the first failure, or, for several models, a list of all."""
    error = failures[0]
    if models > 1:
        # an error without an answer comes first and determines the exit status
        error = EdgekitError(
            f"{len({failure.where for failure in failures})} of {models} models "
            f"{_failure_words(failures)}",
            code=failures[0].code,
            hint=failures[0].hint,
        )
        error.exit_code = failures[0].exit_code
        error.details = tuple(f"{failure.where}: {failure.message}" for failure in failures)
    if not json and error.code != "model.parse":
        error.hint = ""  # the hint would refer to output that has been printed
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
    found = api.explain(rule)
    if json:
        print_json(found)
        return
    from edgekit.reports.terminal.rule import rule_text

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
@o.output_options
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
    if model is None and (idle := [f"--{key}" for key, value in options.items() if value]):
        needs = "needs" if len(idle) == 1 else "need"
        raise UsageError(
            f"{' and '.join(idle)} {needs} --model: without one the log alone is explained"
        )
    name = "standard input" if log == "-" else log
    with _log_file(log) as path, Heartbeat("explain-log", quiet=quiet) as beat:
        found = api.explain_log(path, name=name, model=model, on_note=beat, **options)
    if markdown is not None:
        o.write_markdown(found, markdown)
    if json:
        print_json(found)
    elif markdown != "-":
        from edgekit.reports.terminal.buildlog import render_comparison
        from edgekit.reports.terminal.log_explanation import log_text

        width, colour = terminal_format()
        say_page(log_text(found, verbose=verbose, width=min(width or 80, 80), colour=colour))
        if found.compare is not None:
            say_page(f"\n{render_comparison(found.compare, verbose=verbose)}")


@contextmanager
def _log_file(log: str) -> Iterator[Path]:
    """Yields a file that can be read repeatedly; standard input is copied to a temporary file."""
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
