"""The check of a named source: an ONNX file directly, everything else through its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import GenericAlias, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from edgekit.errors import ConfigError, EdgekitError, Problem, UsageError
from edgekit.files import write_json
from edgekit.network.part import ModelPart
from edgekit.network.source import has_torch_ending, is_builtin, is_config_file, is_factory
from edgekit.parsing.nvidia import module_folder
from edgekit.placement.check import CheckResult, check_model
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import document

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.placement.check_document import Check
    from edgekit.placement.checks_document import Checks


# Keys and types that a check of an ONNX file accepts without a configuration, which is slow to
# load. They do not refuse: any other key or value goes through a configuration, whose schema has
# the rules and the errors.
_DIRECT: dict[str, type | UnionType | GenericAlias] = {
    "target": str | Path,
    "precision": str,
    "tensorrt": str,
    "power_mode": str,
    "parser": bool,
    "model.shapes": Mapping[str, Sequence[int]],
    "model.batch": int,
    "model.outputs": Sequence[str],
    "model.plugins": Sequence[str],
    "calibration.cache": str | Path,
}


@document(frozen=True)
class CheckedModels:
    """Checks of several models.

    Attributes:
        results: Checks of the models that could be checked.
        failures: Errors of the others, and the limits that models miss.
    """

    results: tuple[CheckResult, ...]
    failures: tuple[EdgekitError, ...]

    @property
    def document(self) -> Checks:
        """The ``edgekit.checks/1``."""
        from edgekit.placement.checks_document import Checks

        failures = tuple(error.stated() for error in self.failures)
        return Checks(tuple(result.document for result in self.results), failures)


def check_models(
    models: Sequence[str],
    *,
    fail_under: float | None = None,
    max_loadables: int | None = None,
    sarif: Path | None = None,
    markdown: Path | None = None,
    **options: Any,
) -> CheckedModels:
    """Checks several models.

    Args:
        models: As for :func:`check_named`.
        fail_under: As for ``Check.failures``.
        max_loadables: As for ``Check.failures``.
        sarif: Output file for the reasons as SARIF.
        markdown: Output file for the checks as Markdown.
        options: As for :func:`check_named`.

    Raises:
        EdgekitError: No model could be checked; it is the first model's error.
        UsageError: No model; "output.same": a file to be written is a model.
    """
    if not models:
        raise UsageError(
            "no model is given", where="models", hint="give ONNX files, builtin:NAME or YAML files"
        )
    if sarif is not None or markdown is not None:
        from edgekit.pipeline.outputs import check_outputs

        check_outputs(
            {"the model": Path(models[0])}
            | {f"the model {name}": Path(name) for name in models[1:]},
            {"SARIF": sarif, "Markdown": markdown},
        )
    results: list[CheckResult] = []
    failures: list[EdgekitError] = []
    for model in models:
        try:
            results.append(check_named(model, **options))
        except EdgekitError as error:
            # one wrong file does not hide the checks of the others
            failures.append(error)
            # a place in the model's file, as in "model.onnx:3:1", names it already
            names_model = error.where == model or error.where.startswith(f"{model}:")
            if len(models) > 1 and not names_model:
                error.put_in(model)
    if not results:
        raise failures[0]
    failures += [
        error for result in results for error in result.document.failures(fail_under, max_loadables)
    ]
    checked = CheckedModels(tuple(results), tuple(failures))
    if sarif is not None:
        from edgekit.reports.sarif import sarif as sarif_of

        write_json(sarif, sarif_of([result.document for result in results]))
    if markdown is not None:
        from edgekit.reports.markdown import write_markdown

        write_markdown(checked.document, markdown)
    return checked


def check_source(
    source: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Check:
    """Checks a source of :func:`check_named`, or a PyTorch network with an example of its inputs.

    Args:
        source: As for ``check_named``, or as for ``export``.
        args: The example's positional arguments.
        kwargs: The example's keyword arguments.
        options: As for ``check_named``.

    Raises:
        EdgekitError: As raised by ``check_named`` and ``export``.
    """
    from edgekit.pipeline.torch_source import from_torch

    made = from_torch(source, args, kwargs, options)
    if made is None:
        return check_named(source, **options).document
    found = check_named(made.exported.file, **made.options).document
    warnings = (*made.notes, *found.warnings)
    return replace(found, model=made.exported.source, warnings=warnings)


def check_named(
    config: str | Path | Config,
    *,
    jetpack: str | float | None = None,
    on_note: Callable[[str], object] = str,
    **options: Any,
) -> CheckResult:
    """Checks an ONNX file, "builtin:NAME", a YAML file or a configuration.

    Args:
        config: The source.
        jetpack: A JetPack release, whose TensorRT's rules hold.
        on_note: Called with a line of text when a part of the work begins.
        options: The configuration's keys; None means not given.

    Raises:
        ConfigError: The file or the options are wrong.
        UsageError: An unknown board, mode or release, a model without a board, or both
            ``jetpack`` and ``tensorrt``.
    """
    if jetpack is not None and options.get("tensorrt") is not None:
        raise UsageError("give a JetPack or a TensorRT release, not both", code="check.release")
    if jetpack is not None and not isinstance(jetpack, str):
        hint = f"put it in quotes: '{jetpack}'"
        raise ConfigError(
            [Problem(f"found the number {jetpack!r} as release", "option jetpack", hint)]
        )
    given = dict(_given_options(options))
    if (
        "target" in given
        and _is_file(config)
        and all(key in _DIRECT and _has_type(value, _DIRECT[key]) for key, value in given.items())
    ):
        return _check_file(str(config), given, jetpack, on_note)
    from edgekit.config.loader import open_config
    from edgekit.pipeline.pipeline import Pipeline

    on_note("reading the configuration and its model")
    opened = open_config(config, **options)
    if jetpack is not None:
        from edgekit.targets.jetpack import tensorrt_of_jetpack

        release = tensorrt_of_jetpack(opened.file.target, jetpack)
        # the TensorRT of a JetPack depends on the board, which only the configuration knows
        opened = open_config(opened, tensorrt=release)
    with Pipeline(opened) as pipeline:
        return pipeline.check_result(on_note)


def _is_file(config: object) -> bool:
    if not isinstance(config, str | Path):
        return False
    if is_builtin(str(config)) or is_factory(str(config)):
        return False
    # PyTorch's files are exported through a configuration
    return not is_config_file(config) and not has_torch_ending(Path(config))


def _given_options(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the options that are given, "model.batch" for a key of a section."""
    for key, value in options.items():
        section = value._asdict() if isinstance(value, ModelPart) else value
        if isinstance(section, Mapping):
            yield from (
                (f"{key}.{name}", item) for name, item in section.items() if item is not None
            )
        elif value is not None:
            yield key, value


