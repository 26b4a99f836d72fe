import numpy as np

from edgekit.quantize.calibration.calibrate import scales_from
from edgekit.quantize.scales import Ranges, make_scales, tie_cache_scales
from tests.quantize.quantize_nets import branches

MODEL, NETWORK = branches()
AMAX = {"x": 1.0, "a": 0.0, "b": 2.0, "joined": 2.0, "pooled": 1.5, "c": 3.0, "y": 3.0}


def test_measured_ranges_are_tied_before_they_are_scales():
    scales = scales_from(NETWORK, Ranges({"minmax": AMAX}, "toy", 1, ("one image",)), "minmax")
    two = float(np.float32(2 / 127))
    assert {n: scales.scales[n] for n in ("a", "b", "joined", "pooled")} == dict.fromkeys(
        ("a", "b", "joined", "pooled"), two
    )
    assert {c.tensor: (c.old, c.new, c.widest) for c in scales.changes} == {
        "pooled": (float(np.float32(1.5 / 127)), two, "b"),
    }
    assert scales.warnings == ("one image",)
    # a was always zero: it had no range to lose, takes what follows, and widens nothing
    small = Ranges({"minmax": {**AMAX, "b": 0.5, "joined": 0.5, "pooled": 0.5}}, "toy", 1)
    assert scales_from(NETWORK, small, "minmax").scales["b"] == float(np.float32(0.5 / 127))


def test_given_scales_are_tied_and_keep_what_else_is_known_of_them():
    given = make_scales({"joined": 0.5, "pooled": 0.125}, method="cache", data="c", missing=["y"])
    found = tie_cache_scales(given, NETWORK)
    assert dict(found.scales) == {"joined": 0.5, "pooled": 0.5}
    assert (found.method, found.data, found.missing) == ("cache", "c", ("y",))
    assert found.digest == make_scales(found.scales, method="", data="").digest != given.digest
    assert [change.tensor for change in found.changes] == ["pooled"]
    assert tie_cache_scales(found, NETWORK).scales == found.scales
    equal = make_scales({"joined": 0.5, "pooled": 0.5}, method="cache", data="c")
    assert tie_cache_scales(equal, NETWORK).digest == equal.digest
    assert tie_cache_scales(equal, NETWORK).changes == ()
