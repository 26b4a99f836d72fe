"""The schema of ``edgekit.report/1``: what a document must have before a page is made of it.

The models name what the page reads. Documents of other floors that a report carries (the bench,
a comparison, a board's build) keep their further keys; a document written before a part was known
lacks that part and is shown without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from edgekit._files import parse_json, regular
from edgekit.errors import DataError
from edgekit.report._schema_layers import Layer, MeasuredPart, Why
from edgekit.report._schema_parts import (
    Accuracy,
    Answer,
    Bench,
    Board,
    Facts,
    Graph,
    Part,
    Placement,
    Power,
    Predicted,
    Timeline,
    Verdict,
)

__all__ = ["Report", "checked", "read_report", "report_schema", "shown"]

_LARGEST = 256 << 20  # bytes of a report.json; 2,000 layers are 1.5 MB


class Step(Part):
    """A step of the pipeline."""

    name: str
    status: str
    seconds: float | None = None


class Report(Part):
    """One run: verdict, placement, predictions, measurement, and how it was made."""

    schema_: Literal["edgekit.report/1"] = Field(alias="schema")
    name: str
    model: str
    target: Board
    power_mode: str
    precision: str
    tensorrt: str
    mode: str
    backend: str | None
    headline: str
    answer: list[Answer] = Field(default=[])
    verdict: Verdict = Verdict()
    placement: Placement
    predicted: Predicted
    accuracy: Accuracy | None = None
    calibration: Facts | None = None
    bundle: Facts | None = None
    refit: Facts | None = None
    built: list[Facts] = Field(default=[])
    bench: Bench | None = None
    power: Power | None = None
    baseline: Facts | None = None
    board: Facts | None = None
    rewrites: list[Facts] = Field(default=[])
    layers: list[Layer]
    measured_parts: list[MeasuredPart] = Field(default=[])
    why_not: list[Why]
    why_gpu: list[Why] = Field(default=[])
    graph: Graph = Graph()
    timeline: Timeline
    trace: Facts | None = None
    steps: list[Step]
    files: dict[str, str]
    config: str
    environment: Facts
    notes: list[str]
    note_groups: dict[str, list[str]] = Field(default={})


def report_schema() -> dict[str, Any]:
    """Returns the JSON Schema of ``edgekit.report/1``, as docs/report.schema.json has it."""
    schema = Report.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "edgekit.report/1"
    return schema


def checked(document: Any, *, where: str = "the report document") -> dict[str, Any]:
    """Returns the document with the parts that it lacks as null or empty.

    Args:
        document: An ``edgekit.report/1``, as ``report.json`` has it.
        where: What it came from, for an error.

    Raises:
        DataError: It is no report, or one of its parts is not as the schema has it.
    """
    said = document.get("schema") if isinstance(document, Mapping) else None
    if said != "edgekit.report/1":
        raise DataError(
            f"this is no edgekit.report/1 document: its schema is {said!r}",
            code="report.schema", where=where,
            hint="edgekit report takes a configuration, or the report.json of a run",
        )  # fmt: skip
    try:
        return Report.model_validate(document).model_dump(by_alias=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in wrong[:5]) + (
            f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        )
        raise DataError(
            f"the report document does not fit its schema: {told}",
            code="report.schema", where=where,
            hint="docs/report.schema.json has the schema; write the report again from its "
            "configuration",
        ) from None  # fmt: skip


def read_report(path: Path) -> dict[str, Any]:
    """Returns the document of a ``report.json``, checked.

    Raises:
        DataError: The file cannot be read, is no JSON, or does not fit the schema.
    """

    try:
        if regular(path).stat().st_size > _LARGEST:
            raise DataError(
                f"the file is larger than {_LARGEST >> 20} MiB", code="report.too-large",
                where=str(path),
                hint="edgekit report takes the report.json of a run",
            )  # fmt: skip
        document = parse_json(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise DataError(
            f"the report document cannot be read: {error.strerror or error}",
            code="report.file", where=str(path), hint="name the report.json of a run",
        ) from None  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"the file is no JSON: {error}",
            code="report.file", where=str(path), hint="name the report.json of a run",
        ) from None  # fmt: skip
    return checked(document, where=str(path))


@contextmanager
def shown(where: str) -> Iterator[None]:
    """Tells what of a document from a file cannot be shown though the schema does not name it.

    Documents of other floors that a report carries are open to further keys, and what stands in
    them is not checked; a run's own document has no such guard, so that our faults are seen.

    Raises:
        DataError: A part is not what its writer would have written.
    """
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"a part of the report document is not as edgekit writes it: {error}",
            code="report.schema", where=where,
            hint="write the report again from its configuration",
        ) from error  # fmt: skip


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")
