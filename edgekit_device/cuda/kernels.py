"""Packs tensors into the DLA's formats and back on the GPU. NVRTC compiles a kernel at its first
use.

The kernel's text (:data:`TEXT`) is made into a kernel for two layouts by definitions before it and
compiled by NVRTC. Its results are the NumPy packer's and converter's (``arrays.formats``) bit for
bit, but for the payload of a NaN; UINT8 is written rounded half to even and saturated.

Every layout is memory of (batch, groups, height, line, held) elements: ``held`` channels of a pixel
are next to each other (1 where each channel is a plane), ``line`` counts the pixels of a line with
its padding. A thread moves CW channels of PX pixels through its registers: it reads them in runs
along whatever is contiguous in the source, in aligned words of up to 16 bytes, converts each
element and writes runs along whatever is contiguous in the target. Where lines do not begin at
multiples of 4 bytes, elements are moved one at a time.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import math
import os
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from edgekit_device.arrays.formats import VECTORS, as_nchw, convert, stored_shape
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.protocol.manifest import DTYPES

# Compiles CUDA C++ at run time with NVRTC's library, which cuda-python needs as well.
#
# No file is written and no header is needed. NVRTC compiles without a GPU, too. Functions and
# options: https://docs.nvidia.com/cuda/nvrtc/ ("Supported Compile Options").


# its names in CUDA 13, 12 and 11 (since 11.3, 11.2's name stays: NVRTC's "Versioning Scheme")
_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")
_FOLDERS = ("/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/cuda-*/targets/*/lib")
_PACKAGES = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")  # pip's wheels
_MOST_LOG = 2000
_TYPES = {"float32": 0, "float16": 1, "uint8": 2, "int8": 3}
_LAST = ("HWC", "DLA_HWC4")
_DLA = ("DLA_LINEAR", "DLA_HWC4", "CHW16", "CHW32")
_FORMATS = ("LINEAR", "HWC", *_DLA)
_MOST_PLACES = (1 << 31) - 1024  # pixels and elements are counted in 32 bits
_MOST_ROWS = 65535  # of a grid's y (CUDA C++ Programming Guide, "Compute Capabilities")

# scales in whose range the kernel's division is exact (its remainders do not underflow)
_LEAST_SCALE, _MOST_SCALE = 1e-30, 1e30
_WORD = 16  # largest access in bytes; cudaMalloc aligns to 256
_FEW = 4  # largest number of adjacent channels for which a run has whole pixels
_THREADS, _WARP = 256, 32
_ROUND = 12582912.0  # as TEXT has it
_ALONG_PIXELS, _ALONG_CHANNELS, _WHOLE_PIXELS = 0, 1, 2

# The text's prelude in CUDA C++; the tests have a prelude for a C compiler.
CUDA_PRELUDE = """\
#define HELPER static __device__ __forceinline__
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;
typedef long long i64;
HELPER void load16(u32 *to, const u8 *p) {
  uint4 v = __ldg((const uint4 *)p);
  to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
}
HELPER void load8(u32 *to, const u8 *p) {
  uint2 v = __ldg((const uint2 *)p);
  to[0] = v.x; to[1] = v.y;
}
HELPER u32 load4(const u8 *p) { return __ldg((const u32 *)p); }
HELPER u32 load2(const u8 *p) { return __ldg((const u16 *)p); }
HELPER u32 load1(const u8 *p) { return __ldg(p); }
HELPER void store16(u8 *p, const u32 *v) { *(uint4 *)p = make_uint4(v[0], v[1], v[2], v[3]); }
HELPER void store8(u8 *p, const u32 *v) { *(uint2 *)p = make_uint2(v[0], v[1]); }
HELPER void store4(u8 *p, u32 v) { *(u32 *)p = v; }
HELPER void store2(u8 *p, u32 v) { *(u16 *)p = (u16)v; }
HELPER void store1(u8 *p, u32 v) { *p = (u8)v; }
HELPER u32 perm(u32 a, u32 b, u32 which) { return __byte_perm(a, b, which); }
HELPER u32 bits_of(float v) { return __float_as_uint(v); }
HELPER float float_of(u32 v) { return __uint_as_float(v); }
HELPER float add(float a, float b) { return __fadd_rn(a, b); }
HELPER float times(float a, float b) { return __fmul_rn(a, b); }
HELPER float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HELPER float within(float v, float low, float high) { return fminf(fmaxf(v, low), high); }
HELPER float saturated(float v) { return __saturatef(v); } /* within 0 and 1 */
HELPER float of_half(u32 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)v));
  return f;
}
HELPER u32 half_of(float v) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return h;
}
#if SRC_WAY + DST_WAY == 1 /* many elements in registers: at most 80 of these */
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 3) convert
#else
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS) convert
#endif
#define BLOCK_X ((int)blockIdx.x)
#define BLOCK_Y ((int)blockIdx.y)
#define BLOCKS_Y ((int)gridDim.y)
#define THREAD ((int)threadIdx.x)
"""

# Definitions that `plan_kernel` chooses:
#   SRC_T, DST_T: element types, 0 float32, 1 float16, 2 uint8, 3 int8.
#   SRC_HELD, DST_HELD: channels next to each other; 0 for all, where these are more than a few.
#   SRC_WAY, DST_WAY: a run is 0 the pixels of a channel, 1 the channels of a pixel, 2 whole pixels.
#   SRC_WORD, DST_WORD: bytes of an access; 0 for single elements.
#   CW, PX: channels and pixels of a thread; SRC_CW: its channels that are not padding;
#   STEP: from one of its pixels to the next.
#   LANES: neighbouring threads along channels; THREADS: of a block.
#   RAW: bits are moved; SCALED: INT8 values are multiplied by their scale; NANS: values may be NaN;
#   QUICK: bytes become bytes by two products and sums.
TEXT = """\
typedef struct {
  int batch, channels, height, width, columns, blocks;
  int src_groups, src_line, src_held, dst_groups, dst_line, dst_held;
  float src_scale, dst_scale, inverse, low, high, slope, start;
} Numbers;

