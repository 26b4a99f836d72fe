"""Compiling and keeping kernels: with NVRTC where it is, else with a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit_device.cuda.kernels import (
    Compiler,
    Layout,
    PackKernels,
    kernel_source,
    open_compiler,
    plan_kernel,
)
from edgekit_device.errors import DeviceError
from tests.edgekit_device.kernel_emulator import layout

_SHAPE = (1, 3, 8, 64)
_SRC, _DST = layout("LINEAR", "float32", _SHAPE), layout("DLA_HWC4", "int8", _SHAPE, 0.1)


class _Cuda:
    def __init__(self) -> None:
        self.images: list[bytes] = []
        self.launches: list[tuple[Any, ...]] = []

    def compute_capability(self) -> tuple[int, int]:
        return 8, 7

    def load_module(self, image: bytes) -> int:
        self.images.append(image)
        return len(self.images)

    def function(self, module: int, name: str) -> int:
        assert name == "convert"
        return module

    def launch(self, *arguments: Any) -> None:
        self.launches.append(arguments)


class _Compiler:
    """Stands in for NVRTC's way; counts what it compiles."""

    def __init__(self, status: int = 0, known: tuple[int, ...] = (72, 87)) -> None:
        self.options: list[list[bytes]] = []
        self.status = status
        self.known = known

    def version(self) -> tuple[int, int]:
        return (12, 6)

    def architectures(self) -> list[int]:
        return list(self.known)

    def build(
        self, text: bytes, name: bytes, options: list[bytes], exact: bool
    ) -> tuple[int, bytes, str]:
        self.options.append(options)
        return self.status, b"image", "kernel.cu(3): error: no"


def test_a_kernel_is_compiled_once_and_retained(tmp_path: Path) -> None:
    way = _Compiler()
    cuda = _Cuda()
    packer = PackKernels(cuda, tmp_path / "kernels", Compiler(way, "test"))
    packer.convert(1024, _SRC, 4096, _DST)
    packer.convert(1024, _SRC, 4096, _DST, stream=5)
    assert len(way.options) == 1
    assert way.options[0] == [b"--gpu-architecture=sm_87", b"--fmad=false", b"--std=c++14"]
    assert [path.name[-10:] for path in (tmp_path / "kernels").iterdir()] == ["-sm_87.bin"]
    # another process finds it there
    again = PackKernels(_Cuda(), tmp_path / "kernels", Compiler(_Compiler(1), "test"))
    again.convert(1024, _SRC, 4096, _DST)
    function, _, block, arguments, stream = cuda.launches[1]
    assert (function, block, stream) == (1, (256, 1, 1), 5)
    assert [one.value for one in arguments[:2]] == [1024, 4096]


def test_a_tensor_without_elements_needs_no_kernel() -> None:
    cuda = _Cuda()
    packer = PackKernels(cuda, None, Compiler(_Compiler(6), "test"))
    for shape in ((0, 3, 8, 64), (1, 0, 8, 64)):
        dst = Layout("int8", shape, "DLA_LINEAR", (1536, 512, 64, 1), 0.1)
        packer.convert(1024, Layout("float32", shape, "HWC"), 4096, dst)
    assert cuda.launches == []


def test_a_device_that_nvrtc_does_not_know_gets_ptx_or_a_reason() -> None:
    way = _Compiler()
    Compiler(way, "test").compile("text", (9, 0))
    assert way.options[0][0] == b"--gpu-architecture=compute_87"
    with pytest.raises(DeviceError, match=r"cannot compile for compute capability 7\.0"):
        Compiler(way, "test").compile("text", (7, 0))


def test_faults_are_reported(tmp_path: Path) -> None:
    packer = PackKernels(_Cuda(), None, Compiler(_Compiler(6), "test"))
    with pytest.raises(DeviceError) as caught:
        packer.convert(1024, _SRC, 4096, _DST)
    assert (caught.value.code, "error: no" in caught.value.hint) == ("nvrtc.failed", True)
    for call, code in (
        (lambda: packer.convert(1032, _SRC, 4096, _DST), "kernels.alignment"),
        (lambda: packer.convert(1024, _SRC, 4096, _SRC), "kernels.unsupported"),
        (lambda: packer.convert(1024, _DST, 4096, _DST), "kernels.unsupported"),
    ):
        with pytest.raises(DeviceError) as caught:
            call()
        assert caught.value.code == code
    with pytest.raises(DeviceError) as caught:
        open_compiler(str(tmp_path / "libnvrtc.so"))
    assert caught.value.code == "nvrtc.missing"


def test_nvrtc_compiles_the_kernels_without_a_gpu() -> None:
    try:
        compiler = open_compiler()
    except DeviceError:
        pytest.skip("NVRTC is not installed (pip's nvidia-cuda-nvrtc brings it)")
    for src, dst in ((_SRC, _DST), (_SRC, layout("CHW32", "int8", _SHAPE, 0.1))):
        assert compiler.compile(kernel_source(plan_kernel(src, dst)), (8, 7)).startswith(b"\x7fELF")
