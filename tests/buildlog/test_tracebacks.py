"""`edgekit explain-log`: Python programs that end with a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import UsageError
from edgekit.pipeline.log_explanation import explain_log


def explained(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "python.log"
    path.write_text(text)
    return explain_log(path).to_json()


def traceback(code: str, error: str, file: str = "infer.py") -> str:
    return (
        f'Traceback (most recent call last):\n  File "{file}", line 12, in <module>\n'
        f"    {code}\n{error}\n"
    )


NO_ENGINE = traceback(
    "context = engine.create_execution_context()",
    "AttributeError: 'NoneType' object has no attribute 'create_execution_context'",
)
OTHER_RELEASE = (
    "[TRT] [E] 6: The engine plan file is not compatible with this version of TensorRT, expecting "
    "library version 10.3.0 got 8.5.2, please rebuild.\n"
)


@pytest.mark.parametrize(
    ("text", "error", "headline"),
    [
        (NO_ENGINE, "engine.none", "The engine cannot be loaded (line 4): The program has no"),
        (NO_ENGINE.replace("\n  ", "\n").replace("\n  ", "\n"), "engine.none",
         "The engine cannot be loaded (line 4)"),
        (traceback("with build_engine(path) as engine:", "AttributeError: __enter__"),
         "engine.none", "The engine cannot be loaded (line 4)"),
        (traceback("f.write(serialized_engine)",
                   "TypeError: a bytes-like object is required, not 'NoneType'"),
         "build.none", "The build failed (line 4): The builder returned no engine"),
        (traceback("f.write(engine.serialize())",
                   "AttributeError: 'NoneType' object has no attribute 'serialize'"),
         "build.none", "The build failed (line 4)"),
        (traceback("context.execute_async_v3(stream)",
                   "AttributeError: 'NoneType' object has no attribute 'execute_async_v3'"),
         "run.no-context", "The engine cannot run (line 4)"),
        (traceback("engine = runtime.deserialize_cuda_engine(data)",
                   "TypeError: deserialize_cuda_engine(): incompatible function arguments. The "
                   "following argument types are supported:"),
         "engine.no-data", "The engine cannot be loaded (line 4)"),
    ],
)  # fmt: skip
def test_a_call_of_none_is_a_failure(text: str, error: str, headline: str, tmp_path: Path) -> None:
    found = explained(text, tmp_path)
    assert [one["id"] for one in found["errors"]] == [error]
    assert found["headline"][1].startswith(headline)
    assert found["headline"][-1] == "The run failed"
    assert found["passed"] is False
    assert found["unknown_errors"] == []


def test_tensorrt_s_error_before_it_is_the_cause(tmp_path: Path) -> None:
    found = explained(OTHER_RELEASE + NO_ENGINE, tmp_path)
    assert [one["id"] for one in found["errors"]] == ["engine.other-release"]
    assert "(line 1): built with TensorRT 8.5.2" in found["headline"][1]
    assert found["passed"] is False
    no_kernel = (
        "[TRT] [E] 10: Could not find any implementation for node {ForeignNode[a...b]}.\n"
        "[TRT] [I] x\n"
    )
    none = traceback("f.write(plan)", "TypeError: a bytes-like object is required, not 'NoneType'")
    found = explained(no_kernel + none, tmp_path)
    assert [one["id"] for one in found["errors"]] == ["build.no-implementation", "build.none"]
    assert "(line 6): after the error of line 1 (10: Could not find any" in found["headline"][1]


def test_any_traceback_fails_the_run(tmp_path: Path) -> None:
    end = traceback("main()", "RuntimeError: no camera")
    found = explained(f"[TRT] [I] x\n{end}", tmp_path)
    assert found["passed"] is False
    assert found["unknown_errors"] == ["RuntimeError: no camera"]
    library = traceback(
        "from .tensorrt import *",
        "ImportError: libcudnn.so.8: cannot open shared object file",
        "/usr/lib/python3/dist-packages/tensorrt/__init__.py",
    )
    assert explained(library, tmp_path)["passed"] is False
    with pytest.raises(UsageError) as raised:
        explained(end, tmp_path)
    assert raised.value.code == "log.unknown"


def test_what_ends_no_program(tmp_path: Path) -> None:
    later = "[TRT] [E] Cannot deserialize with an empty memory buffer.\n"
    ignored = "Exception ignored in: <function Host.__del__ at 0x7f>\n" + traceback(
        "self.ctx.pop()\n              ^^^", "pycuda._driver.LogicError: context is destroyed"
    )
    for text in (ignored, traceback("time.sleep(1)", "KeyboardInterrupt")):
        found = explained(f"[TRT] [I] x\n{text}{later}", tmp_path)
        assert found["passed"] is None
        assert found["unknown_errors"] == []
        assert [one["id"] for one in found["errors"]] == ["engine.no-data"]


def test_tensorrt_s_lines_in_and_after_a_traceback_are_read(tmp_path: Path) -> None:
    first, _, rest = NO_ENGINE.partition("\n")
    found = explained(f"{first}\n{OTHER_RELEASE}{rest}", tmp_path)
    assert [one["id"] for one in found["errors"]] == ["engine.other-release"]
    cut = "\n".join(NO_ENGINE.splitlines()[:3])
    found = explained(f"{cut}\nCUDA initialization failure with error: 35\n", tmp_path)
    assert [one["id"] for one in found["errors"]] == ["cuda.init"]
