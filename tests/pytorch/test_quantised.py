"""Networks that were trained with fake quantisation keep their scales as Q/DQ nodes."""

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.errors import ModelError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:torch.ao")

ORIN = "jetson-agx-orin-64gb"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.ao.quantization.QuantStub()
        self.conv = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.relu = torch.nn.ReLU()
        self.second = torch.nn.Conv2d(16, 16, 3, padding=1)
        self.last = torch.nn.Linear(16, 4)

    def forward(self, x):
        x = self.relu(self.norm(self.conv(self.stem(x))))
        return self.last(self.second(x).mean((2, 3)))


def trained(codes=(-128, 127), weight_codes=(-127, 127)):
    """A network after some steps of quantisation-aware training."""
    from torch.ao import quantization as ao

    torch.manual_seed(0)
    net = ao.fuse_modules_qat(Net().train(), [["conv", "norm", "relu"]])
    net.qconfig = ao.QConfig(
        activation=ao.FakeQuantize.with_args(
            observer=ao.MovingAverageMinMaxObserver,
            quant_min=codes[0],
            quant_max=codes[1],
            dtype=torch.qint8,
            qscheme=torch.per_tensor_symmetric,
        ),
        weight=ao.FakeQuantize.with_args(
            observer=ao.MovingAveragePerChannelMinMaxObserver,
            quant_min=weight_codes[0],
            quant_max=weight_codes[1],
            dtype=torch.qint8,
            qscheme=torch.per_channel_symmetric,
            ch_axis=0,
        ),
    )
    net = ao.prepare_qat(net)
    for _ in range(8):
        net(torch.randn(2, 3, 16, 16))
    net.apply(ao.disable_observer)
    return net.eval()


@pytest.fixture(scope="module")
def image():
    return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def scales(path):
    """The scales of Q nodes of activations, in order, and the axes of those of weights."""
    graph = onnx.load(path).graph
    known = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            known[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    found = [known[node.input[1]] for node in graph.node if node.op_type == "QuantizeLinear"]
    return [float(one) for one in found if one.size == 1], [
        one.size for one in found if one.size > 1
    ]


@pytest.mark.slow
@pytest.mark.parametrize("exporter", ["dynamo", "legacy"])
def test_fake_quantisers_become_quantize_and_dequantize_nodes(image, exporter):
    net = trained()
    made = edgekit.export(net, (image,), target=ORIN, exporter=exporter)
    nodes = [node.op_type for node in onnx.load(made.file).graph.node]
    assert "Clip" not in nodes
    assert nodes.count("QuantizeLinear") == nodes.count("DequantizeLinear") == 7
    of_tensors, of_weights = scales(made.file)
    measured = [net.stem, net.conv, net.second, net.last]
    assert of_tensors == pytest.approx(
        [float(one.activation_post_process.scale) for one in measured]
    )
    assert of_weights == [16, 16, 4]
    assert made.agreement.difference <= made.agreement.tolerance == pytest.approx(0.02)
    assert any("7 fake quantisers" in note for note in made.notes)
    # the caller's module still trains
    assert isinstance(net.stem.activation_post_process, torch.ao.quantization.FakeQuantize)


@pytest.mark.slow
def test_a_network_of_such_training_is_compiled_with_its_scales(image, tmp_path):
    net = trained()
    made = edgekit.compile(net, (image,), target=ORIN, precision="int8", out=tmp_path)
    wanted = net(image).detach().numpy()
    # implicit INT8 quantises no output of the network, so nothing saturates there
    last = 127 * float(net.last.activation_post_process.scale)
    found = np.clip(made(image).numpy(), -last, last)
    np.testing.assert_allclose(found, wanted, atol=0.05 * np.abs(wanted).max())
    assert "int8" in {layer.precision for layer in made.plan.layers}


@pytest.mark.slow
def test_a_switched_off_quantiser_leaves_no_node(image):
    net = trained()
    net.apply(torch.ao.quantization.disable_fake_quant)
    made = edgekit.export(net, (image,), target=ORIN)
    assert not {"QuantizeLinear", "DequantizeLinear"} & {
        node.op_type for node in onnx.load(made.file).graph.node
    }


def test_a_quantiser_of_four_bits_is_refused_by_its_module(image):
    net = trained(weight_codes=(-8, 7))
    with pytest.raises(ModelError) as error:
        edgekit.export(net, (image,), target=ORIN)
    assert error.value.code == "torch.fake_quant"
    assert error.value.where == "conv.weight_fake_quant"
    assert "-8..7" in error.value.message


def test_asymmetric_codes_are_refused_by_the_quantiser(image):
    net = trained()
    name, one = next(
        (n, m) for n, m in net.named_modules() if n.endswith("activation_post_process")
    )
    one.zero_point.fill_(5)
    with pytest.raises(ModelError, match="asymmetric codes") as error:
        edgekit.export(net, (image,), target=ORIN)
    assert (error.value.code, error.value.where) == ("torch.fake_quant", name)
    assert "symmetric codes" in error.value.hint
