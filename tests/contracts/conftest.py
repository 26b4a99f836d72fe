"""The fixtures of the contracts: `command` runs the CLI, `golden` compares."""

from __future__ import annotations

import contextlib
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
        exact = not goldens.not_as_recorded(str(Path(name).parent))
        _compare(request, f"{name}.json", new, None if exact else tolerance, measured)

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
    request: pytest.FixtureRequest,
    file: str,
    new: Any,
    tolerance: float | None,
    measured: tuple[str, ...] = (),
) -> None:
    target = request.config.getoption("--record")
    text = goldens.text_of(new)
    assert goldens.read(text) == new
    if target:
        path = Path(target) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            assert path.read_text() == text, f"two documents were recorded as {file}"
        path.write_text(text)
        return
    path = goldens.FOLDER / file
    if not path.exists():
        request.node.stash[FOUND].append(f"{file}: no such golden")
        return
    old = goldens.read(path.read_text())
    if tolerance is not None:
        for path_of_key in measured:
            *folders, key = path_of_key.split(".")
            for one in (old, new):
                for folder in folders:
                    one = one[folder]  # noqa: PLW2901
                one.pop(key, None)
    lines = list(goldens.differences(old, new, tolerance))
    if lines:
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        request.node.stash[FOUND] += [
            f"{file} is not as recorded (old -> new):",
            *(f"  {line}" for line in [*lines[:SHOWN], *more]),
        ]


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
