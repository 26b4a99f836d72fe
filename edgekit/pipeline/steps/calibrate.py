"""The calibration inputs, their measured ranges, the results of these for the network, and the INT8
scales that a method computes from ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.dla.precision import plan_lowering
from edgekit.errors import UsageError
from edgekit.network.source import is_function
from edgekit.network.synthetic import synthetic_description, synthetic_inputs
from edgekit.pipeline.cache import file_stamps, json_digest, path_identity
from edgekit.pipeline.context import Context, MeasuredRanges, computed
from edgekit.pipeline.steps.load import (
    fp16_layers,
    given_scales,
    load_head,
    module_folders,
    needs_qdq_nodes,
    source,
    user_plugins,
)
from edgekit.pipeline.steps.memory import announce_memory
from edgekit.pipeline.steps.rewrite import judgement, model, model_digest, network, rewritten_model
from edgekit.quantize.data.images import IMAGE_OPTIONS, ImageOptions
from edgekit.quantize.data.lists import images_at, is_list
from edgekit.quantize.data.preparation import HeadPictures, describe_preprocessing, head_pictures
from edgekit.quantize.data.rows import CalibrationSamples
from edgekit.quantize.given_scales import ScaleBinding, scale_binding
from edgekit.quantize.missing_scales import find_missing_scales, with_same_values
from edgekit.quantize.scales import Ranges, Scales
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.config.schema import CalibrationSection
    from edgekit.network.model import Model
    from edgekit.quantize.data.images import Preprocess


# keys of the configuration's section that do not change the inputs
_OTHERS = {"method", "cache", "missing", "fp16_layers"}
# keys for the preparation of images
_IMAGE_KEYS = IMAGE_OPTIONS - {"skip_broken"}


def calibration_inputs(context: Context) -> Iterable[Mapping[str, np.ndarray]]:
    """Returns the calibration inputs: the user's, or synthetic seeded inputs."""
    section = context.file.calibration
    if section.data is None:
        return _Repeat(
            section.count, lambda: synthetic_inputs(model(context), section.count, section.seed)
        )
    return _load_samples(context, section.count)


def first_input(context: Context) -> dict[str, np.ndarray]:
    """Returns the first calibration input."""
    return dict(next(iter(calibration_inputs(context))))


def _load_samples(
    context: Context, count: int, skip: int = 0, of: Model | None = None
) -> CalibrationSamples:
    from edgekit.quantize.data.load import load_data

    section = image_section(context)
    data: str | None = section.data
    if data is not None and not _from_function(context):
        data = str(context.config.resolve(data))
    options = section.model_dump(exclude={*_OTHERS, "seed"})
    return load_data(
        {**options, "data": data, "count": count},
        of or model(context),
        folders=module_folders(context),
        skip=skip,
    )


def usual_pictures(context: Context) -> HeadPictures | None:
    """Returns the usual preparation for the head; None without a head, or if the configuration has
    options of images.
    """
    options = context.file.calibration.model_fields_set
    head = None if _IMAGE_KEYS.intersection(options) else load_head(context)
    return None if head is None else head_pictures(head)


def image_section(context: Context) -> CalibrationSection:
    """Returns the preparation of images: the configuration's, or that of ``usual_pictures``.

    Other keys are the configuration's.
    """
    usual, section = usual_pictures(context), context.file.calibration
    return section if usual is None else section.model_copy(update=usual.keys)


def picture_preparation(
    context: Context, specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]], where: Path
) -> tuple[str, Preprocess]:
    """Returns the input that takes pictures, and their preparation: as for calibration.

    Args:
        context: The configuration.
        specs: NumPy type and shape by input.
        where: The pictures, for errors.

    Raises:
        DataError: As raised by ``choose_preprocess``.
    """
    from edgekit.quantize.data.load import choose_preprocess

    given = image_section(context).model_dump(include=set(IMAGE_OPTIONS))
    return choose_preprocess(specs, ImageOptions(**given), where)


def check_data(context: Context) -> None:
    """Refuses missing calibration data; the model is not needed for it.

    Raises:
        DataError: As raised by ``load_data``.
    """
    section = context.file.calibration
    if section.data is None:
        return
    if _from_function(context):
        from edgekit.quantize.data.functions import data_file

        data_file(section.data, module_folders(context))
    else:
        from edgekit.quantize.data.load import check_path

        check_path(context.config.resolve(section.data))


