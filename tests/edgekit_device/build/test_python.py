"""One attempt through the Python API, against the strict double of each release."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from tests.edgekit_device.build import toys
from tests.edgekit_device.build.bench import WEAK, Bench, document_for


@pytest.mark.parametrize("version", WEAK)
def test_layers_run_where_the_plan_has_them(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    # the board could run all of it on the DLA: the plan decides
    on.double.settings.can_run_on_dla = lambda layer: True
    built = on.build(toys.engine())
    said = [text for _, text in on.double.messages]
    dla = [text for text in said if text.startswith("[DlaLayer]")]
    assert dla == ["[DlaLayer] {ForeignNode[conv1...relu2]}"]
    gpu = "\n".join(text for text in said if text.startswith("[GpuLayer]"))
    assert all(name in gpu for name in toys.ON_GPU)
    assert set(built.can_run_on_dla) == {*toys.ON_DLA, *toys.ON_GPU}


@pytest.mark.parametrize("version", WEAK)
def test_weak_builds_set_flags_and_precisions(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    built = on.build(toys.engine(constraints="obey"))
    assert set(built.flags) == {"FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS", "GPU_FALLBACK"}
    assert set(built.flags) <= set(on.double.builds[0])


def test_a_weakly_typed_request_on_a_strongly_typed_release_is_refused(tmp_path: Path) -> None:
    on = Bench("11.4.0", tmp_path)
    with pytest.raises(DeviceError, match=r"every network of TensorRT 11\.4\.0") as refused:
        on.build(toys.engine(device="GPU", gpu_fallback=False))
    assert refused.value.code == "build.typing"
    assert "--tensorrt" in refused.value.hint


def test_a_strongly_typed_network_on_a_release_that_has_both(tmp_path: Path) -> None:
    on = Bench("10.7.0", tmp_path)
    built = on.build(toys.strong(device="GPU", gpu_fallback=False))
    assert built.flags == ()
    assert on.double.violations == []


def test_types_of_a_strongly_typed_network_are_the_models(tmp_path: Path) -> None:
    on = Bench("11.4.0", tmp_path)
    wrong = toys.strong(inputs=[toys.io("x", [1, 3, 8, 8], "int8")])
    with pytest.raises(DeviceError, match="input 'x' is float16 instead of int8") as refused:
        on.build(wrong)
    assert refused.value.code == "build.io"


@pytest.mark.parametrize(
    ("version", "lacking"),
    [("8.6.1", {"STRIP_PLAN", "REFIT_IDENTICAL"}), ("10.3.0", set()), ("11.4.0", set())],
)
def test_a_flag_that_the_release_lacks_is_left_out_and_said(
    version: str, lacking: set[str], tmp_path: Path
) -> None:
    on = Bench(version, tmp_path)
    built = on.build(document_for(version), ("STRIP_PLAN", "REFIT_IDENTICAL", "VERSION_COMPATIBLE"))
    reported = {word for note in built.notes for word in lacking if word in note}
    assert reported == lacking
    assert "VERSION_COMPATIBLE" in built.flags
    assert not lacking & set(built.flags)


@pytest.mark.parametrize("version", ["10.3.0", "10.7.0", "11.4.0"])
@pytest.mark.parametrize(
    ("asked", "taken", "refused"),
    [
        (("REFIT", "REFIT_IDENTICAL"), {"REFIT_IDENTICAL"}, "REFIT"),
        (("REFIT_INDIVIDUAL", "REFIT"), {"REFIT"}, "REFIT_INDIVIDUAL"),
        (("STRIP_PLAN", "EXCLUDE_LEAN_RUNTIME"), {"STRIP_PLAN"}, "EXCLUDE_LEAN_RUNTIME"),
    ],
)
def test_a_flag_that_tensorrt_does_not_take_is_said(
    asked: tuple[str, ...], taken: set[str], refused: str, version: str, tmp_path: Path
) -> None:
    on = Bench(version, tmp_path)
    built = on.build(document_for(version), asked)
    assert set(built.flags) & {*asked} == taken
    assert any(f"TensorRT does not take {refused} with" in note for note in built.notes)


def test_the_lean_runtime_is_left_out_whatever_the_order_of_flags(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    flags = ("EXCLUDE_LEAN_RUNTIME", "VERSION_COMPATIBLE")
    built = on.build(document_for("10.3.0"), flags)
    assert set(flags) <= set(built.flags)


def test_single_weights_are_marked_and_a_refusal_is_said(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    document = toys.engine(device="GPU", gpu_fallback=False, refit_individual=["w1", "nothing"])
    built = on.build(document, ("REFIT_INDIVIDUAL",))
    assert any("'nothing'" in note and "'w1'" not in note for note in built.notes)


def test_pools_reach_the_builder_and_unknown_ones_are_said(tmp_path: Path) -> None:
    on = Bench("8.6.1", tmp_path)
    pools = {"DLA_MANAGED_SRAM": 1 << 19, "TACTIC_SHARED_MEMORY": 1 << 20}
    built = on.build(toys.engine(pools=pools))
    assert any("Managed SRAM = 0.5 MiB" in text for _, text in on.double.messages)
    assert any("TACTIC_SHARED_MEMORY" in note for note in built.notes)


def test_a_pool_that_the_builder_does_not_take_is_said(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    built = on.build(toys.engine(pools={"DLA_LOCAL_DRAM": 5000}))
    assert "lane0: TensorRT rejects DLA_LOCAL_DRAM of 5000 bytes" in built.notes


def test_a_second_build_takes_the_firsts_timings(tmp_path: Path) -> None:
    first = Bench("10.3.0", tmp_path).build(toys.engine()).timing_cache
    again = Bench("10.3.0", tmp_path)
    second = again.build(toys.engine()).timing_cache
    assert (first.reused, second.reused) == (False, True)
    assert second.entries_bytes_before == first.after > 0
    assert ("VERBOSE", "0 layers were timed, the others taken from the timing cache") in (
        again.double.messages
    )
    # another release measures anew, and says so
    other = Bench("10.7.0", tmp_path).build(toys.engine())
    assert not other.timing_cache.reused
    assert any("timing cache is damaged or from another device" in note for note in other.notes)
