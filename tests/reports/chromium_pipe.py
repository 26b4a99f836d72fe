"""Headless Chromium driven through the DevTools protocol over a pipe: no port, no library.

https://chromedevtools.github.io/devtools-protocol/; with --remote-debugging-pipe messages are JSON
that ends with a NUL, read from file descriptor 3 and written to 4.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# the browser talks to nobody but this machine: every name resolves to nothing
_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class Browser:
    """One Chromium with one page; collects console messages, errors and requests."""

    def __init__(self, folder: Path) -> None:
        read, their_write = os.pipe()
        their_read, write = os.pipe()
        self._log = (folder / "chromium.log").open("wb")
        # the descriptors that it reads and writes have fixed numbers
        begin = (
            "import os, sys; a, b = map(int, sys.argv[1:3]); os.dup2(a, 203); os.dup2(b, 204); "
            "os.dup2(203, 3); os.dup2(204, 4); os.execv(sys.argv[3], sys.argv[3:])"
        )
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-c",
                begin,
                str(their_read),
                str(their_write),
                str(CHROMIUM),
                *_QUIET,
                f"--user-data-dir={folder / 'profile'}",
                "about:blank",
            ],
            pass_fds=(their_read, their_write),
            stdout=self._log,
            stderr=self._log,
        )
        os.close(their_read)
        os.close(their_write)
        self._read, self._write = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        self._next = 0
        self._rest = b""
        self.session = ""
        self.events: list[dict[str, Any]] = []
        page = next(
            one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"
        )
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the browser."""
        self.session = ""
        self.call("Browser.close")
        self._process.wait(timeout=300)
        for file in (self._read, self._write, self._log):
            file.close()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read.fileno(), 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        whole, self._rest = self._rest.split(b"\0", 1)
        found: dict[str, Any] = json.loads(whole)
        return found

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its answer; events are kept."""
        self._next += 1
        request = {"id": self._next, "method": method, "params": arguments}
        if self.session:
            request["sessionId"] = self.session
        self._write.write(json.dumps(request).encode() + b"\0")
        self._write.flush()
        while True:
            message = self._message()
            if message.get("id") == self._next:
                assert "error" not in message, (method, message["error"])
                answer: dict[str, Any] = message["result"]
                return answer
            self.events.append(message)

    def wait(self, method: str) -> None:
        """Reads until an event has come."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._message())

    def open(self, url: str, width: int = 1200, height: int = 900, *, dark: bool = False) -> None:
        """Opens a page and waits until it is loaded; what was collected before is dropped."""
        self.call("Page.navigate", url="about:blank")
        self.media(dark=dark)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.js("1")
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def media(self, *, dark: bool = False, print_: bool = False) -> None:
        """Sets what the page's media queries find."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", media="print" if print_ else "", features=features)

    def js(self, code: str) -> Any:
        """Evaluates an expression, waits for its promise and returns its JSON value."""
        answer = self.call(
            "Runtime.evaluate",
            expression=code,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, key: str, text: str = "") -> None:
        """Presses a key, as the keyboard would."""
        codes = {
            "Tab": 9,
            "Enter": 13,
            "Escape": 27,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }
        number = codes.get(key, ord(key[0].upper()))
        text = text or ("\r" if key == "Enter" else key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=number,
                text=text if kind == "keyDown" else "",
            )

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Takes a screenshot."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self, path: Path) -> None:
        """Prints to PDF, A4."""
        printed = self.call(
            "Page.printToPDF",
            paperWidth=8.27,
            paperHeight=11.69,
            preferCSSPageSize=True,
            printBackground=False,
        )
        path.write_bytes(base64.b64decode(printed["data"]))

    def complaints(self) -> list[str]:
        """Returns console messages and errors of the page."""
        self.js("1")
        found = []
        for event in self.events:
            if event.get("method") in (
                "Runtime.consoleAPICalled",
                "Runtime.exceptionThrown",
                "Log.entryAdded",
            ):
                found.append(json.dumps(event["params"]))
        return found

    def requests(self) -> list[str]:
        """Returns what the page asked for beside itself."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls[1:] if not url.startswith("data:")]
