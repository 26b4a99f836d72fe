"""The check of whatever the user names: an ONNX file directly, everything else through its
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import ConfigError, EdgekitError, Problem, UsageError
from edgekit.files import write_json
from edgekit.network.part import ModelPart
from edgekit.network.source import has_torch_ending, is_builtin, is_config_file, is_factory
from edgekit.parsing.nvidia import wheels
from edgekit.placement.check import CheckResult, check_model
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import document

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.placement.check_document import Check
    from edgekit.placement.checks_document import Checks


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_path(value: object) -> bool:
    return isinstance(value, str | Path)


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _are_shapes(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and isinstance(sizes, list | tuple)
        and all(type(size) is int for size in sizes)
        for name, sizes in value.items()
    )


def _is_batch(value: object) -> bool:
    return type(value) is int and value > 0


# options that a check of an ONNX file takes, and their forms; with any other one a configuration
# is made, which says what is wrong with it
_PLAIN = dict.fromkeys(("target", "precision", "tensorrt", "power_mode"), _is_text)
_PLAIN["target"] = _is_path
_PLAIN["parser"] = _is_flag
_INNER: dict[str, dict[str, Callable[[Any], bool]]] = {
    "model": {
        "shapes": _are_shapes,
        "outputs": _are_texts,
        "batch": _is_batch,
        "plugins": _are_texts,
    },
    "calibration": {"cache": _is_path},
}


@document(frozen=True)
class CheckedModels:
    """Checks of several models.

    Attributes:
        results: Of the models that could be checked.
        failures: Errors of the others, and the limits that models miss.
    """

    results: tuple[CheckResult, ...]
    failures: tuple[EdgekitError, ...]

    @property
    def document(self) -> Checks:
        """The ``edgekit.checks/1``."""
        from edgekit.placement.checks_document import Checks

        failures = tuple(error.stated() for error in self.failures)
        return Checks(tuple(one.document for one in self.results), failures)


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
        sarif: Where to write the reasons as SARIF.
        markdown: Where to write the checks as Markdown.
        options: As for :func:`check_named`.

    Raises:
        EdgekitError: No model could be checked; the first one's.
        UsageError: "output.same": a file to be written is a model.
    """
    if sarif is not None or markdown is not None:
        from edgekit.pipeline.outputs import may_write

        may_write(
            {"the model": Path(models[0])} | {f"the model {one}": Path(one) for one in models[1:]},
            {"SARIF": sarif, "Markdown": markdown},
        )
    results: list[CheckResult] = []
    failures: list[EdgekitError] = []
    for model in models:
        try:
            results.append(check_named(model, **options))
        except EdgekitError as error:
            failures.append(error)
            if len(models) > 1 and not error.where.startswith(model):
                error.where = f"{model}: {error.where}" if error.where else model
    if not results:
        raise failures[0]
    failures += [
        error for one in results for error in one.document.failures(fail_under, max_loadables)
    ]
    checked = CheckedModels(tuple(results), tuple(failures))
    if sarif is not None:
        from edgekit.reports.sarif import sarif as sarif_of

        write_json(sarif, sarif_of([one.document for one in results]))
    if markdown is not None:
        from edgekit.reports.markdown import write_markdown

        write_markdown(checked.document, markdown)
    return checked


def check_source(
    source: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Check:
    """Checks what :func:`check_named` does, or a PyTorch network with an example of its inputs.

    Args:
        source: As for ``check_named``, or as for ``export``.
        args: The example's positional arguments.
        kwargs: The example's keyword arguments.
        options: As for ``check_named``.

    Raises:
        EdgekitError: As of ``check_named`` and ``export``.
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
    jetpack: str | None = None,
    on_note: Callable[[str], object] = str,
    **options: Any,
) -> CheckResult:
    """Checks an ONNX file, "builtin:NAME", a YAML file or a configuration.

    Args:
        config: What the user named.
        jetpack: A JetPack release, whose TensorRT's rules hold.
        on_note: Called with a line of text when the work on something begins.
        options: The configuration's keys; None means not given.

    Raises:
        ConfigError: What the file or the options say is wrong.
        UsageError: An unknown board, mode or release, a model without a board, or both
            ``jetpack`` and ``tensorrt``.
    """
    if jetpack is not None and options.get("tensorrt") is not None:
        raise UsageError("give a JetPack or a TensorRT release, not both", code="check.release")
    if jetpack is not None and not _is_text(jetpack):
        hint = f"put it in quotes: '{jetpack}'"
        raise ConfigError(
            [Problem(f"found the number {jetpack!r} as release", "option jetpack", hint)]
        )
    if options.get("target") is not None and _is_file(config) and _is_plain(**options):
        return _file(str(config), jetpack, on_note, **options)
    from edgekit.config.loader import open_config
    from edgekit.pipeline.pipeline import Pipeline

    on_note("reading the configuration and its model")
    opened = open_config(config, **options)
    if jetpack is not None:
        from edgekit.targets.jetpack import tensorrt_of_jetpack

        release = tensorrt_of_jetpack(opened.file.target, jetpack)
        opened = open_config(opened, tensorrt=release)
    with Pipeline(opened) as pipeline:
        return pipeline.check_result(on_note)


def _is_file(config: object) -> bool:
    if not isinstance(config, str | Path):
        return False
    if is_builtin(str(config)) or is_factory(str(config)):
        return False
    # PyTorch's files are exported, by the configuration's way
    return not is_config_file(config) and not has_torch_ending(Path(config))


def _is_plain(**options: Any) -> bool:
    for key, value in options.items():
        section = vars(value) if isinstance(value, ModelPart) else value
        if key in _INNER and isinstance(section, Mapping):
            if not all(given is None or _fits(inner, given, _INNER[key])
                       for inner, given in section.items()):  # fmt: skip
                return False
        elif value is not None and not _fits(key, value, _PLAIN):
            return False
    return True


def _fits(key: str, value: object, forms: Mapping[str, Callable[[Any], bool]]) -> bool:
    return key in forms and forms[key](value)


def _file(
    path: str,
    jetpack: str | None,
    on_note: Callable[[str], object],
    *,
    target: str | Path,
    precision: str | None = None,
    tensorrt: str | None = None,
    power_mode: str | None = None,
    parser: bool | None = None,
    model: ModelPart | Mapping[str, Any] | None = None,
    calibration: Mapping[str, str | Path | None] | None = None,
) -> CheckResult:
    if parser:
        wheels()  # missing ones are said before any work
    board = get(str(target))
    if jetpack is not None:
        from edgekit.targets.jetpack import tensorrt_of_jetpack

        tensorrt = tensorrt_of_jetpack(board, jetpack)
    part = model if isinstance(model, ModelPart) else ModelPart(**(model or {}))
    return check_model(
        path,
        target=board,
        precision=precision or "int8",
        tensorrt=tensorrt,
        power_mode=power_mode,
        shapes=part.shapes,
        batch=part.batch,
        outputs=part.outputs,
        plugins=part.plugins or (),
        scales=(calibration or {}).get("cache"),
        parser=parser or False,
        lowers=True,
        on_note=on_note,
    )
