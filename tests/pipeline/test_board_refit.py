"""Refits of engines that a board built with their weights inside."""

from __future__ import annotations

import pytest

from edgekit.errors import BoardError, UsageError
from tests.pipeline.nets import small_net
from tests.pipeline.test_board_build import board, config_of, pipeline


@pytest.mark.whole
@pytest.mark.boards
@pytest.mark.slow
def test_engines_that_keep_their_weights_take_others_all_the_same(tmp_path):
    with board(tmp_path, "10.3.0") as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{refit: any, strip: false}")
        other = tmp_path / "other.onnx"
        small_net(other, seed=0, scale=1.01)
        with pipeline(path, tmp_path) as one:
            document = one.deploy().to_json()
            refitted = one.refit(other).to_json()
        assert refitted["changed"] >= 1
        assert refitted["releases"][0]["release"] != document["releases"][0]["release"]
        # weights that need other ranges than those that were calibrated
        small_net(other, seed=1)
        with pipeline(path, tmp_path) as one, pytest.raises(BoardError) as off:
            one.refit(other)
        assert off.value.code == "selftest.failed"
        assert "calibrate again" in off.value.hint
        small_net(other, seed=0, scale=1.01)
        # weights that are fixed in the engine are no refit's
        path = config_of(tmp_path, deploy, "10.3", "{refit: [conv1.w], strip: false}")
        with pipeline(path, tmp_path) as two, pytest.raises(UsageError) as caught:
            two.refit(other)
        assert caught.value.code == "refit.fixed"
