"""The examples of docs/pytorch.md run as they stand."""

import re
import shlex
import sys
from pathlib import Path

import numpy
import pytest

from edgekit.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text(encoding="utf-8")


@pytest.mark.whole
def test_the_examples(tmp_path, monkeypatch, capsys):
    torch = pytest.importorskip("torch", reason="needs edgekit[torch]")
    pytest.importorskip("onnxscript", reason="needs edgekit[torch]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    first, by_name, of_file, second, third, module = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "lenet.py").write_text(module)
    names = {}
    try:
        exec(first, names)
        exec(by_name, names)
        shown = capsys.readouterr().out
        before = names["y"]
        exec(of_file, names)
        wanted = names["model"](names["x"]).detach().numpy()
        exec(second, names)
        after = names["y"]
        exec(third, names)
    finally:
        sys.modules.pop("lenet", None)
    for text in re.findall(r"```text\n(.*?)```", PAGE, re.S):
        assert words(text) in words(shown)
    assert isinstance(names["scores"], numpy.ndarray)
    assert numpy.allclose(names["scores"], wanted, rtol=0.01, atol=0.001)
    assert not torch.equal(after, before)
    assert torch.allclose(names["y"], after, rtol=0.01, atol=0.01)
    (command,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    with pytest.raises(SystemExit) as end:
        main(shlex.split(command)[1:])
    assert end.value.code == 0


def words(text):
    """The words of a table; predicted times belong to the cost model's own tests."""
    return " ".join(re.sub(r"\d+\.\d(?= |$)", "?", text, flags=re.MULTILINE).split())
