"""The table of build settings: whole, of the schema, and what releases and boards get of it."""

from __future__ import annotations

import typing
from dataclasses import replace

import pytest

from edgekit.config.schema import BuildSection, PreviewFeature, TacticSource
from edgekit.errors import ConfigError
from edgekit.tensorrt.options import Decision, RequestedBuild, decide
from edgekit.tensorrt.releases import features, release, release_facts
from edgekit.tensorrt.settings import FEATURE, setting_rows
from edgekit_device.build.settings import KINDS, Setting
from tests.tensorrt.build_requests import ORIN, requested_build

THOR, XAVIER = "jetson-agx-thor", "jetson-agx-xavier"
GPU = {"dla": False}


def decided(tensorrt: str = "10.3", **settings: object) -> Decision:
    return decide(requested_build(tensorrt, settings=settings, **GPU))


def refused(request: RequestedBuild) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        decide(request)
    return caught.value


def test_every_row_is_a_key_and_names_what_releases_have():
    for key, row in setting_rows().items():
        assert key in BuildSection.model_fields
        assert row.kind in (FEATURE, *KINDS)
        assert row.lacking in ("refused", "dropped")
        assert row.source
        names = release_facts().names
        if row.kind == FEATURE:
            assert features()[row.name].key == f"build.{key}"
            continue
        assert row.name in names
        assert row.what
        assert bool(row.members) == (row.kind in ("choice", "sources", "switches"))
        assert not row.members or row.members in names
        limited = row.typing, row.precision, row.compute_capability, row.gpu, row.needs
        assert bool(row.why) == any(limited)
        assert not row.needs or row.needs in setting_rows()


def test_every_key_of_the_section_is_a_row_or_edgekits_own():
    own = {"mode", "backend", "constraints", "strict"}
    assert set(BuildSection.model_fields) == own | set(setting_rows())


def test_the_schemas_words_are_tensorrts():
    names = release_facts().names
    for enum, words in (("TacticSource", TacticSource), ("PreviewFeature", PreviewFeature)):
        known = {name.split(".")[1] for name in names if name.startswith(f"{enum}.")}
        assert known == set(typing.get_args(words))
    for key in ("tiling_optimization_level", "profiling_verbosity"):
        words = typing.get_args(BuildSection.model_fields[key].annotation)
        words = [w for one in words for w in (typing.get_args(one) or (one,)) if w]
        enum = setting_rows()[key].members
        assert all(f"{enum}.{word.upper()}" in names for word in words if isinstance(word, str))


def test_settings_become_what_tensorrt_calls_them_in_the_tables_order():
    made = decided(
        max_aux_streams=2,
        workspace_mib=3,
        tf32=False,
        sparsity=True,
        tactic_sources=["JIT_CONVOLUTIONS"],
        preview_features={"PROFILE_SHARING_0806": False},
        profiling_verbosity="none",
    )
    assert made.settings["plan"] == (
        Setting("workspace_mib", "pool", "WORKSPACE", number=3 << 20),
        Setting("sparsity", "flag", "SPARSE_WEIGHTS", number=1),
        Setting("tf32", "flag", "TF32", number=0),
        Setting(
            "tactic_sources", "sources", "set_tactic_sources", "TacticSource", ("JIT_CONVOLUTIONS",)
        ),
        Setting("max_aux_streams", "number", "max_aux_streams", number=2),
        Setting(
            "preview_features",
            "switches",
            "set_preview_feature",
            "PreviewFeature",
            ("PROFILE_SHARING_0806",),
            0,
        ),
        Setting(
            "profiling_verbosity", "choice", "profiling_verbosity", "ProfilingVerbosity", ("NONE",)
        ),
    )
    assert not any("is not used" in note for note in made.notes)


