"""Netron shows the annotated ONNX file's device and time of a node, and of the whole model."""

import json

import onnx
import pytest

from edgekit.cli.main import app
from tests.pipeline.nets import small_net
from tests.reports.chromium_pipe import CHROMIUM

netron = pytest.importorskip("netron", reason="needs netron (pip)")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

# its privacy notice comes before the model, and both come when they are ready
WAIT = """new Promise((done, failed) => {
  const end = Date.now() + 30000;
  const look = () => {
    document.getElementById('message-button')?.click();
    const found = (%s)();
    if (found) done(found);
    else if (Date.now() > end) failed(new Error(document.body.innerText));
    else setTimeout(look, 20);
  };
  look();
})"""
CLICK = """() => document.body.className === 'default' && %s.dispatchEvent(
  new MouseEvent('click', {bubbles: true})
)"""
ROWS = """() => {
  const rows = [...document.querySelectorAll('.sidebar-item')].map((row) => {
    const name = row.querySelector('input');
    const value = row.querySelector('.sidebar-item-value-list').innerText.trim();
    return [name.value, value, name.scrollWidth <= name.clientWidth];
  });
  return rows.some((row) => row[0] === '%s') && rows;
}"""
BUTTON = "document.getElementById('sidebar-model-button')"
NODE = "document.getElementById('node-name-%s').querySelector('.node-item')"


@pytest.mark.whole
def test_a_node_and_the_model_say_device_and_time(tmp_path, browser, capsys):
    small_net(tmp_path / "net.onnx")
    noted = tmp_path / "noted.onnx"
    plan = ["plan", str(tmp_path / "net.onnx"), "-t", "jetson-agx-orin-64gb", "--precision", "fp16"]
    assert app([*plan, "--objective", "gpu_time", "--annotate", str(noted), "--json"]) == 0
    assert any(layer["device"] == "DLA0" for layer in json.loads(capsys.readouterr().out)["layers"])
    model = onnx.load(noted)
    address = netron.start(str(noted), ("127.0.0.1", 0), browse=False)
    try:
        browser.open(f"http://{address[0]}:{address[1]}/")
        for where, key, entries in (
            (BUTTON, "edgekit:target", model.metadata_props),
            (NODE % "conv1", "edgekit.device", model.graph.node[0].metadata_props),
        ):
            browser.js(WAIT % (CLICK % where))
            shown = {name: (value, whole) for name, value, whole in browser.js(WAIT % (ROWS % key))}
            own = [item for item in entries if item.key != "edgekit.rewrite"]
            assert len(own) >= 5
            for item in own:  # the name is not cut, either
                assert shown[item.key] == (item.value, True)
    finally:
        netron.stop(address)