#define SIZE_OF(t) ((t) == 0 ? 4 : (t) == 1 ? 2 : 1)
#define SRC_SIZE SIZE_OF(SRC_T)
#define DST_SIZE SIZE_OF(DST_T)
#define RUNS_OF(way, wide) ((way) == 0 ? (wide) : (way) == 1 ? PX : 1)
#define LENGTH_OF(way, held) ((way) == 0 ? PX : (way) == 1 ? CW : PX * (held))
#define SRC_RUNS RUNS_OF(SRC_WAY, SRC_CW)
#define DST_RUNS RUNS_OF(DST_WAY, CW)
#define SRC_LENGTH LENGTH_OF(SRC_WAY, SRC_HELD)
#define DST_LENGTH LENGTH_OF(DST_WAY, DST_HELD)
#define SRC_WORDS ((SRC_LENGTH * SRC_SIZE + 3) / 4)
#define DST_WORDS (DST_LENGTH * DST_SIZE / 4)
#define ROUND 12582912.0f /* 1.5 * 2**23: its sum with a value rounds that half to even */

/* index of an element; `held` is 0 where all channels of a pixel are one group, of `all` */
HELPER i64 place(i64 n, int c, int h, int w, int groups, int height, int line, int held, int all) {
  if (!held) return ((n * height + h) * line + w) * all + c;
  return (((n * groups + c / held) * height + h) * line + w) * held + c % held;
}

HELPER void load_run(u32 *run, const u8 *p) {
#pragma unroll
  for (int i = 0; i < SRC_WORDS; i += SRC_WORD > 4 ? SRC_WORD / 4 : 1) {
    if (SRC_WORD == 16) load16(run + i, p + 4 * i);
    else if (SRC_WORD == 8) load8(run + i, p + 4 * i);
    else if (SRC_WORD == 4) run[i] = load4(p + 4 * i);
    else {
      run[i] = load2(p + 4 * i);
      if (4 * i + 2 < SRC_LENGTH * SRC_SIZE) run[i] |= load2(p + 4 * i + 2) << 16;
    }
  }
}

HELPER void store_run(u8 *p, const u32 *run) {
#pragma unroll
  for (int i = 0; i < DST_WORDS; i += DST_WORD / 4 + !DST_WORD) {
    if (DST_WORD == 16) store16(p + 4 * i, run + i);
    else if (DST_WORD == 8) store8(p + 4 * i, run + i);
    else store4(p + 4 * i, run[i]);
  }
}