@pytest.mark.parametrize(
    ("tensorrt", "key", "value", "says"),
    [
        ("8.5.2", "max_aux_streams", 1, "8.6 is the first release that has it"),
        ("8.5.2", "optimization_level", 1, "8.6 is the first release that has it"),
        ("10.3", "tiling_optimization_level", "fast", "10.8 is the first release that has it"),
        ("10.7", "editable_timing_cache", True, "10.8 is the first release that has it"),
        ("10.3", "tactic_sources", ["CUDNN"], ""),
        ("11.2", "tactic_sources", ["CUDNN"], "CUDNN is not used: TensorRT 11.2 does not have it"),
        ("8.6.2", "tactic_shared_memory_kib", 48, "10.0 is the first release that has it"),
        ("10.3", "tf32", False, ""),
    ],
)
def test_what_a_release_lacks_is_dropped_with_a_note(tensorrt, key, value, says):
    settings = {key: value, "timing_cache": True}
    strong = "weak" not in release(tensorrt).typings
    made = decide(requested_build(tensorrt, settings=settings, qdq=strong, **GPU))
    notes = [note for note in made.notes if note.startswith(f"build.{key}")]
    assert bool(made.settings["plan"]) == (not says)
    assert len(notes) == bool(says)
    assert says in "".join(notes)


def test_members_that_a_release_has_stay():
    given = {
        "tactic_sources": ["CUDNN", "JIT_CONVOLUTIONS"],
        "preview_features": {
            "ALIASED_PLUGIN_IO_10_03": True,
            "RUNTIME_ACTIVATION_RESIZE_10_10": True,
        },
    }
    made = decide(requested_build("11.2", settings=given, qdq=True, **GPU))
    assert [one.members for one in made.settings["plan"]] == [
        ("JIT_CONVOLUTIONS",),
        ("ALIASED_PLUGIN_IO_10_03",),
        ("RUNTIME_ACTIVATION_RESIZE_10_10",),
    ]
    older = decided("10.3", preview_features={"RUNTIME_ACTIVATION_RESIZE_10_10": True})
    assert older.settings["plan"] == ()
    assert any("RUNTIME_ACTIVATION_RESIZE_10_10 is not used" in note for note in older.notes)
    # an empty list is a wish of its own: no source at all
    (none,) = decided(tactic_sources=[]).settings["plan"]
    assert none.members == ()


