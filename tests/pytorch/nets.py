"""Modules of tests, and factories of them; importing this imports PyTorch."""

import dataclasses
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional


class LeNetFeatExtractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 16, 3)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), (2, 2))
        return functional.max_pool2d(functional.relu(self.conv2(x)), 2)


class LeNetClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16 * 6 * 6, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = functional.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(functional.relu(self.fc2(x)))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.feat = LeNetFeatExtractor()
        self.classifer = LeNetClassifier()

    def forward(self, x):
        return self.classifer(self.feat(x))


def lenet(seed=0):
    torch.manual_seed(seed)
    return LeNet().eval()


def image(seed=1):
    return torch.randn(1, 1, 32, 32, generator=torch.Generator().manual_seed(seed))


def lenet_with_example():
    return lenet(), (image(),)


class Boxes(NamedTuple):
    where: torch.Tensor
    score: torch.Tensor


class Nested(nn.Module):
    """Takes a dict, a keyword and a number, and returns a dict of what modules return."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, batch, scale=1.0, *, mask=None):
        y = self.stem(batch["image"]) * scale
        if mask is not None:
            y = y * mask
        pair = Boxes(y.mean((2, 3)), y.amax((1, 2, 3)))
        return {"out": y, "more": [pair, None, "classes"], "image": batch["image"]}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x, state=None):
        y, state = self.cells(x, state)
        return self.head(y), state


class Counted(nn.Module):
    """Counts its calls in a buffer that no result depends on."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.mul_(0.5).add_(x.mean(0))
        return x + self.mean


class Dropping(nn.Module):
    def forward(self, x):
        return functional.dropout(x, 0.5, training=True)


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Router(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        if x.max() > 1:
            x = x * 3
        return x


class Eigenvalues(nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x).real


class Around(nn.Module):
    """A module at the path "blocks.1"."""

    def __init__(self, inner):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.Sequential(nn.ReLU(), inner)

    def forward(self, x):
        return self.blocks(self.first(x))


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.layers(x)


class Sizes(nn.Module):
    """Branches on sizes alone, which is no control flow of a network."""

    def forward(self, x):
        if x.shape[-1] % 2:
            x = functional.pad(x, (0, 1))
        return x[..., : int(x.shape[-1] // 2)]


class Middle(nn.Module):
    """Called twice, with and without a keyword; nested results, of which one is no tensor."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(6, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 1)

    def forward(self, x, scale=1.0):
        y = self.first(x)
        return {"scaled": y * scale, "more": (self.second(y), 7)}


class CalledTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Conv2d(1, 6, 3)
        self.middle = Middle()
        self.unused = nn.Linear(2, 2)
        self.end = nn.Linear(6, 3)
        self.register_buffer("weight", torch.ones(6, 1, 1))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        x = functional.relu(self.start(x))
        found = self.middle(x * self.weight, scale=2.0)
        x = found["scaled"] + x + found["more"][0] * found["more"][1]
        found = self.middle(x)
        return self.end((found["scaled"] + found["more"][0]).mean((2, 3)))


def called_twice():
    torch.manual_seed(0)
    return CalledTwice().eval()


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3)
        self.router = Router()

    def forward(self, x):
        return self.router(self.stem(x)).mean((2, 3))


def routed():
    torch.manual_seed(0)
    return Routed().eval()


class Times(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        return x @ self.weight


class Plus(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x):
        return x + self.bias


class Halves(nn.Module):
    """A matrix product whose two nodes are of two modules, inside a block beside another one."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(Times(), Plus())
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.block(x))


def halves():
    torch.manual_seed(0)
    return Halves().eval()


class Writing(nn.Module):
    """Writes to its input."""

    def forward(self, x):
        x.add_(1)
        return x * 2


class Reading(nn.Module):
    """Reads values of its input into Python."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x):
        if self.how == "numpy":
            return x * float(x.numpy().max())
        return x * max(map(max, x.tolist()))


class Selecting(nn.Module):
    """Returns as many values as are positive, or their sum."""

    def __init__(self, total):
        super().__init__()
        self.total = total

    def forward(self, x):
        chosen = x[x > 0]
        return chosen.sum() if self.total else chosen


class Mixed(nn.Module):
    """Reads one of its inputs, and returns a size beside tensors."""

    def forward(self, before, x, after):
        return x > 0, x.shape[0], x * 2


class Gradients(nn.Module):
    """Switches gradients off and on."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        with torch.no_grad():
            x = self.first(x)
        with torch.enable_grad():
            return self.second(x)


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


class OfPairs(nn.Module):
    def forward(self, x, pair):
        return x * pair.left + pair.right


class Anchored(nn.Module):
    """Returns features, a weight, a buffer and its input; reads one of two inputs."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3)
        self.register_buffer("anchors", torch.arange(400).reshape(100, 4))

    def forward(self, unread, x):
        return self.stem(x), self.stem.weight, self.anchors, x
