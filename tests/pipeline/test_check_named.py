"""``edgekit.check`` with options of wrong forms: told like the configuration tells it."""

from pathlib import Path

import pytest

import edgekit
from edgekit.errors import ConfigError, EdgekitError
from tests.pipeline.nets import small_net

BOARD = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("named") / "net.onnx"
    small_net(path)
    return path


@pytest.mark.parametrize(
    ("options", "where", "hint"),
    [
        ({"tensorrt": 10.3}, "option tensorrt", "put it in quotes: '10.3'"),
        ({"tensorrt": 8}, "option tensorrt", "put it in quotes: '8'"),
        ({"jetpack": 6.2}, "option jetpack", "put it in quotes: '6.2'"),
        ({"power_mode": 30}, "option power_mode", "put it in quotes: '30'"),
        ({"target": 5}, "option target", "put it in quotes: '5'"),
        ({"precision": 8}, "option precision", ""),
        ({"precison": "fp16"}, "option precison", "did you mean 'precision'?"),
        ({"outputs": ["x"]}, "option outputs", "did you mean 'model.outputs'?"),
        ({"placement": {"objectiv": "x"}}, "option placement.objectiv", "did you mean 'objective'"),
        ({"model": {"shapes": 5}}, "option model.shapes", ""),
        ({"model": {"shapes": {"x": "1 by 3"}}}, "option model.shapes.x", ""),
        ({"model": {"shapes": {"x": [1.5]}}}, "option model.shapes.x", ""),
        ({"model": {"shapes": {"x": [1, 0]}}}, "option model.shapes.x", ""),
        ({"model": {"batch": 0}}, "option model.batch", ""),
        ({"model": {"batch": True}}, "option model.batch", ""),
        ({"model": {"outputs": "x"}}, "option model.outputs", ""),
        ({"model": {"plugins": "MyOp"}}, "option model.plugins", ""),
        ({"parser": "yes"}, "option parser", ""),
        ({"model": 5}, "option model", ""),
        ({"calibration": {"cache": 5}}, "option calibration.cache", ""),
    ],
)
def test_an_option_of_a_wrong_form_is_named(options, where, hint, net):
    with pytest.raises(ConfigError) as caught:
        edgekit.check(net, **{"target": BOARD, **options})
    assert caught.value.where == where
    assert hint in caught.value.hint


def test_paths_and_tuples_are_as_good_as_texts_and_lists(net):
    folder = Path(edgekit.__file__).parents[1] / "targets"
    known = edgekit.check(net, target=BOARD).to_json()
    for options in (
        {"model": {"outputs": ()}},
        {"target": folder / f"{BOARD}.yaml"},
        {"calibration": {"data": net.parent}},
    ):
        found = edgekit.check(net, **{"target": BOARD, **options}).to_json()
        assert found["summary"] == known["summary"]


def test_a_board_of_nobody_is_no_crash(net):
    for target in (Path("nowhere.yaml"), "nowhere.yaml", ""):
        with pytest.raises(EdgekitError):
            edgekit.check(net, target=target)