def _has_type(value: object, kind: Any) -> bool:
    """Returns True if a value is of a type as in ``_DIRECT``; whole numbers are sizes."""
    if get_origin(kind) is Mapping:
        keys, values = get_args(kind)
        return isinstance(value, Mapping) and all(
            _has_type(key, keys) and _has_type(item, values) for key, item in value.items()
        )
    if get_origin(kind) is Sequence:
        (values,) = get_args(kind)
        return isinstance(value, list | tuple) and all(_has_type(item, values) for item in value)
    if kind is int:
        # True is an int, too
        return type(value) is int and value > 0
    return isinstance(value, kind)


def _check_file(
    path: str,
    given: Mapping[str, Any],
    jetpack: str | None,
    on_note: Callable[[str], object],
) -> CheckResult:
    if given.get("parser"):
        module_folder()  # reports missing wheels before any work
    board, tensorrt = get(str(given["target"])), given.get("tensorrt")
    if jetpack is not None:
        from edgekit.targets.jetpack import tensorrt_of_jetpack

        tensorrt = tensorrt_of_jetpack(board, jetpack)
    return check_model(
        path,
        target=board,
        precision=given.get("precision", "int8"),
        tensorrt=tensorrt,
        power_mode=given.get("power_mode"),
        shapes=given.get("model.shapes"),
        batch=given.get("model.batch"),
        outputs=given.get("model.outputs"),
        plugins=given.get("model.plugins", ()),
        scales=given.get("calibration.cache"),
        parser=given.get("parser", False),
        # as through a configuration: a strongly typed release gets Q/DQ nodes
        lowers=True,
        on_note=on_note,
    )
