"""What a board must be and have before anything is sent to it: refused with a fake of its probe."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edgekit.config.loader import open_config
from edgekit.deployment.requirements import check_runs
from edgekit.errors import BoardError, EnvironmentLack
from edgekit.pipeline.context import variant
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.build_request import check_board
from edgekit.pipeline.steps.plan import plan, with_plan
from edgekit.targets.releases import is_planned_release
from tests.pipeline.nets import small_config
from tests.pipeline.test_doctor import probe, probe_json

LAB = SimpleNamespace(name="lab")
NO_PYTHON = dict.fromkeys(("full", "lean", "dispatch"))


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A configuration by build mode and release, with a plan that uses a DLA."""
    folder = tmp_path_factory.mktemp("net")
    path = small_config(folder, precision="fp16")
    with Pipeline(open_config(path, tensorrt="10.3"), out=folder / "out") as one:
        placed = plan(one.context)
    assert {layer.device for layer in placed.layers} > {"GPU"}

    def context(mode="hybrid", tensorrt="10.3", compatible="auto"):
        build = {"mode": mode, "version_compatible": compatible}
        return with_plan(variant(one.context, tensorrt=tensorrt, build=build), placed)

    return context


def board(tensorrt="10.3.0.30", tensorrt_facts=None, **changes):
    if tensorrt_facts is not None:
        changes["tensorrt"] = tensorrt_facts
    return probe(fingerprint={"tensorrt": tensorrt}, **changes)


def python(**there):
    return {**probe_json()["tensorrt"], "python": {**NO_PYTHON, **there}}


@pytest.mark.parametrize("mode", ["hybrid", "split", "standalone"])
def test_a_board_that_has_everything_is_taken(planned, mode):
    check_board(planned(mode), LAB, board())
    # a release that nobody could tell is no other release
    check_board(planned(mode), LAB, board(""))


def test_a_board_without_numpy_is_refused_with_what_doctor_says(planned):
    with pytest.raises(EnvironmentLack) as caught:
        check_board(planned(), LAB, board(numpy=None))
    assert caught.value.code == "board.no-numpy"
    assert "apt-get install python3-numpy" in caught.value.hint


@pytest.mark.parametrize("mode", ["split", "standalone"])
def test_loadables_need_libcudla(planned, mode):
    with pytest.raises(EnvironmentLack) as caught:
        check_board(planned(mode), LAB, board(cudla=None))
    assert caught.value.code == "board.no-cudla"
    assert "libcudla-12-6" in caught.value.hint
    assert mode in caught.value.message
    check_board(planned("hybrid"), LAB, board(cudla=None))


def test_a_bundle_needs_what_its_engines_run_through():
    plan, plain, loadable = (
        SimpleNamespace(kind=kind, version_compatible=compatible)
        for kind, compatible in (("plan", True), ("plan", False), ("loadable", False))
    )
    lean = board(cudla=None, tensorrt_facts=python(lean="10.3.0"))
    check_runs(LAB.name, lean, {"a": plan})
    check_runs(LAB.name, board(tensorrt_facts=python()), {"a": loadable})
    for engines, code in [
        ({"a": plan, "b": plain}, "board.no-runtime"),
        ({"a": plan, "b": loadable}, "board.no-cudla"),
    ]:
        with pytest.raises(EnvironmentLack) as caught:
            check_runs(LAB.name, lean, engines)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("release", "planned", "fits"),
    [
        ("10.3.0.30", "10.3", True),
        ("10.7.0.23", "10.3", False),
        ("11.4.0.106", "11.4.1", False),
        ("11.4.1.1", "11.4.1", True),
        ("11.4.2.9", "11.4.1", True),
        ("11.4", "11.4.1", True),
        ("10.3.0.26", "10.3.0.30", False),
    ],
)
def test_releases_are_compared_as_far_as_they_are_reported(release, planned, fits):
    assert is_planned_release(release, planned) is fits


def test_an_older_patch_than_planned_is_refused(planned):
    with pytest.raises(BoardError) as caught:
        check_board(planned(tensorrt="11.4.1"), LAB, board("11.4.0.106"))
    assert caught.value.code == "board.other-tensorrt"
    assert "tensorrt: 11.4.0 " in caught.value.hint


def test_a_release_that_drives_no_dla_is_refused_though_it_is_the_planned_one(planned):
    with pytest.raises(BoardError, match=r"10\.13\.2\.6 on the board does not support") as caught:
        check_board(planned(tensorrt="10.13"), LAB, board("10.13.2.6"))
    assert caught.value.code == "board.no-dla"


@pytest.mark.parametrize(
    ("name", "deploys"),
    [("build", False), ("bundle", False), ("deploy", True), ("run", True), ("bench", True)],
)
def test_commands_that_only_build_query_for_no_runtime(tmp_path, monkeypatch, name, deploys):
    class FarEnough(Exception):
        pass

    def stop(*_):
        raise FarEnough

    with Pipeline(open_config(small_config(tmp_path)), out=tmp_path / "out") as one:
        monkeypatch.setattr("edgekit.pipeline.run.check", stop)
        with pytest.raises(FarEnough):
            getattr(one, name)()
        assert ("deploy" in one.log.names) is deploys
