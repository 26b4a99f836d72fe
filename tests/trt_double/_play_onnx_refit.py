"""OnnxParserRefitter: a model's weights go to a Refitter."""

from typing import Any

from ._behaviour import plays
from ._onnx_weights import refit_weights
from ._play_base import emit
from ._play_refit import all_names, set_named


@plays("OnnxParserRefitter", "__init__")
def _onnx_refitter(this: Any, refitter: Any, logger: Any) -> None:
    this._s.refitter, this._s.logger, this._s.errors = refitter, logger, []


@plays("OnnxParserRefitter", "get num_errors")
def _num_errors(this: Any) -> int:
    return len(this._s.errors)


@plays("OnnxParserRefitter", "get_error")
def _get_error(this: Any, index: int) -> Any:
    return this._s.errors[index]


@plays("OnnxParserRefitter", "clear_errors")
def _clear(this: Any) -> None:
    this._s.errors.clear()


@plays("OnnxParserRefitter", "refit_from_file")
def _refit_file(this: Any, model: str) -> bool:
    import onnx

    try:
        return _refit_model(this, onnx.load(model))
    except Exception as error:
        return _fail(this, f"Failed to open {model} ({error})")


@plays("OnnxParserRefitter", "refit_from_bytes")
def _refit_bytes(this: Any, model: Any, path: Any = None) -> bool:
    import onnx

    loaded = onnx.load_model_from_string(bytes(memoryview(model)))
    if path is not None:
        from pathlib import Path

        from onnx.external_data_helper import load_external_data_for_model

        load_external_data_for_model(loaded, str(Path(path).parent))
    return _refit_model(this, loaded)


def _refit_model(this: Any, model: Any) -> bool:
    refitter = this._s.refitter
    values = refit_weights(model, this._s.double.build)
    for name in all_names(refitter):
        if name not in values or not set_named(refitter, name, values[name]):
            return _fail(this, f"Failed to refit all the weights. ({name})")
    return True


def _fail(this: Any, text: str) -> bool:
    double = this._s.double
    codes = double.factory.classes["ErrorCode"].__members__
    error = double.factory.new(
        "ParserError",
        code=codes["REFIT_FAILED"] if "REFIT_FAILED" in codes else codes["INTERNAL_ERROR"],
        desc=text,
        file="ModelRefitter.cpp",
        func="refitFromFile",
        line=1,
        node=-1,
        node_name="",
        node_operator="",
    )
    this._s.errors.append(error)
    emit(double, this._s.logger, "ERROR", text)
    return False