/* the runs of a thread in the order of memory; places outside the tensor are zero and unread */
HELPER void load_runs(u32 *words, const u8 *src, const Numbers *s, int n, int c0, int h, int w0) {
  int channels = s->channels - c0, pixels = s->width - w0;
  int runs = SRC_WAY == 0 ? channels : SRC_WAY == 1 ? (pixels + STEP - 1) / STEP : 1;
  int valid = SRC_WAY == 0 ? (pixels + STEP - 1) / STEP
            : SRC_WAY == 1 ? channels : pixels * SRC_HELD;
  i64 step = (SRC_WAY == 0 ? (i64)s->height * s->src_line : (i64)STEP * s->src_held) * SRC_SIZE;
  const u8 *p = src + SRC_SIZE * place(n, c0, h, w0, s->src_groups, s->height, s->src_line,
                                       SRC_HELD, s->src_held);
  if (SRC_WORD && valid >= SRC_LENGTH && runs >= SRC_RUNS) {
#pragma unroll
    for (int r = 0; r < SRC_RUNS; r++) load_run(words + r * SRC_WORDS, p + r * step);
    return;
  }
#pragma unroll
  for (int r = 0; r < SRC_RUNS; r++) {
    u32 *run = words + r * SRC_WORDS;
#pragma unroll
    for (int i = 0; i < SRC_WORDS; i++) run[i] = 0;
    if (r >= runs) continue;
    if (SRC_WORD && valid >= SRC_LENGTH) {
      load_run(run, p + r * step);
      continue;
    }
#pragma unroll
    for (int k = 0; k < SRC_LENGTH; k++) {
      const u8 *q = p + r * step + k * (SRC_WAY ? 1 : STEP) * SRC_SIZE;
      if (k >= valid) continue;
      if (SRC_SIZE == 4) run[k] = load4(q);
      else if (SRC_SIZE == 2) run[k / 2] |= load2(q) << k % 2 * 16;
      else run[k / 4] |= load1(q) << k % 4 * 8;
    }
  }
}

/* The nearest step, half to even and saturated; NaN is 0. The quotient is rounded as float32
   division does: with y the rounded reciprocal and q within one unit of the last place,
   fma(fma(-q, b, a), y, q) is the rounded quotient (P. Markstein, "Computation of elementary
   functions on the IBM RISC System/6000 processor", 1990, theorem 7.1); the first such step
   brings q there. */
HELPER u32 quantised(float v, const Numbers *s) {
  v = within(v, s->low, s->high);
  float q = times(v, s->inverse);
  q = fused(fused(-q, s->dst_scale, v), s->inverse, q);
  q = fused(fused(-q, s->dst_scale, v), s->inverse, q);
  return bits_of(add(q, ROUND));
}

/* the stored value of element k of a run, in the lowest bits */
HELPER u32 converted(const u32 *run, int k, const Numbers *s) {
  u32 word = run[k * SRC_SIZE / 4];
  float v;
  k %= 4 / SRC_SIZE;
  if (RAW) return word >> k * SRC_SIZE * 8;
  if (SRC_T == 3) word ^= 0x80808080; /* 128 more, without a sign */
  if (QUICK) { /* the byte in the float 2**15 + b; its share of all 256 steps */
    v = float_of(perm(word, 0x47000000, 0x7404 + (k << 4)));
    return bits_of(fused(saturated(fused(v, s->slope, s->start)), 255.0f, s->low));
  }
  if (SRC_SIZE == 1) /* in the float 2**23 + b */
    v = add(float_of(perm(word, 0x4b000000, 0x7440 + k)), SRC_T == 3 ? -8388736.0f : -8388608.0f);
  else v = SRC_SIZE == 2 ? of_half(word >> k * 16 & 0xffff) : float_of(word);
  if (SCALED) v = times(v, s->src_scale);
  if (DST_T == 0) return bits_of(v);
  if (DST_T == 1) return half_of(v);
  if (NANS) v = v == v ? v : 0.0f;
  return DST_T == 3 ? quantised(v, s) : bits_of(add(within(v, 0.0f, 255.0f), ROUND));
}

/* element k of run r to write, from the runs that were read */
HELPER u32 moved(const u32 *words, int r, int k, const Numbers *s) {
  int c = DST_WAY == 0 ? r : DST_WAY == 1 ? k : k % DST_HELD;
  int w = DST_WAY == 0 ? k : DST_WAY == 1 ? r : k / DST_HELD;
  if (SRC_WAY == 0) return c < SRC_CW ? converted(words + c * SRC_WORDS, w, s) : 0;
  if (SRC_WAY == 1) return converted(words + w * SRC_WORDS, c, s);
  return c < SRC_HELD && c < s->channels ? converted(words, w * SRC_HELD + c, s) : 0;
}

/* a run to write; places outside the tensor are zero */
HELPER void make_run(u32 *run, const u32 *words, int r, const Numbers *s) {
#pragma unroll
  for (int i = 0; i < DST_WORDS; i++) {
    int k = i * (4 / DST_SIZE);
    run[i] = moved(words, r, k, s);
    if (DST_SIZE == 2) run[i] = perm(run[i], moved(words, r, k + 1, s), 0x5410);
    if (DST_SIZE == 1)
      run[i] = perm(perm(run[i], moved(words, r, k + 1, s), 0x0040),
                    perm(moved(words, r, k + 2, s), moved(words, r, k + 3, s), 0x0040), 0x5410);
  }
}