def check_data_fits(context: Context) -> None:
    """Refuses calibration data that do not fit the model; the rewrites keep its inputs.

    Raises:
        DataError: As raised by ``load_data``.
    """
    if context.file.calibration.data is not None:
        _load_samples(context, context.file.calibration.count, of=source(context))


def later_inputs(context: Context, most: int) -> Iterable[Mapping[str, np.ndarray]]:
    """Returns inputs of the same kind that come after those of the calibration.

    There are fewer than ``most``, or none, if the data have no more, or if the calibration's own
    inputs would then be others (``pick: spread``).
    """
    section = context.file.calibration
    if section.data is None:
        return synthetic_inputs(model(context), most, section.seed, first=section.count)
    # spread inputs are chosen over all data: a larger number changes the whole choice
    if section.pick == "spread":
        return ()
    # samples are rows of a batch
    rows = _load_samples(context, 1).batch
    return _load_samples(context, section.count + most * rows, skip=section.count)


def inputs_text(context: Context, *, name: str | None = None) -> str:
    """Describes the calibration inputs for people.

    Args:
        context: The configuration.
        name: Name of the user's data; None for the user's own name.
    """
    section, read = context.file.calibration, context.session.read
    if section.data is None:
        return synthetic_description(section.count, section.seed)
    number = counted(section.count if read is None else read, "input")
    return f"{'at most ' if read is None else ''}{number} of {name or section.data}"


def data_name(context: Context) -> str | None:
    """Returns the name of the user's calibration data, without folders; None without data."""
    data: str | None = context.file.calibration.data
    return data if data is None or _from_function(context) else Path(data).name


def inputs_identity(context: Context) -> list[Any]:
    """Returns the identity of the calibration inputs, including plugins that process them.

    For a Python function this is its module's file: the data that the function reads are not seen.
    """
    functions = [plugin.function for plugin in user_plugins(context) if plugin.function is not None]
    run = [[function.spec, path_identity(function.file)] for function in functions]
    if run:
        context.note(
            "changes of a plugin's function are detected only in its module's file; if other files "
            "that it reads change, run again with --force"
        )
    return [*_data_identity(context), *([run] if run else [])]


@computed("calibration", load_head)
def _data_identity(context: Context) -> list[Any]:
    section = image_section(context)
    settings = section.model_dump(exclude=_OTHERS)
    if section.data is None:
        return [settings]
    if not _from_function(context):
        path = context.config.resolve(section.data)
        if not is_list(path):
            return [settings, path_identity(path)]
        images = images_at(path)
        # a list may name images anywhere: each counts by its size and time
        return [settings, list(map(str, images)), file_stamps(images)]
    from edgekit.quantize.data.functions import data_file

    context.note(
        f"changes are detected only in the module file of {section.data}; if other "
        "files that it reads change, measure again with --force"
    )
    return [settings, path_identity(data_file(section.data, module_folders(context)))]


def _from_function(context: Context) -> bool:
    """Returns True if the inputs come from a function of the user's."""
    return is_function(context.file.calibration.data or "")


def check_finite_weights(context: Context) -> None:
    """Refuses weights with NaN or infinities; a model's weights are read once for it.

    Raises:
        ModelError: "model.nonfinite".
    """
    came, cache = source(context), context.cache
    key = cache.key("weights", came.digest)
    if context.force or cache.get("weights", key) is None:
        from edgekit.quantize.calibration.checks import check_weights

        check_weights(came)
        cache.put("weights", key, "finite")


