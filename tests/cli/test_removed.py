"""Commands and options that were removed say what to do instead."""

import pytest

from edgekit.cli import main


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["bundle", "push", "net.ekb", "folder"], "edgekit bundle push", "edgekit deploy"),
        (
            ["fleet", "export", "ansible", "out", "-c", "c.yaml", "--mirror", "https://m"],
            "edgekit fleet export --mirror",
            "Ansible copies",
        ),
    ],
)
def test_what_was_removed_names_what_to_do(words, message, hint, capsys):
    with pytest.raises(SystemExit) as caught:
        main.main(words)
    error = capsys.readouterr().err
    assert caught.value.code == 2
    assert f"{message} no longer exists" in error
    assert hint in error