HELPER void store_runs(u8 *dst, const u32 *words, const Numbers *s, int n, int c0, int h, int w0) {
  int channels = s->dst_groups * s->dst_held - c0, pixels = s->dst_line - w0;
  int runs = DST_WAY == 0 ? channels : DST_WAY == 1 ? (pixels + STEP - 1) / STEP : 1;
  int valid = DST_WAY == 0 ? (pixels + STEP - 1) / STEP
            : DST_WAY == 1 ? channels : pixels * DST_HELD;
  i64 step = (DST_WAY == 0 ? (i64)s->height * s->dst_line : (i64)STEP * s->dst_held) * DST_SIZE;
  u8 *p = dst + DST_SIZE * place(n, c0, h, w0, s->dst_groups, s->height, s->dst_line, DST_HELD,
                                 s->dst_held);
  u32 run[DST_WORDS];
  if (DST_WORD && valid >= DST_LENGTH && runs >= DST_RUNS) {
#pragma unroll
    for (int r = 0; r < DST_RUNS; r++) {
      make_run(run, words, r, s);
      store_run(p + r * step, run);
    }
    return;
  }
#pragma unroll
  for (int r = 0; r < DST_RUNS; r++) {
    if (r >= runs) return;
    make_run(run, words, r, s);
    if (DST_WORD && valid >= DST_LENGTH) {
      store_run(p + r * step, run);
      continue;
    }
#pragma unroll
    for (int k = 0; k < DST_LENGTH; k++) {
      u8 *q = p + r * step + k * (DST_WAY ? 1 : STEP) * DST_SIZE;
      if (k >= valid) continue;
      if (DST_SIZE == 4) store4(q, run[k]);
      else if (DST_SIZE == 2) store2(q, run[k / 2] >> k % 2 * 16);
      else store1(q, run[k / 4] >> k % 4 * 8);
    }
  }
}

/* neighbouring threads are along channels, then along pixels, and so are blocks */
KERNEL(const u8 *src, u8 *dst, const Numbers numbers) {
  const Numbers *s = &numbers;
  u32 words[SRC_RUNS * SRC_WORDS];
  int c0 = (BLOCK_X % s->blocks * LANES + THREAD % LANES) * CW;
  int item = BLOCK_X / s->blocks * (THREADS / LANES) + THREAD / LANES;
  int h = item / STEP / s->columns, w0 = item / STEP % s->columns * (PX * STEP) + item % STEP;
  if (h >= s->height || w0 >= s->dst_line || c0 >= s->dst_groups * s->dst_held) return;
  for (int n = BLOCK_Y; n < s->batch; n += BLOCKS_Y) {
    load_runs(words, src, s, n, c0, h, w0);
    store_runs(dst, words, s, n, c0, h, w0);
  }
}
"""


class Compiler:
    """NVRTC.

    Attributes:
        name: The library's path.
        version: NVRTC's own, such as (12, 6).
    """

    def __init__(self, way: Any, name: str) -> None:
        self._way = way
        self.name = name
        self.version: Tuple[int, int] = tuple(way.version())

    def compile(self, source: str, capability: Tuple[int, int], name: str = "kernel.cu") -> bytes:
        """Compiles to a cubin for the device, or to PTX if NVRTC is older than the device.

        Args:
            source: CUDA C++ text.
            capability: The device's compute capability, such as (8, 7).
            name: The text's name in NVRTC's messages.

        Raises:
            DeviceError: "nvrtc.failed" with NVRTC's log, "nvrtc.device" for a device that this
                NVRTC no longer supports.
        """
        wanted = 10 * capability[0] + capability[1]
        # empty for an NVRTC that does not list them (before 11.2)
        architectures = self._way.architectures()
        if architectures and wanted < min(architectures):
            raise DeviceError(
                "NVRTC {}.{} cannot compile for compute capability {}.{}".format(
                    *self.version, *capability
                ),
                code="nvrtc.device",
                where=self.name,
                hint="use the NVRTC of the board's own CUDA",
            )
        exact = not architectures or wanted in architectures
        arch = "sm_{}".format(wanted)
        if not exact:
            # PTX for the newest known architecture: the driver compiles it for the device
            arch = "compute_{}".format(
                max(architecture for architecture in architectures if architecture <= wanted)
            )
        # no contraction to fused operations: every result must equal NumPy's bit for bit
        options = ["--gpu-architecture=" + arch, "--fmad=false", "--std=c++14"]
        status, image, log = self._way.build(
            source.encode("ascii"), name.encode(), [option.encode() for option in options], exact
        )
        if status:
            raise DeviceError(
                "NVRTC could not compile a kernel (error {})".format(status),
                code="nvrtc.failed",
                where="{} for {}".format(name, arch),
                hint=log.strip()[:_MOST_LOG],
            )
        return bytes(image)


class _LibraryNvrtc:
    """NVRTC's library itself."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        first, second = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(first), ctypes.byref(second))
        self._version = (first.value, second.value)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError("{}: error {}".format(name, status))

    def version(self) -> Tuple[int, int]:
        return self._version

    def architectures(self) -> List[int]:
        count = ctypes.c_int()
        try:
            self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
            found = (ctypes.c_int * max(count.value, 1))()
            self._call("nvrtcGetSupportedArchs", found)
        except (AttributeError, RuntimeError):
            return []
        return list(found)[: count.value]

    def _read(self, kind: str, program: ctypes.c_void_p) -> bytes:
        # sizes include the log's final zero byte
        size = ctypes.c_size_t()
        self._call("nvrtcGet{}Size".format(kind), program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call("nvrtcGet" + kind, program, buffer)
        return buffer.raw[: size.value]

    def build(
        self, source: bytes, name: bytes, options: List[bytes], exact: bool
    ) -> Tuple[int, bytes, str]:
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, name, 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*options)
            # not by ``_call``: the log of a failed compilation is read, too
            status = int(self._library.nvrtcCompileProgram(program, len(options), given))
            log = self._read("ProgramLog", program).decode("utf-8", "replace").rstrip("\0")
            image = b"" if status else self._read("CUBIN" if exact else "PTX", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))
        return status, image, log


