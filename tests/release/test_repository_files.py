"""The Dockerfile, the workflow and the forms of the repository hold to what is in it."""

import re
import shlex
from pathlib import Path

import yaml

import edgekit

ROOT = Path(__file__).parents[2]


def instructions():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(None, 1) for line in lines]


def test_the_dockerfile_copies_what_is_there_and_is_let_through():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [name for word, rest in instructions() if word == "COPY" for name in rest.split()[:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored
    # what the wheel is built from is among them
    project = (ROOT / "pyproject.toml").read_text()
    packed = re.findall(r'^"(\w+)" = "edgekit/_data', project, re.M)
    assert {*packed, "edgekit", "edgekit_device", "hatch_build.py"} <= set(copied)


def test_the_image_installs_by_hash_and_runs_edgekit_as_no_root():
    words = [word for word, _ in instructions()]
    rest = dict(instructions())
    assert words[0] == "FROM"
    assert re.fullmatch(r"python:3\.\d+-slim(@sha256:\w+)?", rest["FROM"])
    runs = [shlex.split(text) for word, text in instructions() if word == "RUN"]
    installs = [run for run in runs if run[:2] == ["pip", "install"]]
    assert installs
    for run in installs:
        own = {"--no-deps", "--no-build-isolation"} <= set(run) and run[-1] == "."
        assert "--require-hashes" in run or own
    # sshd is the board of `edgekit run` without another one
    packages = next(text for word, text in instructions() if "apt-get install" in text)
    assert {"openssh-client", "openssh-server"} <= set(shlex.split(packages))
    assert words.index("USER") > max(n for n, word in enumerate(words) if word == "RUN")
    assert rest["USER"] not in ("root", "0")
    assert rest["ENTRYPOINT"] == '["edgekit"]'


def test_each_action_is_pinned_by_its_commit():
    for path in (ROOT / ".github" / "workflows").glob("*.y*ml"):
        text = path.read_text()
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        for script in re.findall(r"(?<= )scripts/\w+(?:\.py)?", text):
            assert (ROOT / script).is_file(), script
        uses = re.findall(r"uses: (?!\./)(.*)", text)
        assert uses
        for action in uses:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+(\.\d+)*", action), action


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(cited["version"]) == edgekit.__version__
    assert cited["license"] == "Apache-2.0"
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
