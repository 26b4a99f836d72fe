"""The fixtures of the contracts: `command` runs the CLI, `golden` compares."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from edgekit.cli.main import main
from tests.contracts import goldens
from tests.contracts.normalise import normalised

SHOWN = 20
INTENDED = "where that is intended: scripts/record-contracts, and the difference in the commit"
ROOT = Path(__file__).parents[2]
FOUND = pytest.StashKey[list[str]]()


@dataclass(frozen=True)
class Answer:
    """What a command answered: its exit code, stdout and stderr."""

    exit: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as JSON; None where it is empty."""
        return json.loads(self.out) if self.out else None

    @property
    def contract(self) -> dict[str, Any]:
        """Exit code and document, for ``golden``."""
        return {"exit": self.exit, "document": self.document}


@pytest.fixture(scope="session")
def command() -> Callable[..., Answer]:
    """Runs `edgekit ARGUMENTS --json` in this process (``as_json=False``: without --json)."""

    def run(*arguments: object, as_json: bool = True) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        status: object = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main([*map(str, arguments), *["--json"] * as_json])
            except SystemExit as end:
                status = end.code
        assert "Traceback" not in err.getvalue(), err.getvalue()
        return Answer(status if isinstance(status, int) else 0, out.getvalue(), err.getvalue())

    return run


class Golden(Protocol):
    def __call__(
        self,
        name: str,
        document: Any,
        *,
        tolerance: float = 1e-5,
        words: Mapping[str, str] | None = None,
        paths: Mapping[str, str] | None = None,
        measured: tuple[str, ...] = (),
    ) -> None: ...


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    """Compares a document with the recorded one of this name (see ``Golden``).

    Elsewhere than in the recorded environment floats may differ by the relative ``tolerance``.
    ``words`` names keys whose values are replaced here beside those of normalise.KEYS, and
    ``paths`` beginnings of paths (the test's folder and the checkout are known). The keys of the
    document in ``measured`` ("accuracy", or "document.accuracy") are compared only in the recorded
    environment.
    """

    def compare(
        name: str,
        document: Any,
        *,
        tolerance: float = 1e-5,
        words: Mapping[str, str] | None = None,
        paths: Mapping[str, str] | None = None,
        measured: tuple[str, ...] = (),
    ) -> None:
        places = {str(ROOT): "<checkout>", str(tmp_path): "<tmp>", str(Path.home()): "<home>"}
        plain = json.loads(json.dumps(document))
        new = goldens.compact(normalised(plain, {**places, **(paths or {})}, words))
        _compare(request, name, new, tolerance, measured)

    return compare


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """A test compares all its goldens, and then fails with the differences of each."""
    pyfuncitem.stash[FOUND] = []
    result = yield
    if found := pyfuncitem.stash[FOUND]:
        pytest.fail("\n".join([*found, INTENDED]), pytrace=False)
    return result


def _compare(
    request: pytest.FixtureRequest, name: str, new: Any, tolerance: float, measured: tuple[str, ...]
) -> None:
    file = f"{name}.json"
    text = goldens.text_of(new)
    assert goldens.read(text) == new
    path = goldens.FOLDER / file
    old = goldens.read(path.read_text()) if path.exists() else None
    exact = goldens.as_recorded(name)
    if exact:
        lines = list(goldens.differences(old, new, None))
    else:
        documents = [_without(one, measured) for one in (old, new)]
        lines = list(goldens.differences(*documents, tolerance))
    if target := request.config.getoption("--record"):
        _record(Path(target), name, text, as_it_is=bool(path.exists() and not lines))
    elif not path.exists():
        request.node.stash[FOUND].append(f"{file}: no such golden")
    elif lines:
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        request.node.stash[FOUND] += [
            f"{file} is not as recorded (old -> new):",
            *(f"  {line}" for line in [*lines[:SHOWN], *more]),
        ]


def _without(document: Any, keys: tuple[str, ...]) -> Any:
    found = copy.deepcopy(document)
    for path in keys:
        *folders, key = path.split(".")
        part = found
        for folder in folders:
            part = part.get(folder) if isinstance(part, dict) else None
        if isinstance(part, dict):
            part.pop(key, None)
    return found


def _record(folder: Path, name: str, text: str, *, as_it_is: bool) -> None:
    """Writes the document, and where not all are recorded, the environment if it is another.

    Where not all are, one ``as_it_is`` within the tolerance stays as it was recorded.
    """
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        assert path.read_text() == text, f"two documents were recorded as {path.name}"
    if (folder / "environment.json").exists() or goldens.as_recorded(name):
        path.write_text(text)
    elif not as_it_is:
        path.write_text(text)
        if (goldens.FOLDER / "environment.json").read_text().strip() != goldens.here():
            path.with_suffix(".environment.json").write_text(goldens.here() + "\n")


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