def open_compiler(path: Optional[str] = None) -> Compiler:
    """Finds NVRTC.

    Args:
        path: A library to use instead.

    Raises:
        DeviceError: "nvrtc.missing".
    """
    for name in (path,) if path else _library_names():
        try:
            return Compiler(_LibraryNvrtc(ctypes.CDLL(name)), name)
        # absent, another library of that name, or one that does not work: the next name
        except (OSError, AttributeError, RuntimeError):
            continue
    raise DeviceError(
        "NVRTC is needed to compile the pack kernels and is missing",
        code="nvrtc.missing",
        where=path or "",
        hint="install the board's package cuda-nvrtc-X-Y, or nvidia-cuda-nvrtc-cu12 from pip",
    )


def _library_names() -> List[str]:
    found = list(_LIBRARIES)
    for folder in _FOLDERS:
        # the newest CUDA first
        found += sorted(glob.glob(os.path.join(folder, "libnvrtc.so*")), reverse=True)
    for base in sys.path:
        for package in _PACKAGES:
            found += sorted(glob.glob(os.path.join(base or ".", package, "libnvrtc.so*")))
    return found


@dataclass(frozen=True)
class Layout:
    """A tensor's memory layout; an ``IoEntry`` or ``DeviceTensor`` can be used as well.

    Attributes:
        dtype: "float32", "float16", "uint8" or "int8".
        shape: The tensor's own shape; leading dimensions beyond (C, H, W) are one batch.
        format: "LINEAR" (planes), "HWC" (channels last), "DLA_LINEAR", "DLA_HWC4", "CHW16" or
            "CHW32".
        strides: Bytes along N, C (or vectors of C), H and W; may be empty for LINEAR, and for HWC
            without padding.
        scale: Value of one step of an INT8 tensor; None if the elements are the values.
    """

    dtype: str
    shape: Tuple[int, ...]
    format: str
    strides: Tuple[int, ...] = ()
    scale: Optional[float] = None


class Numbers(ctypes.Structure):
    """The kernel's third parameter, as :data:`TEXT` declares it."""

    _fields_ = [
        *[(name, ctypes.c_int) for name in (
            "batch", "channels", "height", "width", "columns", "blocks",
            "src_groups", "src_line", "src_held", "dst_groups", "dst_line", "dst_held",
        )],
        *[(name, ctypes.c_float) for name in (
            "src_scale", "dst_scale", "inverse", "low", "high", "slope", "start",
        )],
    ]  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """A kernel's definitions (from which its source is made), its numbers and its grid."""

    defines: Tuple[Tuple[str, int], ...]
    numbers: Numbers
    grid: Tuple[int, int, int]


@dataclass(frozen=True)
class _MemoryLayout:
    """Memory of (batch, groups, height, line, held) elements of ``size`` bytes."""

    size: int
    groups: int
    line: int
    held: int