@pytest.mark.parametrize(
    ("options", "settings", "says", "hint"),
    [
        (
            {"precision": "fp32", "target": XAVIER, "tensorrt": "10.3"},
            {"bf16": True},
            "compute capability 7.2, and it needs 8.0",
            "remove build.bf16",
        ),
        ({"precision": "fp32"}, {"fp8": True}, "capability 8.7, and it needs 8.9", "remove"),
        ({"precision": "fp32", "dla": True}, {"int4": True}, "uses a DLA", "dla_cores: []"),
        ({"precision": "int8"}, {"int4": True}, "the precision is int8", "fp16 or fp32"),
        ({"precision": "fp16"}, {"bf16": True}, "the precision is fp16", "precision: fp32"),
        (
            {"precision": "fp32", "tensorrt": "8.6.2"},
            {"bf16": True},
            "10.0 is the first release that has it",
            "remove build.bf16",
        ),
        (
            {},
            {"error_on_timing_cache_miss": True, "timing_cache": False},
            "build.timing_cache is not set",
            "set build.timing_cache",
        ),
        (
            {"mode": "standalone", "dla": True},
            {"error_on_timing_cache_miss": True, "timing_cache": True},
            "does not apply to a loadable",
            "remove",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_the_build(options, settings, says, hint):
    key = next(iter(settings))
    given = {"target": ORIN, "tensorrt": "10.3", "precision": "int8", "dla": False, **options}
    request = RequestedBuild(**given, settings=settings, places={f"build.{key}": "net.yaml:9:3"})
    error = refused(request)
    (problem,) = error.problems
    assert error.code == "trt.features"
    assert problem.where == "net.yaml:9:3"
    assert says in problem.message
    assert hint in problem.hint
    assert f"build.{key}" in problem.message


def test_what_a_board_can_have_it_gets():
    request = RequestedBuild(
        target=THOR, tensorrt="10.13.3", precision="fp16", dla=False, settings={"fp8": True}
    )
    assert [one.name for one in decide(request).settings["plan"]] == ["FP8"]
    # where the types in the network say it there is no flag to set
    strong = decide(replace(request, typing="strong"))
    assert strong.settings["plan"] == ()
    assert any("build.fp8 is not used: the network is strongly typed" in x for x in strong.notes)


def test_limits_and_needs_of_tiling_and_sparsity():
    made = decide(
        requested_build("11.2", qdq=True, settings={"l2_limit_for_tiling_kib": 512}, **GPU)
    )
    assert made.settings["plan"] == ()
    assert any("tiling_optimization_level is not set" in note for note in made.notes)
    both = {"l2_limit_for_tiling_kib": 512, "tiling_optimization_level": "full"}
    found = decide(requested_build("11.2", qdq=True, settings=both, **GPU)).settings["plan"]
    assert [(one.members, one.number) for one in found] == [(("FULL",), None), ((), 512 << 10)]
    old = decide(requested_build("8.5.2", target=XAVIER, settings={"sparsity": True}))
    assert old.settings["plan"] == ()
    assert any("build.sparsity is not used: the GPU of" in note for note in old.notes)
    plain = RequestedBuild(
        target=ORIN, tensorrt="10.3", precision="fp32", dla=False, settings={"sparsity": True}
    )
    assert any("the precision is fp32" in note for note in decide(plain).notes)
    # there the types of the file count, which edgekit does not choose
    assert decide(replace(plain, typing="strong")).settings["plan"]


def test_loadables_get_what_concerns_a_dla_alone():
    given = {"sparsity": True, "max_aux_streams": 1, "optimization_level": 4}
    split = decide(requested_build(mode="split", settings=given)).settings
    assert [one.key for one in split["loadable"]] == ["optimization_level", "sparsity"]
    assert len(split["plan"]) == 3
    alone = decide(requested_build(mode="standalone", settings=given))
    assert set(alone.settings) == {"loadable"}
    assert any("build.max_aux_streams is not used" in note for note in alone.notes)


def test_weight_streaming_needs_the_gpu_and_types_in_the_network():
    places = {"build.weight_streaming": "net.yaml:9:3"}
    weak = RequestedBuild(
        target=ORIN,
        tensorrt="10.3",
        precision="fp16",
        dla=False,
        weight_streaming=True,
        places=places,
    )
    error = refused(weak)
    assert error.where == "net.yaml:9:3"
    assert "STRONGLY_TYPED" in error.message
    assert "build.typing: strong" in error.hint
    made = decide(replace(weak, typing="strong"))
    assert "WEIGHT_STREAMING" in made.plans[0].flags
    with_dla = refused(replace(weak, typing="strong", dla=True))
    assert "DLA_HYBRID" in with_dla.message
    assert "placement.dla_cores: []" in with_dla.hint
    assert "10.0 is the first" in refused(replace(weak, tensorrt="8.6.2")).message
    # from 11 on every network is of that kind
    eleven = replace(weak, tensorrt="11.2")
    assert "WEIGHT_STREAMING" in decide(eleven).plans[0].flags


def test_a_typing_that_a_release_lacks_is_refused_at_its_key():
    for tensorrt, typing_ in (("8.6.2", "strong"), ("11.2", "weak")):
        error = refused(
            RequestedBuild(
                target=ORIN,
                tensorrt=tensorrt,
                precision="fp16",
                dla=False,
                typing=typing_,
                places={"build.typing": "net.yaml:9:3"},
            )
        )
        assert (error.code, error.where) == ("trt.release", "net.yaml:9:3")
    int8 = refused(RequestedBuild(target=ORIN, tensorrt="10.3", dla=False, typing="strong"))
    assert "INT8" in int8.message
