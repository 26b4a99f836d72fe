"""CTC recognisers: strings from rows of classes, and their head recognised by structure.

The networks are rebuilt; ``test_text_packages.py`` has PaddleOCR's own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.detection.recognise import disagreement, recognise
from edgekit.detection.recognised import Recognised, Unlike
from edgekit.detection.text_line import recognise_text_line
from edgekit.network.loading.load import load
from edgekit_device.detection.detect import decode, detect
from edgekit_device.detection.head import Head, TextLineHead
from tests.detection.text_nets import CHARACTERS, loaded, recogniser
from tests.exports import load as load_export

LETTERS = ("a", "b", "c", "7", " ")
HEAD = Head("CTC", ("rows",), text_line=TextLineHead("rows", False, LETTERS, (32, 64)))


def rows(steps: str, sure: float = 0.9) -> np.ndarray:
    """Returns [steps, classes]: a character or "-" for the blank a step, with its probability."""
    found = np.full((len(steps), len(LETTERS) + 1), (1 - sure) / len(LETTERS), np.float32)
    for step, character in enumerate(steps):
        found[step, 0 if character == "-" else LETTERS.index(character) + 1] = sure
    return found


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ("aab-b-c7", "abbc7"),
        ("--a---a-", "aa"),
        ("aaaaaaaa", "a"),
        ("a a  -b ", "a a b "),
        ("-7777777", "7"),
    ],
)
def test_repeats_and_blanks_are_dropped(steps: str, text: str) -> None:
    ((one,),) = detect(HEAD, {"rows": rows(steps)[None]})
    assert one.text == text
    assert one.score == pytest.approx(0.9)
    assert one.box == (0, 0, 64, 32)


def test_lines_of_a_batch_are_read_each_and_an_empty_one_is_none() -> None:
    lines = np.stack([rows("ab-c", 0.5), rows("----"), rows("7-77", 0.7)])
    lines[0, 0] = rows("a", 0.9)[0]
    first, none, last = detect(HEAD, {"rows": lines})
    assert (first[0].text, none, last[0].text) == ("abc", [], "77")
    # only the steps that give a character count
    assert first[0].score == pytest.approx((0.9 + 0.5 + 0.5) / 3)
    assert detect(HEAD, {"rows": np.stack([rows("----")])}) == [[]]


@pytest.mark.parametrize(("batch", "width"), [(1, 64), (3, 40)])
def test_a_recogniser_is_recognised_and_its_rows_decoded(batch: int, width: int) -> None:
    model = loaded(recogniser(batch=batch, width=width))
    found = recognise(model, {"character": CHARACTERS})
    assert isinstance(found, Recognised)
    assert found.head.text_line is not None
    assert found.head.text_line.characters == LETTERS
    assert found.head.text_line.size == (32, width)
    assert list(found.own.values()) == list(model.graph.outputs)
    raw = np.random.default_rng(0).normal(0, 3, (batch, width // 8, 6)).astype(np.float32)
    (ours,) = decode(found.head, {found.head.outputs[0]: raw}).values()
    raised = np.exp(raw.astype(float))
    assert ours == pytest.approx(raised / raised.sum(axis=2, keepdims=True), rel=1e-5)
    texts = detect(found.head, {found.head.outputs[0]: raw})
    for line, best in zip(texts, raw.argmax(axis=2), strict=True):
        kept = [b for b, before in zip(best, [0, *best], strict=False) if b not in (0, before)]
        assert [one.text for one in line] == ["".join(LETTERS[i - 1] for i in kept)]
    wrong = replace(found.head, text_line=replace(found.head.text_line, softmax=False))
    assert disagreement(model, replace(found, head=wrong))


def test_a_space_that_is_listed_is_not_added() -> None:
    found = recognise(loaded(recogniser()), {"character": "a\r\nb\r\nc\r\n7\r\n_"})
    assert isinstance(found, Recognised)
    assert found.head.text_line is not None
    assert found.head.text_line.characters == ("a", "b", "c", "7", "_")


def test_paddleocrs_own_graph_is_recognised(tmp_path: Path) -> None:
    onnx.save(load_export("ppocr_v4_recognition"), tmp_path / "m.onnx")
    model = load(tmp_path / "m.onnx")
    characters = "\n".join(chr(0x4E00 + i) for i in range(6623))
    found = recognise(model, {"character": characters})
    assert isinstance(found, Recognised)
    assert found.head.outputs == ("p2o.Add.277",)


@pytest.mark.parametrize(
    ("end", "metadata", "words"),
    [
        ("logits", CHARACTERS, "is of Add 'Add.6', not a Softmax of classes"),
        ("joined", CHARACTERS, "reads no dense layer with a class for each column of weights"),
        ("places", CHARACTERS, "the 32 steps before MatMul 'MatMul.4' are not a map of height 1"),
        ("pooled", CHARACTERS, "is [1, 6], CTC's is [batch, steps, classes]"),
        ("CTC", None, "the characters of its 6 classes are unknown: the file's metadata has no"),
        ("CTC", "a\nb", "has 2 characters, which with the blank are not its 6 classes"),
    ],
)
def test_another_network_is_not_taken_for_a_recogniser(
    end: str, metadata: str | None, words: str
) -> None:
    own = {} if metadata is None else {"character": metadata}
    model = loaded(recogniser(end=end))
    found = recognise_text_line(model, own)
    assert isinstance(found, Unlike)
    assert found.family == "CTC (a recogniser of text lines)"
    assert words in found.differs