def kernel_source(launch: Launch, prelude: str = CUDA_PRELUDE) -> str:
    """Returns the text of a planned kernel."""
    defines = "".join("#define {} {}\n".format(*definition) for definition in launch.defines)
    return defines + prelude + TEXT


def plan_kernel(src: Any, dst: Any) -> Launch:
    """Plans the kernel that writes ``src``'s tensor in ``dst``'s layout.

    Raises:
        DeviceError: "kernels.shape", "kernels.scale", "kernels.unsupported", or as
            ``arrays.formats.stored_shape``.
    """
    shape = as_nchw(src.shape)
    if shape != as_nchw(dst.shape):
        raise DeviceError(
            "{} cannot be converted to {}".format(list(src.shape), list(dst.shape)),
            code="kernels.shape",
        )
    a, b = _memory_layout(src), _memory_layout(dst)
    numbers, defines = _conversion(src, dst)
    batch, channels, height, width = shape
    if a.held == b.held == 1 and not (width * a.size % _WORD or width * b.size % _WORD):
        # planes of whole words: lines are independent of each other
        batch, channels, height = 1, batch * channels * height, 1
        a, b = replace(a, groups=channels), replace(b, groups=channels)
    elif a.line == b.line == width:
        # without padding of lines, all lines are one
        height, width = 1, height * width
        a, b = replace(a, line=width), replace(b, line=width)
    block = _block_size(a, b, channels)
    for name, layout in (("SRC", a), ("DST", b)):
        # 0: the kernel takes the number as an argument, so one kernel serves any number of channels
        block[name + "_HELD"] = 0 if layout.groups == 1 and layout.held > _FEW else layout.held
    lines = batch * height
    # the target's words first: the choice of STEP below also determines how the source is read
    block["DST_WORD"] = _word_size(b, block, "DST", lines * b.groups)
    ways = (block["SRC_WAY"], block["DST_WAY"])
    if block["DST_WORD"] <= b.size and ways[1] == _ALONG_PIXELS and ways[0] != _WHOLE_PIXELS:
        # single elements: neighbouring threads write neighbours
        block.update(PX=4, STEP=_WARP, DST_WORD=0)
    block["SRC_WORD"] = _word_size(a, block, "SRC", lines * a.groups)
    # the target's channels with padding, which the kernel writes as zeros
    covered = b.groups * b.held
    if covered <= channels and b.line <= width:
        # no padding of the result: the source's padding may be read
        channels, width = a.groups * a.held, a.line
    numbers.batch, numbers.channels, numbers.height, numbers.width = batch, channels, height, width
    numbers.src_groups, numbers.src_line, numbers.src_held = a.groups, a.line, a.held
    numbers.dst_groups, numbers.dst_line, numbers.dst_held = b.groups, b.line, b.held
    numbers.columns = -(-b.line // (block["PX"] * block["STEP"]))
    numbers.blocks = -(-covered // (block["LANES"] * block["CW"]))
    # blocks along lines and pixels; batches are the grid's y
    rows = -(-numbers.columns * height // (_THREADS // block["LANES"] // block["STEP"]))
    grid = (rows * numbers.blocks, min(batch, _MOST_ROWS), 1)
    return Launch(tuple(sorted({**defines, **block}.items())), numbers, grid)


def _memory_layout(layout: Any) -> _MemoryLayout:
    if layout.format not in _FORMATS or layout.dtype not in _TYPES:
        raise DeviceError(
            "no kernel converts {} to {}".format(layout.dtype, layout.format),
            code="kernels.unsupported",
            hint="types: {}; formats: {}".format(", ".join(_TYPES), ", ".join(_FORMATS)),
        )
    size = DTYPES[layout.dtype]
    batch, channels, height, width = as_nchw(layout.shape)
    line, held = width, VECTORS.get(layout.format, 1)
    # channels last without padding, as images come
    if layout.format == "HWC" and not layout.strides:
        held = max(1, channels)
    elif layout.format != "LINEAR":
        stored = stored_shape(layout.shape, size, layout.format, layout.strides)
        line = stored[2 if layout.format in _LAST else 3]
        held = stored[3] if layout.format in _LAST else held
    found = _MemoryLayout(size, -(-channels // held), line, held)
    if batch * found.groups * height * found.line * found.held > _MOST_PLACES:
        raise DeviceError(
            "a tensor of {} is too large for the kernels".format(list(layout.shape)),
            code="kernels.unsupported",
            hint="convert it in parts of fewer than 2**31 elements",
        )
    return found


def _block_size(a: _MemoryLayout, b: _MemoryLayout, channels: int) -> Dict[str, int]:
    """Returns a thread's definitions, by their names in :data:`TEXT`.

    Words are as wide as possible, and neighbouring threads write adjacent memory: a sector of 32
    bytes that is written in parts costs several times as much.
    """
    few = 1 < max(a.held, b.held) <= _FEW
    last = _WHOLE_PIXELS if few else _ALONG_CHANNELS
    ways = tuple(last if layout.held > 1 else _ALONG_PIXELS for layout in (a, b))
    read, write = _WORD // a.size, _WORD // b.size  # elements of a word
    if few:
        cut = (max(a.held, b.held), write if b.held == 1 else write // 2, 1, 1)
    elif ways == (_ALONG_PIXELS, _ALONG_PIXELS):
        cut = (max(1, min(8, channels)), min(read, write), 1, 1)
    elif ways == (_ALONG_CHANNELS, _ALONG_CHANNELS):
        cut = (min(read, write), 4, 8, 4)
    else:
        # 16 bytes or more of each run to read, 16 bytes or less to write; 64 elements or more.
        # Planes of whole words are quicker written from 64, unless elements grow
        write = min(8, write)
        enough = b.held == 1 and b.size <= a.size and not b.line * b.size % _WORD
        read = max(0 if enough else read, 64 // write)
        wide, pixels = (write, read) if b.held > 1 else (read, write)
        lanes = max(a.held, b.held) // wide  # of one vector
        cut = (wide, pixels, 1, max(1, min(_WARP // wide, lanes)))
    named = dict(zip(("CW", "PX", "STEP", "LANES"), cut))  # noqa: B905
    real_channels = min(named["CW"], channels) if few else named["CW"]
    return {
        "SRC_WAY": ways[0],
        "DST_WAY": ways[1],
        "SRC_CW": real_channels,
        "THREADS": _THREADS,
        **named,
    }


def _word_size(layout: _MemoryLayout, block: Dict[str, int], name: str, lines: int) -> int:
    """Returns the alignment in bytes of every run of a side; 0 for single elements."""
    way = block[name + "_WAY"]
    if way == _ALONG_PIXELS and block["STEP"] > 1:
        return 0
    run = block["CW"] if way == _ALONG_CHANNELS else block["PX"] * layout.held
    # distance of one run to the next; a single line has none
    step = layout.held if way == _ALONG_CHANNELS else layout.line * layout.held if lines > 1 else 0
    word = math.gcd(math.gcd(_WORD, run * layout.size), step * layout.size)
    return word if word >= 4 or (name == "SRC" and word > layout.size) else 0


def _conversion(src: Any, dst: Any) -> Tuple[Numbers, Dict[str, int]]:
    """Returns numbers and definitions of the conversion, which equals ``arrays.formats.convert``.

    Raises:
        DeviceError: "kernels.scale".
    """
    numbers = Numbers()
    same = src.dtype == dst.dtype
    # equal INT8 steps with equal scales are the same bytes
    raw = same and (src.dtype != "int8" or None in (src.scale, dst.scale) or src.scale == dst.scale)
    defines = {
        "SRC_T": _TYPES[src.dtype],
        "DST_T": _TYPES[dst.dtype],
        "RAW": int(raw),
        "QUICK": 0,
        "SCALED": int(not raw and src.dtype == "int8" and src.scale is not None),
        "NANS": int(not raw and src.dtype.startswith("float")),
    }
    if raw:
        return numbers, defines
    numbers.src_scale = 1.0 if src.scale is None else src.scale
    if dst.dtype == "int8":
        if dst.scale is None or not _LEAST_SCALE <= dst.scale <= _MOST_SCALE:
            raise DeviceError(
                "INT8 needs a scale between {} and {}, not {}".format(
                    _LEAST_SCALE, _MOST_SCALE, dst.scale
                ),
                code="kernels.scale",
            )
        numbers.dst_scale = dst.scale
        rounded = numbers.dst_scale  # as float32
        # the quotient of two float32 in double precision, rounded once more, is the rounded
        # quotient (S. Figueroa, "When is double rounding innocuous?", 1995: 53 >= 2 * 24 + 2)
        numbers.inverse = 1.0 / rounded
        numbers.low, numbers.high = -128.0 * rounded, 127.0 * rounded
    # only 256 values: each can be tested beforehand
    if DTYPES[src.dtype] == DTYPES[dst.dtype] == 1:
        defines["QUICK"] = int(_set_product(numbers, src, dst))
    return numbers, defines


def _set_product(numbers: Numbers, src: Any, dst: Any) -> bool:
    """Sets the numbers if every byte's step is its share of all steps, saturated; returns True
    then.
    """
    import numpy as np

    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(src.dtype)
    lifted = 32768.0 + (codes ^ (128 if src.dtype == "int8" else 0))  # as the kernel has it
    slope = (src.scale or 1.0) if src.dtype == "int8" else 1.0
    least = int(np.iinfo(dst.dtype).min)
    if dst.dtype == "int8":
        wanted = convert(values, "int8", src.scale, dst.scale)
        slope /= dst.scale
    else:
        real = np.rint(convert(values, "float32", src.scale, None))
        wanted = np.clip(real, 0, 255).astype(np.uint8)
    zero = 32896.0 if src.dtype == "int8" else 32768.0
    with np.errstate(all="ignore"):
        a, b = np.float32(slope / 255), np.float32(-(zero * slope + least) / 255)
        shares = np.clip(lifted * np.float64(a) + np.float64(b), 0.0, 1.0)
        # the kernel rounds a share to a multiple of 2**-24 at most; False for NaN, too
        near = np.abs(shares * 255 + least - wanted.astype(np.float64)) < 0.5 - 255 * 2.0**-23
    if not bool(near.all()):
        return False
    numbers.slope, numbers.start, numbers.low = float(a), float(b), _ROUND + least
    return True


class PackKernels:
    """Compiles and launches the kernels of one device; every method may be called from any thread.

    A call only enqueues work on the stream: the caller waits for the result.

    Args:
        cuda: The :class:`edgekit_device.cuda.driver.Cuda` to work with.
        folder: Folder of compiled kernels (a root's ``kernels``); None to keep them in memory only.
        compiler: NVRTC; by default found when a kernel is not in the folder.
    """

    def __init__(
        self, cuda: Any, folder: Optional[Path] = None, compiler: Optional[Compiler] = None
    ) -> None:
        self._cuda = cuda
        self._folder = folder
        self._compiler = compiler
        self._functions: Dict[Tuple[Tuple[str, int], ...], int] = {}
        self._lock = threading.Lock()
        self._capability = cuda.compute_capability()

    def convert(self, src_ptr: int, src: Any, dst_ptr: int, dst: Any, stream: int = 0) -> None:
        """Converts a tensor from planes ("LINEAR") or channels last ("HWC") to a DLA format, or
        back.

        Args:
            src_ptr: Device address of the tensor, a multiple of 16.
            src: Its layout: a ``Layout``, ``IoEntry`` or ``DeviceTensor``.
            dst_ptr: Device address to write at, a multiple of 16; padding is set to zero.
            dst: The wanted layout.
            stream: CUDA stream.

        Raises:
            DeviceError: "kernels.*", "format.*", "nvrtc.*" or "cuda.*".
        """
        if (src.format in _DLA) == (dst.format in _DLA):
            raise DeviceError(
                "no kernel converts {} to {}".format(src.format, dst.format),
                code="kernels.unsupported",
                hint="one side is {}, so the other must be LINEAR or HWC".format(", ".join(_DLA)),
            )
        self._launch(plan_kernel(src, dst), src_ptr, dst_ptr, stream)

    def _launch(self, launch: Launch, src_ptr: int, dst_ptr: int, stream: int) -> None:
        for pointer in (src_ptr, dst_ptr):
            if pointer % _WORD:
                raise DeviceError(
                    "the address {:#x} is not a multiple of {}".format(pointer, _WORD),
                    code="kernels.alignment",
                    hint="give each tensor its own memory",
                )
        if 0 in launch.grid:
            return  # a tensor without elements
        arguments = [ctypes.c_uint64(src_ptr), ctypes.c_uint64(dst_ptr), launch.numbers]
        with self._lock:
            # by definitions: the same kernel serves all sizes with the same layout of a thread
            function = self._functions.get(launch.defines)
            if function is None:
                module = self._cuda.load_module(self._image(kernel_source(launch)))
                function = self._cuda.function(module, "convert")
                self._functions[launch.defines] = function
        self._cuda.launch(function, launch.grid, (_THREADS, 1, 1), arguments, stream)

    def _image(self, text: str) -> bytes:
        """Returns the compiled kernel from the folder, or compiles it and stores it there."""
        # the whole text, so that a changed kernel never uses an old file
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()
        name = "{}-sm_{}{}.bin".format(digest[:32], *self._capability)
        if self._folder is not None:
            stored = self._folder / name
            if stored.is_file():
                with map_os_errors(str(stored)):
                    return stored.read_bytes()
        if self._compiler is None:
            self._compiler = open_compiler()
        image = self._compiler.compile(text, self._capability)
        if self._folder is not None:
            with map_os_errors(str(self._folder)):
                self._folder.mkdir(parents=True, exist_ok=True)
                write_durably(self._folder / name, image)
        return image
