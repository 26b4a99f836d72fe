"""Rules that every module keeps: nothing is unpickled, evaluated or handed to a shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path for package in ("edgekit", "edgekit_device") for path in (ROOT / package).rglob("*.py")
)
_MODULES = {"pickle", "cPickle", "shelve", "dill", "cloudpickle", "joblib", "marshal", "imp"}
_CALLS = {
    "eval",
    "exec",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
    "torch.load",
    "yaml.full_load",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "tarfile.open",
    "shutil.unpack_archive",
}
_ATTRIBUTES = {"AutoAddPolicy", "WarningPolicy", "extractall", "set_missing_host_key_policy"}
#: With libyaml's safe loader, where it is there; a child process that replaces what pickle offers
#: with refusals, and loads a file whose SHA-256 the user gave; a Python part, whose source file a
#: known key signed.
_KNOWN = {
    ("edgekit/knowledge.py", "yaml.load"),
    ("edgekit/pytorch/child.py", "pickle"),
    ("edgekit/pytorch/child.py", "torch.load"),
    ("edgekit_device/runtime/python_part.py", "exec"),
}
#: OpenSSH's ProxyCommand is a shell's line by its definition (ssh_config(5)); tokens are checked.
# completion prints scripts for shells and starts none
_SHELLS = {
    "edgekit/deployment/ssh.py",
    "edgekit/deployment/embedded_sshd.py",
    "edgekit/cli/completion.py",
}


#: Without one of these in its text a module breaks no rule, and need not be parsed.
_WORDS = re.compile(
    "|".join(
        [
            *map(re.escape, sorted(_ATTRIBUTES)),
            r"StrictHostKeyChecking",
            r"\bshell\b",
            r"\bsh\b",
            r"\bbash\b",
            r"\bload\b",
            *(rf"\b{name}\b" for name in sorted(_MODULES)),
            *(rf"\b{call.split('.')[-1]}\b" for call in sorted(_CALLS)),
        ]
    )
)


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(path: Path) -> Iterator[str]:
    where = str(path.relative_to(ROOT))
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if _WORDS.search(source) else ():
        at = f"{where}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from (
                f"{at} imports {n}"
                for n in names
                if n.split(".")[0] in _MODULES and (where, n) not in _KNOWN
            )
        elif isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
            yield f"{at} uses {node.attr}"
        elif isinstance(node, ast.Call):
            called = name_of(node.func)
            if called in _CALLS and (where, called) not in _KNOWN:
                yield f"{at} calls {called}"
            given = {one.arg: one.value for one in node.keywords if one.arg}
            if "shell" in given:
                yield f"{at} names shell="
            if called.endswith(("np.load", "numpy.load")):
                pickles = given.get("allow_pickle")
                if not (isinstance(pickles, ast.Constant) and pickles.value is False):
                    yield f"{at}: np.load without allow_pickle=False"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if "StrictHostKeyChecking=" in text and "StrictHostKeyChecking=yes" not in text:
                yield f"{at}: host keys are not checked"
            if text in ("/bin/sh", "sh", "bash", "/bin/bash") and where not in _SHELLS:
                yield f"{at} names a shell"


@pytest.mark.parametrize("package", ["edgekit", "edgekit_device"])
def test_no_module_does_what_input_could_abuse(package: str) -> None:
    found = [
        fault for path in MODULES if path.is_relative_to(ROOT / package) for fault in faults(path)
    ]
    assert found == []


def test_the_rules_find_what_they_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.security.test_source_rules.ROOT", tmp_path)
    bad = tmp_path / "bad.py"
    for line in (
        "import pickle",
        "from pickle import loads",
        "eval(x)",
        "subprocess.run(x, shell=True)",
        "np.load(f)",
        "np.load(f, allow_pickle=True)",
        "yaml.load(x)",
        "a.extractall(b)",
        "c.set_missing_host_key_policy(paramiko.AutoAddPolicy())",
        "run(['/bin/sh', '-c', x])",
        "x = 'StrictHostKeyChecking=no'",
        "os.system(x)",
    ):
        bad.write_text(line + "\n")
        assert list(faults(bad)), line


def test_only_one_module_makes_connections() -> None:
    """So that no way to a board goes round the check of its host key."""
    made = [
        str(path.relative_to(ROOT))
        for path in MODULES
        if any(
            word in path.read_text(encoding="utf-8")
            for word in ("paramiko.Transport(", "SSHClient(", "start_client(")
        )
    ]
    assert made == ["edgekit/deployment/ssh.py"]


def test_no_module_forwards_an_agent() -> None:
    """So that a board has no key that opens another."""
    words = ("forward_agent", "AgentRequestHandler", "auth-agent-req", "ForwardAgent=yes", '"-A"')
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    found = [str(path) for path, text in texts.items() if any(word in text for word in words)]
    assert found == []
