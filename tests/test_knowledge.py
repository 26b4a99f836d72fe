"""Knowledge files are parsed once; what is kept is never believed for another file."""

import json
import os

import pytest

from edgekit import knowledge
from edgekit.dla.explanation import explained
from edgekit.dla.rules import load_rules
from edgekit.errors import DataError


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A knowledge folder of one's own, and an empty cache."""
    (tmp_path / "dla").mkdir()
    monkeypatch.setattr(knowledge, "data_folder", lambda kind: tmp_path / kind)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def retained(folders):
    return sorted((folders / "cache").rglob("*.json"))


def test_the_second_reading_needs_no_yaml(folders, monkeypatch):
    file = folders / "dla" / "a.yaml"
    file.write_text("limits: [1, 2.5, true, null, text]\n")
    first = knowledge.read_knowledge(file)
    monkeypatch.setattr(knowledge, "_parse", lambda *_: pytest.fail("parsed again"))
    assert knowledge.read_knowledge(file) == first == {"limits": [1, 2.5, True, None, "text"]}


def test_an_edited_file_of_the_same_size_and_time_is_read_again(folders):
    file = folders / "dla" / "a.yaml"
    file.write_text("limit: 1\n")
    knowledge.read_knowledge(file)
    before = file.stat().st_mtime_ns
    file.write_text("limit: 2\n")
    os.utime(file, ns=(before, before))
    assert knowledge.read_knowledge(file) == {"limit": 2}


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"\n", b"\n\n{}", b"\xff\xfe\n\n", b"[" * 100_000]
)
def test_a_damaged_cache_is_no_failure(folders, damage):
    file = folders / "dla" / "a.yaml"
    file.write_text("limit: 1\n")
    knowledge.read_knowledge(file)
    (record,) = retained(folders)
    whole = record.read_bytes()
    record.write_bytes(damage)
    assert knowledge.read_knowledge(file) == {"limit": 1}
    assert record.read_bytes() == whole


def test_two_installations_do_not_evict_each_other(folders, monkeypatch):
    files = []
    for name in ("one", "two"):
        (folders / name / "dla").mkdir(parents=True)
        files.append(folders / name / "dla" / "a.yaml")
        files[-1].write_text(f"name: {name}\n")
        monkeypatch.setattr(knowledge, "data_folder", lambda kind, name=name: folders / name / kind)
        knowledge.read_knowledge(files[-1])
    assert len(retained(folders)) == 2


def change(record):
    key, digest, text = record.read_bytes().split(b"\n", 2)
    return key, digest, json.dumps({name: {} for name in json.loads(text)}).encode()


def test_a_whole_record_of_another_content_is_not_believed(folders):
    file = folders / "dla" / "a.yaml"
    file.write_text("limit: 1\n")
    knowledge.read_knowledge(file)
    (record,) = retained(folders)
    record.write_bytes(b"\n".join(change(record)))
    assert knowledge.read_knowledge(file) == {"limit": 1}
    assert b"{}" not in record.read_bytes()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes are POSIX's")
@pytest.mark.parametrize("open_to", [0o770, 0o707, None])
def test_a_folder_where_others_write_is_not_believed(open_to, folders, monkeypatch):
    file = folders / "dla" / "a.yaml"
    file.write_text("limit: 1\n")
    knowledge.read_knowledge(file)
    (record,) = retained(folders)
    assert record.parent.stat().st_mode & 0o077 == 0
    key, _, text = change(record)
    record.write_bytes(b"\n".join((key, knowledge._digest(text), text)))
    assert knowledge.read_knowledge(file) == {"limit": {}}  # whoever can do this is oneself
    if open_to is None:
        monkeypatch.setattr(os, "getuid", lambda: record.stat().st_uid + 1)
    else:
        record.parent.chmod(open_to)
    assert knowledge.read_knowledge(file) == {"limit": 1}


def test_a_cache_that_cannot_be_written_is_no_failure(folders):
    (folders / "cache").write_text("a file where the folder should be")
    file = folders / "dla" / "a.yaml"
    file.write_text("limit: 1\n")
    assert knowledge.read_knowledge(file) == {"limit": 1}


@pytest.mark.parametrize("text", ["1: one\n", "day: 2026-01-01\n", "x: .nan\n", "x: {2: 3}\n"])
def test_what_json_cannot_say_is_not_retained(folders, text):
    file = folders / "dla" / "a.yaml"
    file.write_text(text)
    first, second = knowledge.read_knowledge(file), knowledge.read_knowledge(file)
    assert repr(first) == repr(second)
    assert retained(folders) == []


def test_a_file_of_the_users_is_not_retained(folders, tmp_path_factory):
    file = tmp_path_factory.mktemp("own") / "board.yaml"
    file.write_text("limit: 1\n")
    assert knowledge.read_knowledge(file) == {"limit": 1}
    assert retained(folders) == []


def test_a_mistake_is_named_with_its_line(folders):
    file = folders / "dla" / "a.yaml"
    file.write_text("a: 1\nb: [\n")
    with pytest.raises(DataError) as caught:
        knowledge.read_knowledge(file)
    assert caught.value.where.startswith(f"{file}:3")


def test_rules_from_the_cache_are_those_of_the_files(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    read = load_rules.__wrapped__
    from_yaml = read()
    assert retained(tmp_path)
    monkeypatch.setattr(knowledge, "_parse", lambda _, path: pytest.fail(f"parsed {path} again"))
    from_json = read()
    assert [explained(rule) for rule in from_json] == [explained(rule) for rule in from_yaml]
    assert from_json.operators == from_yaml.operators


def test_where_the_cache_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert knowledge.cache_folder() == tmp_path / "a"
    monkeypatch.delenv("EDGEKIT_CACHE")
    assert knowledge.cache_folder() == tmp_path / "b" / "edgekit"
