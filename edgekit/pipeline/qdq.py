"""Scales taken out of a Q/DQ model and put into one: the documents of `edgekit calibrate
from-qdq` and `to-qdq`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.config.loader import Config, open_config
from edgekit.dla.judge import first_qdq_release, judge, qdq_hint, reads_qdq, release_warnings
from edgekit.errors import UsageError
from edgekit.files import write_text
from edgekit.network.loading.load import load
from edgekit.network.lowering import layers as layers_module
from edgekit.network.writing import save
from edgekit.pipeline.outputs import check_config_outputs, check_outputs
from edgekit.pipeline.steps.calibrate import with_measured_ranges
from edgekit.pipeline.steps.load import fp16_layers, source, translate_qdq, user_model
from edgekit.pipeline.steps.method import scales
from edgekit.pipeline.steps.rewrite import judgement, model, network
from edgekit.placement.translation import is_typed
from edgekit.quantize.caches import make_cache, write_cache
from edgekit.quantize.calibration.checks import check_weights
from edgekit.quantize.given_scales import builder_scales, describe_widened
from edgekit.quantize.qdq.documents import LoweredCheck, LoweredModel, SplitFiles, SplitModel
from edgekit.quantize.qdq.to_explicit import to_qdq
from edgekit.quantize.qdq.to_implicit import from_qdq
from edgekit.quantize.scales import change_rows
from edgekit.targets.loader import get
from edgekit.targets.releases import parse_release, release_for
from edgekit.tensorrt.trtexec import build_line, translated_line

if TYPE_CHECKING:
    from edgekit.pipeline.context import Context


_WIDER = "the builder uses the largest"


def from_qdq_document(
    source: str | Path,
    *,
    out: Path | None = None,
    cache: Path | None = None,
    precisions: Sequence[Path] = (),
    target: str | None = None,
    tensorrt: str | None = None,
    unequal: str = "refuse",
    tied: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
) -> SplitModel:
    """Translates a Q/DQ file, writes the requested files, and returns an ``edgekit.from-qdq/1``.

    Args:
        source: The ONNX file.
        out: Output file of the plain model; not written if None.
        cache: Output file of the calibration cache.
        precisions: Output file of the FP16 nodes: a ``.json`` file as NVIDIA's translator writes it
            (int8_tensor_scales, fp16_nodes), any other file as trtexec's ``--layerPrecisions``.
        target: The board whose TensorRT will read the cache.
        tensorrt: The TensorRT release, if it is not the board's.
        unequal: As in :func:`edgekit.quantize.qdq.to_implicit.from_qdq`.
        tied: True if tensors to which the builder gives a common scale get the largest of theirs.
            Otherwise they get the scales of the Q/DQ nodes, and a note names them.
        shapes: Sizes for open inputs.
        batch: The batch, if only the batch is open; 1 if None.
        outputs: Tensors to cut the network at.

    Raises:
        ModelError: The file cannot be read or translated (codes ``qdq.*``), or a weight
            has NaN or infinite values.
        UsageError: Neither a board nor a release for the cache, or a file to write is the source.
        DataError: The cache cannot be written.
        EnvironmentLack: The precisions cannot be written.
    """
    board = get(target) if target is not None else None
    release = board.tensorrt if board is not None else None
    if tensorrt is not None:
        release = parse_release(tensorrt)
    if release is None and cache is not None:
        raise UsageError(
            "a calibration cache belongs to one TensorRT release",
            code="cache.release",
            hint="give the board with --target or the release with --tensorrt",
        )
    wanted = {"the plain model": out, "the calibration cache": cache}
    wanted |= {f"the precisions {path.name}": path for path in precisions}
    check_outputs(Path(source), wanted)
    loaded = load(source, shapes=shapes, batch=batch, outputs=list(outputs or ()) or None)
    found = from_qdq(loaded, unequal=unequal)
    check_weights(found.model)
    reads = board is not None and release is not None and reads_qdq(board, release)
    scales, changes = builder_scales(found, board, release)
    wider = "the shared scale is written" if tied else "--tied writes the shared scale"
    if tied:
        found = replace(found, scales={name: scales[name] for name in found.scales})
    if out is not None:
        save(found.model, out)
    if cache is not None and release is not None:
        write_cache(make_cache(found.scales, release), cache)
    for path in precisions:
        write_text(path, found.precisions(path.name))
    notes = [
        *loaded.notes,
        *found.notes,
        *([] if reads else describe_widened(changes, f"{_WIDER}; {wider}")),
    ]
    line = None
    if not reads:
        line, needed = translated_line(out, cache, precisions, keeps_fp16=bool(found.fp16_nodes))
        notes += needed
    else:
        notes.append(
            f"TensorRT {release} uses Q/DQ nodes on the DLA and accepts no calibration cache there"
        )
        line = build_line(Path(source))
    return SplitModel(
        model=str(source),
        tensorrt=release,
        quantizers=found.quantizers,
        weights=found.weights,
        scales=found.scales,
        tied=tied,
        changes=change_rows(changes),
        propagated=tuple(found.propagated),
        missing=tuple(found.missing),
        fp16_nodes=tuple(found.fp16_nodes),
        other_codes=tuple(found.other_codes),
        notes=tuple(notes),
        files=SplitFiles(
            str(out) if out else None,
            str(cache) if cache else None,
            tuple(map(str, precisions)),
        ),
        trtexec=line,
    )


def open_for_qdq(config: str | Path | Config, options: Mapping[str, Any]) -> Config:
    """Opens the source of a Q/DQ model: in INT8, not rewritten, and for a TensorRT release that
    reads Q/DQ nodes for the board's DLA.

    ``options`` win, also ``tensorrt``. A configuration's own release is kept if it reads Q/DQ
    nodes; otherwise the first release that does replaces it.
    """
    opened = open_config(config, **{"precision": "int8", "rewrite": {"enable": "none"}, **options})
    # an explicit release that reads no Q/DQ nodes is refused later, with the reason
    if options.get("tensorrt") is not None:
        return opened
    target = get(opened.file.target)
    if is_typed(target, release_for(target, opened.file.tensorrt), "int8"):
        return opened
    return open_config(opened, tensorrt=first_qdq_release())


def to_qdq_document(
    context: Context, out: Path, *, weights: str = "per_channel", float16: bool = True
) -> LoweredModel:
    """Lowers a configuration's network, writes it, and returns an ``edgekit.to-qdq/1``.

    Args:
        context: The configuration, with a strongly typed TensorRT release.
        out: Output file of the Q/DQ model.
        weights: "per_channel" or "per_tensor".
        float16: True if layers outside of INT8 get FP16 types.

    Raises:
        UsageError: "qdq.release": no DLA of the board reads Q/DQ nodes with the release, or
            ``out`` is the model itself.
        ModelError: "qdq.present", "qdq.opset", or it cannot be written.
    """
    if not is_typed(context.target, context.tensorrt, "int8"):
        raise UsageError(
            f"the DLA of {context.target.name} does not support Q/DQ nodes with TensorRT "
            f"{context.tensorrt}",
            code="qdq.release",
            where=context.file.target,
            hint=qdq_hint(),
        )
    check_config_outputs(context.config, {"the Q/DQ model": out})
    context = with_measured_ranges(context)
    found, net = scales(context), network(context)
    assert found is not None, "the precision is INT8"
    fp16 = fp16_layers(context, net)
    lowered = to_qdq(
        # of a Q/DQ model `to_qdq` gets the file itself, and refuses it ("qdq.present")
        user_model(context) if translate_qdq(context) is not None else model(context),
        net,
        found.scales,
        fp16_layers=fp16,
        weights=weights,
        float16=float16,
    )
    save(lowered, out)
    qdq = layers_module.layers(lowered, context.tensorrt)
    verdicts = judge(qdq, context.target, precision="int8", tensorrt=context.tensorrt)
    own = judgement(context)
    nodes = [node.op_type for node in lowered.proto.graph.node]
    activations = len(found.quantised or ())
    warnings = release_warnings(qdq, verdicts, context.target)
    return LoweredModel(
        model=source(context).source,
        target=context.file.target,
        tensorrt=context.tensorrt,
        method=found.method,
        data=found.data,
        opset=next(opset.version for opset in lowered.proto.opset_import if not opset.domain),
        activations=activations,
        # every other QuantizeLinear is of a weight
        weights=nodes.count("QuantizeLinear") - activations,
        casts=nodes.count("Cast"),
        fp16_layers=tuple(
            layer.name for layer in net.layers if own.precision_of(layer.name) == "fp16"
        ),
        check=LoweredCheck.of(qdq, verdicts),
        notes=tuple(dict.fromkeys((*context.session.notes, *found.warnings, *warnings))),
        file=str(out),
        trtexec=build_line(out),
    )
