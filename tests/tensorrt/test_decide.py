"""Decisions on what is built: dropped, forbidden, tried in an order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.errors import ConfigError
from edgekit.tensorrt.options import RequestedBuild, decide
from edgekit.tensorrt.releases import feature_rules, features, release
from tests.tensorrt.build_requests import ORIN, RELEASES, requested_build


def flags(attempts):
    return [set(attempt.flags) for attempt in attempts]


def refused(requested):
    with pytest.raises(ConfigError) as caught:
        decide(requested)
    return caught.value


def test_jetpack_5_drops_what_it_lacks_with_a_note():
    made = decide(requested_build("8.5.2"))
    assert flags(made.plans) == [set()]
    assert made.typing == "weak"
    assert len(made.notes) == 2
    assert "build.version_compatible is not used" in made.notes[0]
    assert "the first release with it is 8.6" in made.notes[0]
    assert "build.strip is not used" in made.notes[1]


def test_what_is_requested_outright_is_an_error_where_it_lacks():
    error = refused(requested_build("8.5.2", strip=True, places={"build.strip": "net.yaml:9:3"}))
    assert error.code == "trt.features"
    assert error.where == "net.yaml:9:3"
    assert "10.0 is the first" in error.message
    assert "auto" in error.hint


def test_unknown_pairs_are_tried_with_everything_first():
    made = decide(requested_build())
    everything = {"VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "STRIP_PLAN", "REFIT_IDENTICAL"}
    assert flags(made.plans) == [
        everything,
        {"STRIP_PLAN", "REFIT_IDENTICAL"},
        {"VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"},
        set(),
    ]
    assert [bool(attempt.gives_up) for attempt in made.plans] == [False, True, True, True]
    assert ("DLA_HYBRID", "VC", "STRIP_PLAN") in made.unknown


def test_what_was_requested_is_given_up_last():
    made = decide(requested_build(version_compatible=True))
    assert flags(made.plans)[1] == {"VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"}
    assert "asks for it" not in made.plans[1].gives_up
    assert "build.version_compatible asks for it" in made.plans[-1].gives_up


def test_without_a_dla_nothing_is_in_doubt():
    assert decide(requested_build(dla=False)).unknown == ()


def test_the_last_attempt_is_without_all_that_is_auto():
    """A plan may be built and yet not be refitted: then one that keeps its weights is of use."""
    made = decide(requested_build(dla=False))
    assert flags(made.plans)[1:] == [set()]
    assert "stripping" in made.plans[1].gives_up
    requested = decide(requested_build(dla=False, version_compatible=True, refit="any"))
    assert flags(requested.plans)[1:] == [{"VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME", "REFIT"}]
    assert len(decide(requested_build(dla=False, version_compatible=True, strip=True)).plans) == 1


def test_an_attempt_says_whether_it_breaks_a_constraint():
    made = decide(requested_build(version_compatible=True))
    assert [attempt.breaks for attempt in made.plans] == [False, False, True, True]


def test_any_weights_and_named_ones():
    assert "REFIT" in decide(requested_build(refit="any", dla=False)).plans[0].flags
    named = decide(requested_build(refit=("w",), dla=False)).plans[0].flags
    assert "REFIT_INDIVIDUAL" in named
    assert "REFIT_IDENTICAL" not in named
    # REFIT is older than all of them
    assert flags(decide(requested_build("8.5.2", refit="any")).plans)[0] == {"REFIT"}
    assert "10.2 is the first release" in refused(requested_build("8.6.2", refit=("w",))).message


def test_a_refit_that_fails_falls_back_to_the_same_weights():
    tried = flags(decide(requested_build(refit="any", strip=True)).plans)
    assert {"STRIP_PLAN", "REFIT_IDENTICAL"} in tried
    assert all({"REFIT", "REFIT_IDENTICAL"} - own for own in tried)


def test_loadables_keep_their_borders_and_nothing_else():
    made = decide(requested_build(mode="standalone"))
    assert [attempt.flags for attempt in made.loadables] == [("DIRECT_IO",)]
    assert made.plans == ()
    assert made.attempts == made.loadables
    assert len([note for note in made.notes if "is not used" in note]) == 2


@pytest.mark.parametrize(
    "requested",
    [{"strip": True}, {"version_compatible": True}, {"refit": "any"}, {"refit": ("w",)}],
)
def test_a_loadable_cannot_be_what_a_plan_can(requested):
    key = {
        "strip": "build.strip",
        "version_compatible": "build.version_compatible",
        "refit": "build.refit",
    }[next(iter(requested))]
    places = {key: "net.yaml:7:3", "build.mode": "net.yaml:6:3"}
    error = refused(requested_build(mode="standalone", places=places, **requested))
    assert error.where == "net.yaml:7:3"
    assert "build.mode, line 6" in error.message
    assert f"{key}, line 7" in error.message


def test_a_split_build_has_plans_without_doubt_and_loadables():
    made = decide(requested_build(mode="split", strip=True))
    assert "DIRECT_IO" in made.plans[0].flags
    assert made.plans[0].flags[:-1] == made.plans[1].flags
    assert flags(made.plans)[2:] == [{"STRIP_PLAN", "REFIT_IDENTICAL"}]
    assert [attempt.flags for attempt in made.loadables] == [("DIRECT_IO",)]


@pytest.mark.parametrize("tensorrt", ["10.8", "10.13.3", "10.16.2", "11.0", "11.3.1"])
def test_a_release_without_dla_is_reported_before_anything(tensorrt):
    error = refused(requested_build(tensorrt, places={"tensorrt": "net.yaml:4:1"}))
    assert error.code == "trt.release"
    assert error.where == "net.yaml:4:1"
    assert "11.4.1 to before 11.5 (11.5: not stated)" in error.hint
    assert decide(requested_build(tensorrt, dla=False)).plans


def test_only_agx_orin_has_a_dla_in_11_4_1():
    assert decide(requested_build("11.4.1")).typing == "strong"
    for board in ("jetson-orin-nx-16gb", "jetson-agx-thor"):
        assert refused(requested_build("11.4.1", target=board)).code == "trt.release"


def test_int8_by_a_cache_ended_with_11():
    error = refused(requested_build("11.4.1", qdq=False))
    assert len(error.problems) == 1
    assert "to-qdq" in error.hint
    assert "from-qdq" in refused(requested_build("10.3", qdq=True)).hint


def test_hardware_compatibility_is_for_no_board():
    for dla in (True, False):
        error = refused(requested_build(hardware_compatible=True, dla=dla))
        assert len(error.problems) == 1
        assert "JetPack" in error.message


def test_dynamic_shapes_and_one_profile():
    assert "dla_cores: []" in refused(requested_build(dynamic=True, profiles=1)).hint
    made = decide(requested_build(dla=False, dynamic=True, profiles=2))
    assert "STRIP_PLAN" not in made.plans[0].flags
    assert any("build.strip is not used" in note for note in made.notes)
    assert "profile" in refused(requested_build(dla=False, profiles=2, refit="any")).message


def test_every_fault_is_reported_at_once():
    error = refused(
        requested_build(mode="standalone", strip=True, version_compatible=True, dynamic=True)
    )
    assert len(error.problems) == 3


def test_the_known_fault_of_11_3():
    assert any(
        "GEMM" in note for note in decide(requested_build("11.3.0", dla=False, refit="any")).notes
    )
    assert not any("GEMM" in note for note in decide(requested_build("11.3.0", dla=False)).notes)


def test_a_drive_board_has_no_version_compatibility():
    made = decide(requested_build("8.6.1", target="drive-orin"))
    assert any("Drive" in note for note in made.notes)
    assert refused(requested_build("8.6.1", target="drive-orin", version_compatible=True))


def test_lean_runtimes():
    inside = decide(requested_build(lean="embedded", dla=False)).plans[0].flags
    assert "VERSION_COMPATIBLE" in inside
    assert "EXCLUDE_LEAN_RUNTIME" not in inside
    without = decide(requested_build(lean="external", version_compatible=False, dla=False))
    assert any("build.lean has no effect" in note for note in without.notes)


CHOICES = st.sampled_from(["auto", True, False])


@given(
    tensorrt=st.sampled_from(RELEASES),
    mode=st.sampled_from(["hybrid", "standalone", "split"]),
    dla=st.booleans(),
    strip=CHOICES,
    version_compatible=CHOICES,
    refit=st.sampled_from(["identical", "any", ("w",)]),
    lean=st.sampled_from(["auto", "embedded", "external"]),
    precision=st.sampled_from(["int8", "fp16", "fp32"]),
    profiles=st.integers(0, 2),
    plugins=st.booleans(),
    qdq=st.booleans(),
)
def test_no_attempt_has_what_the_release_lacks_or_forbids(**requested):
    try:
        made = decide(RequestedBuild(target=ORIN, **requested))
    except ConfigError:
        return
    on = release(requested["tensorrt"])
    by_flag = {feature.builder_flag: name for name, feature in features().items()}
    for kind, attempts in (("plan", made.plans), ("loadable", made.loadables)):
        base = "DLA_STANDALONE" if kind == "loadable" else "DLA_HYBRID"
        dla = kind == "loadable" or (requested["dla"] and requested["mode"] == "hybrid")
        assert len(set(attempts)) == len(attempts)
        for attempt in attempts:
            assert all(on.has(f"BuilderFlag.{flag}") for flag in attempt.flags)
            have = {by_flag[flag] for flag in attempt.flags} | ({base} if dla else set())
            against = [
                row
                for row in feature_rules()
                if set(row.of) <= have
                and row.status in ("forbidden", "not_applicable")
                and row.holds(on, ORIN)
            ]
            assert against == []
        if attempts:
            assert attempts[0].gives_up == ""
            # what is asked for outright is in the first attempt
            wanted = {
                "STRIP_PLAN": requested["strip"],
                "VERSION_COMPATIBLE": requested["version_compatible"],
            }
            if kind == "plan":
                assert all(f in attempts[0].flags for f, want in wanted.items() if want is True)
            assert not any(
                f in a.flags for f, want in wanted.items() if want is False for a in attempts
            )
