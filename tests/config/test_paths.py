"""A configuration written into another folder names the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgekit.config.loader import load_config, paths_in, rebased
from edgekit.config.schema import ConfigFile, IsPath
from edgekit.errors import UsageError

TEXT = """\
version: 1
name: net
model: {onnx: nets/net.onnx}
target: jetson-agx-orin-64gb
calibration: {data: ../images/}
placement: {profile: profile.json, layer_info: /abs/layers.json}
deploy:
  sign_with: ~/keys/k
  boards: [{name: lab, host: h, key: "${KEYS}/id"}]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEYS", "keys")
    (tmp_path / "proj").mkdir()
    path = tmp_path / "proj" / "net.yaml"
    path.write_text(TEXT)
    return path


def test_a_file_elsewhere_names_the_same_files(config: Path, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    old = load_config(config)
    other = tmp_path / "a" / "b" / "other.yaml"
    values = rebased(old, other.parent)
    other.write_text(yaml.safe_dump(values))
    new = load_config(other)

    def files(loaded) -> dict[object, Path]:
        return {place: loaded.resolve(path).resolve() for place, path in paths_in(loaded.file)}

    assert files(new) == files(old)
    assert len(files(old)) == 6
    assert values["placement"]["layer_info"] == "/abs/layers.json"
    assert values["deploy"]["sign_with"] == "~/keys/k"
    assert values["deploy"]["boards"][0]["key"] == "../../proj/${KEYS}/id"
    assert values["model"]["onnx"] == "../../proj/nets/net.onnx"


def test_a_file_next_to_it_says_the_same(config: Path) -> None:
    assert rebased(load_config(config), config.parent) == yaml.safe_load(TEXT)


def test_a_module_next_to_the_configuration_stays_there(config: Path, tmp_path: Path) -> None:
    config.write_text(TEXT.replace("../images/", "python:feed:batches"))
    loaded = load_config(config)
    assert rebased(loaded, config.parent)["calibration"]["data"] == "python:feed:batches"
    with pytest.raises(UsageError) as caught:
        rebased(loaded, tmp_path)
    assert caught.value.code == "config.module"
    assert str(config.parent) in caught.value.hint


def fields(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        yield name, field
        found = [field.annotation, *get_args(field.annotation)]
        for inner in [*found, *(i for one in found for i in get_args(one))]:
            if hasattr(inner, "model_fields"):
                yield from fields(inner)


def test_every_key_that_is_described_as_a_file_is_marked() -> None:
    words = ("relative to this file", "key file", "private key", "calibration cache to use")
    for name, field in fields(ConfigFile):
        described = any(word in str(field.description) for word in words)
        marked = any(isinstance(mark, IsPath) for mark in field.metadata)
        assert marked == (described or "key that signs" in str(field.description)), name
