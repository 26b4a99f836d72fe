import json

import pytest

from edgekit.errors import EnvironmentLack
from edgekit.files import write_json, write_text


def test_json_is_written_whole_with_its_folder(tmp_path):
    path = tmp_path / "a" / "bench.json"
    write_json(path, {"b": [1, "µ"]})
    assert json.loads(path.read_text("utf-8")) == {"b": [1, "µ"]}
    assert path.read_text("utf-8").endswith("\n")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "bench.json"
    write_json(path, {"old": True})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"bad": float("nan")})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert json.loads(path.read_text()) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["bench.json"]


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentLack) as caught:
        write_text(tmp_path / "file" / "bench.json", "x")
    assert caught.value.code == "file.write"
    assert "bench.json" in caught.value.where
