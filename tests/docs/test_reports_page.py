"""docs/reports.md: its examples run, its table is the document's."""

import contextlib
import json
import re
import shlex
import types
from pathlib import Path

import pytest

from edgekit import api
from edgekit.cli import main
from edgekit.reports.document import report_document
from edgekit.reports.html.page import write_report
from edgekit.results.recording import record
from tests.reports import handmade_run
from tests.results.measurements import bench, times

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text()


def test_the_examples_in_their_order(tmp_path, monkeypatch, capsys):
    """A pipeline that has a finished run stands in for the minutes of a real one."""
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    (tmp_path / "configs").symlink_to(Path(__file__).parents[2] / "configs")
    monkeypatch.chdir(tmp_path)
    out = Path("edgekit-out/resnet50")
    out.mkdir(parents=True)
    record(bench(times(300, 2.0, seed=1), name="resnet50-orin"))
    own = bench(times(300, 2.0, seed=2), name="resnet50-orin")

    class Done:
        def __init__(self):
            self.out, self.file = out, types.SimpleNamespace(name="resnet50-orin")

        def run(self, annotate):
            record(own)
            (out / "bench.json").write_text(json.dumps(own.to_json()))
            files = {
                name: str(out / f"{name}.{end}")
                for name, end in (("report", "html"), ("bench", "json"))
            }
            document = report_document(handmade_run.facts(name="resnet50-orin", files=files))
            write_report(document, out / "report.html")
            done = types.SimpleNamespace(releases=[])
            return types.SimpleNamespace(report=document, document=done)

    monkeypatch.setattr(api, "open_pipeline", lambda *_, **__: contextlib.nullcontext(Done()))
    block = re.findall(r"```sh\n(.*?)```", PAGE, re.S)[0]
    pages = []
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as ended:
            main.main(arguments)
        captured = capsys.readouterr()
        assert ended.value.code == 0, captured.err
        pages.append(Path(captured.out.strip()).read_text("utf-8"))
    assert len(pages) == 3
    assert ["Against the baseline" in page for page in pages] == [False, True, True]
    assert ">#1<" in pages[1]