@computed(rewritten_model)
def ranges(context: Context) -> Ranges:
    """Returns the measured ranges of all methods; they depend on network and data alone."""
    from edgekit.quantize.calibration.checks import check_samples
    from edgekit.quantize.calibration.measure import measure

    identity = model_digest(context), inputs_identity(context)
    # under the inputs' identity: changed data never continue an interrupted measurement
    state = context.cache.folder / "measuring" / f"{context.cache.key('measuring', *identity)}.npz"

    def compute() -> Ranges:
        interrupted = state.exists()
        runs = report_inference(context, "ranges")

        def progress(done: int, total: int) -> None:
            nonlocal interrupted
            # a fresh measurement reports input 1 first
            if interrupted and done > 1:
                context.announce(f"continues at input {done}, where calibration was interrupted")
            interrupted = False
            runs(done, total)

        announce_memory(context, model(context), holds=True)
        section, inputs = image_section(context), calibration_inputs(context)
        if section.data is not None:
            # damaged samples are refused before the first of them is run
            check_samples(_load_samples(context, section.count), where=section.data)
        images = isinstance(inputs, CalibrationSamples) and inputs.images
        options = ImageOptions(**section.model_dump(include=set(IMAGE_OPTIONS)))
        context.note(
            describe_preprocessing(
                source(context),
                options,
                "images" if images else "synthetic" if section.data is None else "arrays",
                hint=usual_pictures(context) is None,
            )
        )
        try:
            return measure(
                model(context),
                inputs,
                network=network(context),
                describe=inputs_text(context),
                progress=progress,
                resume=state,
            )
        except KeyboardInterrupt:
            if state.exists():
                context.announce("finished inputs are kept; run the same command to continue")
            raise

    found = context.stored(Ranges, "calibrate", compute, *identity)
    context.session.read = found.samples
    # the data's name is no part of the key: equal data may have another path now
    return replace(found, data=inputs_text(context))


def measures_ranges(context: Context) -> bool:
    """Returns True if scales come from measured ranges."""
    return context.file.precision == "int8" and given_scales(context) is None


@computed()
def with_measured_ranges(context: Context) -> Context:
    """Returns the context with the measured ranges of the network, for every method.

    If no scale suits a tensor, or tensors of much different range would share a scale, the layers
    that need it are judged in FP16. Without measured ranges it is the same context.
    """
    if context.measured is not None or not measures_ranges(context):
        return context
    if context.file.model.leave:
        raise UsageError(
            "scales are measured of a whole network, and modules are left out of this one",
            code="calibrate.left",
            where="model.leave",
            hint="give no leave: the scales of the tensors around a left-out module are the same; "
            "edgekit.compile(..., calibration=...) measures the parts around it",
        )
    check_finite_weights(context)
    found = ranges(context)
    # a mask's filler, such as -1e4, is far below all other values: no scale suits both
    amax = tuple(
        {name: value for name, value in each.items() if name not in found.masked}
        for each in found.amax.values()
    )
    context = replace(context, measured=MeasuredRanges(amax))
    scales = compute_scales(context, found, "minmax")
    if not scales.missing:
        return context
    net = network(context)
    without = with_same_values(net, scales.missing, scales.scales)
    able = constrained_scales(context)["dla_layers"]
    lacks = find_missing_scales(net, scales.scales, on_dla=able, without=without).lacks
    return replace(context, measured=MeasuredRanges(amax, frozenset(lack.tensor for lack in lacks)))


def compute_scales(
    context: Context, found: Ranges, method: str, bound: ScaleBinding | None = None
) -> Scales:
    """Returns the scales that a method computes from measured ranges.

    On strongly typed releases they name the tensors that have Q/DQ nodes.
    """
    from edgekit.quantize.calibration.calibrate import scales_from

    bound = bound or constrained_scales(context)
    return with_nodes(context, scales_from(network(context), found, method, **bound))


def constrained_scales(context: Context) -> ScaleBinding:
    """Returns the constraints on scales, before the accuracy gate keeps layers in FP16."""
    return scale_binding(judgement(context), fp16_layers(context, network(context), gate=False))


def with_nodes(context: Context, scales: Scales) -> Scales:
    """Returns scales that name the tensors with Q/DQ nodes, if the release has such nodes."""
    if scales.quantised is not None or not needs_qdq_nodes(context):
        return scales
    net = network(context)
    quantised = frozenset(plan_lowering(net, scales.scales, fp16_layers(context, net)).tensors)
    digest = json_digest([scales.digest, sorted(quantised)])
    return replace(scales, quantised=quantised, digest=digest)


class _Repeat:
    """A sized iterable that restarts each time it is iterated."""

    def __init__(self, count: int, begin: Callable[[], Any]) -> None:
        self._count = count
        self._begin = begin

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        return iter(self._begin())


def report_inference(context: Context, what: str) -> Callable[[int, int], None]:
    """Returns the progress callback of ``measure``: runs for exact counts have another name."""
    first: list[int] = []

    def report(done: int, total: int) -> None:
        first[:] = first or [total]
        if total == first[0]:
            of = f" of {total}" if total else ""
            context.update(done, total, f"{what}, input {done}{of}")
        else:  # the same number again
            count = total // 2
            context.update(
                done - count,
                count,
                f"exact counts for the {what}, input {done - count} of {count}",
            )

    return report
