"""trtexec's flags by release, and the arguments with which it measures as the loader does."""

import pytest

from edgekit.errors import BuildError, UsageError
from edgekit.tensorrt.trtexec import flag_facts, run_command, trtexec
from edgekit_device.benchmark.settings import BenchSettings

SETTINGS = BenchSettings()


def flags(arguments):
    return {argument.partition("=")[0] for argument in arguments}


@pytest.mark.parametrize("release", flag_facts().versions)
@pytest.mark.parametrize("on", [False, True])
def test_a_release_gets_only_flags_that_it_takes(release, on):
    settings = BenchSettings(streams=2, graph=on, spin=on, transfers=on, sleep_ms=on)
    made = run_command(release, settings)
    every = flags([*made.always, *made.gpu, *made.dla, *made.version_compatible])
    assert every <= trtexec(release).flags
    assert "--loadEngine={engine}" in made.always
    assert "--exportTimes={times}" in made.always
    assert made.dla[0] == "--useDLACore={core}"
    assert "--useCudaGraph" not in made.dla  # TensorRT has none with a DLA


def test_the_defaults_of_11_are_made_those_of_10():
    old, new = (run_command(release, SETTINGS) for release in ("10.3.0", "11.1.0"))
    assert old.always == new.always[: len(old.always)]
    assert new.always[len(old.always) :] == ("--noSpinWait", "--includeDataTransfers")
    assert (old.gpu, new.gpu) == ((), ("--noCudaGraph",))
    assert new.dla == ("--useDLACore={core}", "--noCudaGraph")
    spins, no_transfers = BenchSettings(spin=True), BenchSettings(transfers=False)
    for release in ("10.3.0", "11.1.0"):
        assert "--useSpinWait" in run_command(release, spins).always
    for release in ("8.5.2", "11.0.0"):
        assert "--noDataTransfers" in run_command(release, no_transfers).always


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


def test_a_release_before_all_known_ones_has_no_cross_check():
    with pytest.raises(BuildError, match="flags from TensorRT"):
        run_command("7.1.3", SETTINGS)
