"""Right classes of samples: read strictly, and what they say about."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundles.labels import read_labels
from edgekit.errors import DataError


def test_one_for_each_of_the_batch(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("3\n0 # a comment\n\n9\n1\n7\n")
    assert read_labels(path, 2, (2, 10)) == [[3, 0], [9, 1]]
    assert read_labels(path, 3, (1, 10, 1, 1)) == [[3], [0], [9]]


@pytest.mark.parametrize(
    ("text", "shape", "said"),
    [
        ("1\n2\n", (1, 10), "2 labels for 3 inputs"),
        ("1\n10\n2\n", (1, 10), "line 2: '10' is not one of the 10 classes"),
        ("1\n-1\n2\n", (1, 10), "line 2"),
        ("1\ncat\n2\n", (1, 10), "line 2"),
        ("1\n1\n1\n", (1, 10, 4, 4), "not one class"),
        ("1\n1\n1\n", (10,), "not one class"),
        (None, (1, 10), "cannot be read"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, text: str | None, shape: tuple[int, ...], said: str
) -> None:
    path = tmp_path / "labels.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        read_labels(path, 3, shape)
    assert (caught.value.code, caught.value.where) == ("data.labels", str(path))
    assert caught.value.hint
