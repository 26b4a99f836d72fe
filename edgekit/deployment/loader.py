"""Placing the loader on a board: the small program that stores it and then runs as its agent; and
the ``docker run`` arguments if the loader runs in a container.
"""

from __future__ import annotations

from edgekit.deployment.board import Container
from edgekit_device.protocol.codec import array, document, integer, member, text

# It is handed to ``python3 -c`` (Python 3.8, standard library), so that a bare board needs only
# Python, and none of our files is run before the loader's digest is checked. All data comes from
# stdin and arguments. It has no backslash, so that every login shell passes it on unchanged.
ENSURE = """
import hashlib, json, os, sys, time, zlib

def fail(code, message, hint=""):
    print(json.dumps({"error": {"code": code, "message": message, "where": "", "hint": hint}}))
    sys.exit(4)

def write(path, data):
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, ".%s.%d.tmp" % (os.path.basename(path), os.getpid()))
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise

def run(main):
    if sys.version_info < (3, 8):
        fail("board.python", "Python %d.%d is too old, 3.8 is needed" % sys.version_info[:2])
    os.umask(0o077)
    root = os.path.abspath(os.path.expanduser(sys.argv[1]))
    try:
        os.makedirs(root, exist_ok=True)
        check(root)
        answer = main(root)
    except OSError as error:
        full = error.errno in (27, 28, 122)
        code = "board.disk-full" if full else "board.filesystem"
        hint = "free some space on the board" if full else "see `root` of this board"
        fail(code, "%s: %s" % (error.filename or root, error.strerror), hint)
    return answer

def check(root):
    facts, me = os.stat(root), os.geteuid()
    if facts.st_uid not in (0, me) or (me == 0 and facts.st_uid != 0):
        fail("root.owner", "%s belongs to the account %d" % (root, facts.st_uid), "another `root`")
    if facts.st_mode & 0o022:
        fail("root.writable", "others can write to %s" % root, "chmod -R go-w " + root)
    if os.path.islink(os.path.join(root, "bin")):
        fail("root.link", "%s/bin is a link" % root, "remove it")

def drop(entry, before=None):
    try:
        if not entry.is_dir(follow_symlinks=False) and (before is None or age(entry) < before):
            os.unlink(entry.path)
    except FileNotFoundError:
        pass  # a command that runs has just given it its name, or another host has removed it

def age(entry):
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0

def entries(folder):
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []

def read(size):
    # not through sys.stdin, which would take more than its part
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            break
        data += part
    return data

def commands():
    found = b""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % process, "rb") as file:
                found += file.read()
        except OSError:
            pass
    return found

def unpacked(folder, path):
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        return path
    runs = os.path.join(folder, "run")
    goal = os.path.join(runs, boot, os.path.basename(path))
    if not os.path.isdir(goal):
        import shutil, zipfile
        used = commands()
        before = time.time() - 3600
        def left(e):
            if e.name.endswith(".tmp"):
                # while its process lives, another host is unpacking there
                return not os.path.exists("/proc/" + e.name.split(".")[-2]) or age(e) < before
            gone = not os.path.exists(os.path.join(folder, e.name))
            return gone and e.name.encode() not in used
        for entry in entries(runs):
            old = filter(left, entries(entry.path)) if entry.name == boot else [entry]
            for each in old:
                shutil.rmtree(each.path, ignore_errors=True)
        made = "%s.%d.tmp" % (goal, os.getpid())
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(made)
            os.link(path, os.path.join(made, "loader.pyz"))
            os.rename(made, goal)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
    return goal if os.path.isdir(goal) else path

def main(root):
    name, digest = sys.argv[2], sys.argv[3]
    folder = os.path.join(root, "bin")
    path = os.path.join(folder, name)
    old = time.time() - 3600
    for entry in entries(folder):
        if entry.name.endswith(".tmp"):
            drop(entry, old)
    ready = False
    if os.path.isfile(path):
        with open(path, "rb") as file:
            ready = hashlib.sha256(file.read()).hexdigest() == digest
    if not ready:
        print(json.dumps({"lacks": name}), flush=True)
        size = int(read(12))
        try:
            data = zlib.decompressobj().decompress(read(size), 1 << 26)
        except zlib.error:
            data = b""
        if hashlib.sha256(data).hexdigest() != digest:
            fail("board.transfer", "the loader arrived damaged or cut off", "run it again")
        write(path, data)
        stem = name.split("-")[0]
        kin = [e for e in entries(folder) if e.name.startswith(stem + "-")]
        kin.sort(key=age)
        for entry in kin[:-3]:
            drop(entry)
        link = os.path.join(folder, ".%s.%d.tmp" % (stem, os.getpid()))
        os.symlink(name, link)
        os.replace(link, os.path.join(folder, stem + ".pyz"))
    user = "%d:%d" % (os.getuid(), os.getgid())
    sys.path[0] = unpacked(folder, path)
    return {"root": root, "path": path, "user": user, "groups": os.getgroups()}

found = run(main)
print(json.dumps(found), flush=True)
sys.argv[:] = [found["path"]]
from edgekit_device import agent
agent.main()
"""
"""Arguments ROOT NAME SHA256. If the loader is missing it prints {"lacks": NAME} and reads twelve
digits, the size of the deflated loader, and that many bytes. Then it prints root, path and the
account by numbers, and continues as ``edgekit_device.agent``. The three newest loaders are kept,
for running commands.

The loader is unpacked once for each boot, to bin/run/BOOT_ID/NAME, and runs from there: Python
keeps the bytecode of files, not of a zipapp, and compiling took half of a short command. They are
not synced, so a power cut may truncate them: the next boot unpacks again. An unpacked loader is
removed with its zipapp, unless a process still runs it.
"""


@document(frozen=True)
class LoaderLocation:
    """The loader's path and account on a board: the answer of the placing program.

    Attributes:
        root: ROOT as an absolute path.
        loader: Path of the loader.
        user: "UID:GID" of the account.
        groups: Numbers of the account's groups.
    """

    root: str = member(text())
    loader: str = member(text(), key="path")
    user: str = member(text(), default="")
    groups: tuple[int, ...] = member(array(integer(0, 1 << 32)), default=())


def container_argv(
    container: Container, place: LoaderLocation, argv: list[str], *, detached: str = ""
) -> list[str]:
    """Returns the command line that runs ``argv`` in a container.

    ROOT has the same path inside, so paths in requests and answers are valid on both sides. The
    container runs as the board's account, which owns the files it writes below ROOT.

    Args:
        container: The board's container settings.
        place: The loader's location.
        argv: A loader command.
        detached: Name of a detached container; "" for a container with the caller's input and
            output.
    """
    # --init: a job's processes need a parent that reaps them
    how = ["--detach", "--name", detached] if detached else ["--interactive"]
    words = ["docker", "run", "--rm", "--init", *how]
    if container.runtime:
        words += ["--runtime", container.runtime]
    words += ["--volume", f"{place.root}:{place.root}", "--env", f"HOME={place.root}"]
    if place.user:
        words += ["--user", place.user]
    # the devices' groups: names differ between board and image, numbers do not
    for number in place.groups:
        words += ["--group-add", str(number)]
    return [*words, "--entrypoint", argv[0], *container.options, container.image, *argv[1:]]
