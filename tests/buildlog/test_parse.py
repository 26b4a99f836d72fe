"""The grammar: three generations of wording give the same facts."""

from __future__ import annotations

import pytest

from edgekit.buildlog.parser import parse_log
from edgekit_device.protocol.codec import write
from tests.buildlog.logs import NAMES, lines


@pytest.mark.parametrize("name", NAMES)
def test_other_lines_change_nothing(name: str) -> None:
    plain = write(parse_log(lines(name)))
    noise = "02-03-2027 09:10:11 RAM 9/62 CPU [0%@729] GR3D_FREQ 0%@[1300,1300] NVDLA0_FREQ @1600"
    mixed: list[str] = []
    for line in lines(name):
        mixed += [noise, f"\x1b[1m{line}\x1b[0m\r\n", "[I] [TRT] DLA is fine, thank you", "\x00"]
    noisy = write(parse_log(mixed))
    for document in (plain, noisy):
        document.pop("lines")
        for fallback in document["fallbacks"]:
            fallback.pop("line")
    # a list on the line after its heading cannot be found behind another line
    if name != "trt7_deepstream.log":
        assert noisy == plain


@pytest.mark.parametrize(
    "prefix",
    [
        "Nov 21 07:00:00 host app[123]: ",
        "Nov  1 07:00:00 jetson-orin trtexec: ",
        "2026-08-20T18:38:14.123456789Z stdout F ",
        "2026-11-21T07:00:00+0000 host app[1]: ",
        "2026-08-20 18:38:14,123 ",
    ],
)
def test_what_a_journal_writes_before_each_line_hides_nothing(prefix: str) -> None:
    for name in ("trt103_trtexec_verbose.log", "trt84_trtexec_info.log", "trt85_python.log"):
        said = lines(name)
        plain = write(parse_log(said))
        assert write(parse_log(f"{prefix}{line}" for line in said)) == plain
