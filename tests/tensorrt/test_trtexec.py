"""trtexec's command lines: flags that a release has, names as its own parser reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.errors import BuildError, UsageError
from edgekit.tensorrt.options import BuildAttempt, decide
from edgekit.tensorrt.trtexec import flag_facts, trtexec
from edgekit.tensorrt.trtexec import trtexec_command as command_of
from edgekit_device.build.request import Attempt
from tests.tensorrt.build_requests import (
    RELEASES,
    engine,
    loadable,
    requested_build,
    spec,
    strong_engine,
)

NONE = BuildAttempt(())


def values(arguments):
    """The command line as trtexec takes it apart: at the first "=" of each argument."""
    return {part[0]: part[2] for part in (argument.partition("=") for argument in arguments)}


def items(text):
    """A list as trtexec reads it: at each comma, each item at its last colon."""
    return [tuple(item.rsplit(":", 1)) for item in text.split(",")]


def trtexec_command(document, attempt, *release, **options):
    if isinstance(attempt, dict):
        attempt = Attempt(tuple(attempt["flags"]), "")
    return command_of(spec(document), attempt, *release, **options)


def refused(*arguments):
    with pytest.raises(BuildError) as caught:
        trtexec_command(*arguments)
    return caught.value


def test_a_hybrid_build_of_jetpack_6():
    made = decide(requested_build("10.3"))
    given = values(trtexec_command(engine(), made.plans[0], "10.3"))
    assert given["--onnx"] == "{model}"
    assert given["--saveEngine"] == "{engine}"
    assert given["--useDLACore"] == "0"
    assert given["--calib"] == "{calibration}"
    assert {"--allowGPUFallback", "--fp16", "--int8", "--versionCompatible", "--stripWeights",
            "--excludeLeanRuntime", "--skipInference", "--verbose"} <= given.keys()  # fmt: skip
    assert items(given["--layerDeviceTypes"]) == [("head/soft:0", "GPU")]
    assert items(given["--layerPrecisions"]) == [
        ("conv", "int8"), ("relu", "int8"), ("head/soft:0", "fp16"),
    ]  # fmt: skip
    assert items(given["--layerOutputTypes"]) == [("head/soft:0", "fp16")]
    assert given["--precisionConstraints"] == "prefer"
    # float32 in rows is what trtexec takes by itself
    assert "--inputIOFormats" not in given


def test_flags_that_were_renamed():
    assert "--buildOnly" in trtexec_command(engine(), NONE, "8.5.2")
    assert "--skipInference" in trtexec_command(engine(), NONE, "8.6.2")
    assert "--skipInference" in trtexec_command(engine(), NONE, "10.3")


def test_11_has_no_precision_flags():
    given = values(
        trtexec_command(strong_engine(), decide(requested_build("11.4.1")).plans[0], "11.4.1")
    )
    assert "--stronglyTyped" in given
    assert not {"--fp16", "--int8", "--calib", "--layerPrecisions"} & given.keys()
    assert refused(engine(), NONE, "11.4.1").code == "trtexec.refuses"
    assert refused(strong_engine(), NONE, "8.6.2").code == "trtexec.refuses"


def test_an_engine_that_trtexec_cannot_open_has_no_layer_information():
    assert "--exportLayerInfo={layer_info}" in trtexec_command(engine(), NONE, "10.3")
    lean = {"flags": ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"]}
    assert not any("LayerInfo" in x for x in trtexec_command(engine(), lean, "10.3"))
    assert not any("LayerInfo" in x for x in trtexec_command(loadable(), {"flags": []}, "10.3"))


def test_a_loadable():
    given = values(
        trtexec_command(loadable(), decide(requested_build(mode="standalone")).loadables[0], "10.3")
    )
    assert given["--inputIOFormats"] == "int8:dla_hwc4"
    assert given["--outputIOFormats"] == "int8:chw32"
    assert {"--buildDLAStandalone", "--directIO", "--useDLACore"} <= given.keys()
    assert not {"--allowGPUFallback", "--layerDeviceTypes"} & given.keys()


def tensor(dtype, *formats):
    return [{"name": "t", "dtype": dtype, "shape": [1, 3, 8, 8], "formats": list(formats),
             "scale": None}]  # fmt: skip


@pytest.mark.parametrize(
    ("side", "wrong"),
    [("inputs", tensor("float32", "DLA_LINEAR")), ("inputs", tensor("int8", "CHW16")),
     ("inputs", tensor("float16", "CHW32")), ("inputs", tensor("int8", "LINEAR")),
     ("inputs", tensor("int8")), ("inputs", tensor("int8", "CHW32", "DLA_LINEAR")),
     ("outputs", tensor("int8", "DLA_HWC4")), ("outputs", tensor("float16", "CHW4"))],
)  # fmt: skip
def test_formats_that_a_loadable_cannot_have(side, wrong):
    error = refused(loadable(**{side: wrong}), {"flags": ["DIRECT_IO"]}, "10.3")
    assert error.code == "trtexec.refuses"
    assert "float16: DLA_LINEAR" in error.hint


def test_a_loadable_falls_back_to_nothing():
    assert refused(loadable(gpu_fallback=True), NONE, "10.3").code == "trtexec.refuses"
    assert refused(loadable(device="GPU"), NONE, "10.3").code == "trtexec.refuses"


def test_int8_without_scales_would_be_made_up():
    error = refused(engine(calibration=None), NONE, "10.3")
    assert "needs a calibration cache" in error.message
    assert trtexec_command(engine(calibration=None, precisions=["fp16"]), NONE, "10.3")


def test_what_trtexec_cannot_set():
    named = refused(engine(refit_individual=["w"]), {"flags": ["REFIT_INDIVIDUAL"]}, "10.3")
    assert named.code == "trtexec.refuses"
    assert refused(engine(), {"flags": ["REFIT_IDENTICAL"]}, "10.3").code == "trtexec.flag"
    assert refused(engine(), {"flags": ["STRIP_PLAN"]}, "8.6.2").code == "trtexec.flag"
    both = trtexec_command(engine(), {"flags": ["STRIP_PLAN", "REFIT"]}, "10.3")
    assert {"--stripWeights", "--refit"} <= set(both)


@pytest.mark.parametrize("name", ["a,b", "it's", "a*b", ""])
def test_names_that_its_parser_cannot_be_reported(name):
    layers = [{**engine()["layers"][1], "nodes": [name]}]
    error = refused(engine(layers=layers), NONE, "10.3")
    assert error.code == "trtexec.name"
    assert "backend: tensorrt" in error.hint


@given(st.lists(st.text(st.characters(exclude_characters=",'*", exclude_categories=["C"]),
                        min_size=1), min_size=1, unique=True))  # fmt: skip
def test_other_names_come_through(names):
    layers = [{**engine()["layers"][1], "name": n, "nodes": [n]} for n in names]
    given_ = values(trtexec_command(engine(layers=layers), NONE, "10.3"))
    assert items(given_["--layerDeviceTypes"]) == [(name, "GPU") for name in names]


def test_constants_have_no_precision():
    layers = [{**engine()["layers"][0], "kind": "CONSTANT"}]
    given = values(trtexec_command(engine(layers=layers), NONE, "10.3"))
    assert "--precisionConstraints" not in given


def test_a_list_too_long_is_shortened_and_then_refused():
    plain, retained = engine()["layers"]
    many = [{**plain, "nodes": [f"{n:040}"]} for n in range(4000)]
    notes = []
    given = values(trtexec_command(engine(layers=[*many, retained]), NONE, "10.3", notes=notes))
    assert items(given["--layerPrecisions"]) == [("head/soft:0", "fp16")]
    assert any("do not fit" in note for note in notes)
    gpu = [{**layer, "device": "GPU"} for layer in many]
    assert refused(engine(layers=gpu), NONE, "10.3").code == "trtexec.length"


def test_memory_pools_are_exact_mebibytes():
    pools = {"DLA_MANAGED_SRAM": 1 << 20, "DLA_LOCAL_DRAM": 4096, "WORKSPACE": 3 << 29,
             "TACTIC_SHARED_MEMORY": 1 << 16}  # fmt: skip
    given = dict(items(values(trtexec_command(engine(pools=pools), NONE, "10.3"))["--memPoolSize"]))
    assert {name: float(size) * 2**20 for name, size in given.items()} == {
        "dlaSRAM": 1 << 20, "dlaLocalDRAM": 4096, "workspace": 3 << 29,
        "tacticSharedMem": 1 << 16,
    }  # fmt: skip
    notes = []
    old = values(trtexec_command(engine(pools=pools), NONE, "8.5.2", notes=notes))
    assert "tacticSharedMem" not in old["--memPoolSize"]
    assert any("TACTIC_SHARED_MEMORY" in note for note in notes)


@pytest.mark.parametrize(("device", "reported"), [("GPU", True), ("DLA", False)])
def test_layers_that_have_no_name_are_reported_of(device, reported):
    gemm = {
        **engine()["layers"][0], "name": "fc", "nodes": ["fc"], "device": device,
        "builder_name": "fc + (Unnamed Layer* 10) [ElementWise]",
    }  # fmt: skip
    notes = []
    line = values(
        trtexec_command(engine(layers=[*engine()["layers"], gemm]), NONE, "10.3", notes=notes)
    )
    assert ("fc:GPU" in line["--layerDeviceTypes"]) == reported
    assert any("fc" in note and "bias" in note for note in notes) == reported


def test_types_that_old_releases_do_not_take():
    wide = engine(inputs=tensor("int64"))
    assert values(trtexec_command(wide, NONE, "10.3"))["--inputIOFormats"] == "int64:chw"
    assert refused(wide, NONE, "8.6.2").code == "trtexec.format"


def test_profiles():
    sizes = {"min": [1, 3], "opt": [2, 3], "max": [4, 3]}
    scalar = {which: [] for which in sizes}
    gpu = engine(device="GPU", gpu_fallback=False, profiles=[{"x": sizes, "s": scalar}])
    given = values(trtexec_command(gpu, NONE, "10.3"))
    assert given["--optShapes"] == "x:2x3,s:scalar"
    assert "--profile" not in given
    two = {**gpu, "profiles": gpu["profiles"] * 2}
    assert [x for x in trtexec_command(two, NONE, "10.3") if x.startswith("--profile=")] == [
        "--profile=0", "--profile=1",
    ]  # fmt: skip
    assert refused(two, NONE, "8.6.2").code == "trtexec.flag"


def test_a_constraint_that_a_release_lacks_is_noted():
    notes = []
    given = trtexec_command(engine(optimization_level=2), NONE, "8.5.2", notes=notes)
    assert not any("OptimizationLevel" in argument for argument in given)
    assert "--builderOptimizationLevel" in notes[0]
    assert "--builderOptimizationLevel=2" in trtexec_command(
        engine(optimization_level=2), NONE, "8.6.2"
    )


def test_releases_between_and_beyond():
    assert trtexec("8.6.2").flags == trtexec("8.6.1").flags
    assert trtexec("10.3.0.30").flags == trtexec("10.3").flags
    assert trtexec("10.5").flags == trtexec("10.3").flags & trtexec("10.7").flags
    assert trtexec("12.1").flags == trtexec("11.1").flags
    with pytest.raises(BuildError) as caught:
        trtexec("8.4.1")
    assert caught.value.code == "trtexec.version"
    with pytest.raises(UsageError):
        trtexec("new")


MODES = st.sampled_from(["hybrid", "standalone", "split"])


@given(
    tensorrt=st.sampled_from(RELEASES), mode=MODES, refit=st.sampled_from(["identical", "any"]),
    lean=st.sampled_from(["auto", "embedded"]), level=st.sampled_from([None, 0, 5]),
    constraints=st.sampled_from(["prefer", "obey", "none"]), cache=st.booleans(),
    pools=st.sampled_from([{}, {"DLA_MANAGED_SRAM": 4096, "WORKSPACE": 1}]),
)  # fmt: skip
def test_no_release_is_given_a_flag_that_it_does_not_know(
    tensorrt, mode, refit, lean, level, constraints, cache, pools
):
    refit = "identical" if mode == "standalone" else refit
    made = decide(requested_build(tensorrt, mode=mode, refit=refit, lean=lean))
    other = {"optimization_level": level, "pools": pools}
    if made.typing == "strong":
        other |= {"typing": "strong", "precisions": [], "constraints": "none"}
    else:
        other |= {"constraints": constraints}
    near = "11.1.0" if tensorrt == "11.4.1" else tensorrt
    known = {
        flag for flag, where in flag_facts()["flags"].items()
        if where == "all" or any(v.startswith(".".join(near.split(".")[:2])) for v in where)
    }  # fmt: skip
    for build, attempts in ((engine, made.plans), (loadable, made.loadables)):
        for attempt in attempts:
            line = trtexec_command(build(**other), attempt, tensorrt, timing_cache=cache)
            assert values(line).keys() <= known
            assert len(values(line)) == len(line)
            assert any("{timing_cache}" in argument for argument in line) == cache
