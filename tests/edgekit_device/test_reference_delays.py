"""Synthetic delays of the reference backend."""

import json
import threading

import pytest

from edgekit_device import _reference_delays as module
from edgekit_device._errors import DeviceError
from edgekit_device._reference_delays import VARIABLE, Delays, read_delays


def test_delays_by_device_operator_and_segment(monkeypatch, tmp_path):
    asked = {"GPU": {"Conv": 900, "*": 1}, "DLA": {"Conv": 300, "segment": 50, "together": 7},
             "DLA1": {"Conv": 5}}  # fmt: skip
    monkeypatch.setenv(VARIABLE, json.dumps(asked))
    delays = Delays(read_delays(), ["Conv", "Relu", "Conv"])
    assert delays.us("GPU") == 1801
    assert delays.us("DLA0") == 650
    assert delays.us("DLA0", together=True) == 657
    assert delays.us("DLA1") == 10
    file = tmp_path / "delays.json"
    file.write_text(json.dumps(asked))
    monkeypatch.setenv(VARIABLE, str(file))
    assert read_delays() == asked
    monkeypatch.delenv(VARIABLE)
    assert read_delays() is None


def test_a_device_is_not_alone_while_another_waits(monkeypatch):
    inside, go = threading.Event(), threading.Event()
    slept = []

    def sleep(seconds):
        slept.append(round(seconds * 1e6))
        if len(slept) == 1:
            inside.set()
            go.wait(10)

    monkeypatch.setattr(module.time, "sleep", sleep)
    delays = Delays({"GPU": {"segment": 5, "together": 40}, "DLA": {"segment": 3}}, [])
    other = threading.Thread(target=delays.spend, args=("DLA0",))
    other.start()
    assert inside.wait(10)
    delays.spend("GPU")
    go.set()
    other.join()
    delays.spend("GPU")
    assert slept == [3, 45, 5]


@pytest.mark.parametrize("text", ["{", "[1]", '{"GPU": 3}', '{"GPU": {"Conv": -1}}', "/no/such",
                                  '{"GPU": {"Conv": NaN}}'])  # fmt: skip
def test_what_is_no_delay(monkeypatch, text):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(DeviceError) as error:
        read_delays()
    assert error.value.code == "reference.delays"
