"""What the pack kernels' text stands on in CUDA C++; the tests have the same for a C compiler."""

from __future__ import annotations

__all__ = ["CUDA_PRELUDE"]

CUDA_PRELUDE = """\
#define HELPER static __device__ __forceinline__
#define KEEP __restrict__
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
HELPER void peek16(u32 *to, const u8 *p) { /* of shared memory */
  uint4 v = *(const uint4 *)p;
  to[0] = v.x; to[1] = v.y; to[2] = v.z; to[3] = v.w;
}
HELPER u32 load4(const u8 *p) { return __ldg((const u32 *)p); }
HELPER u32 load2(const u8 *p) { return __ldg((const u16 *)p); }
HELPER u32 load1(const u8 *p) { return __ldg(p); }
HELPER void store16(u8 *p, const u32 *v) { *(uint4 *)p = make_uint4(v[0], v[1], v[2], v[3]); }
HELPER void store8(u8 *p, const u32 *v) { *(uint2 *)p = make_uint2(v[0], v[1]); }
HELPER void store4(u8 *p, u32 v) { *(u32 *)p = v; }
HELPER void store2(u8 *p, u32 v) { *(u16 *)p = (u16)v; }
HELPER void store1(u8 *p, u32 v) { *p = (u8)v; }
HELPER u32 join(u32 low, u32 high, u32 shift) { return __funnelshift_r(low, high, shift); }
HELPER u32 right(u32 v, u32 shift) { /* none is left of 32 bits and more */
  u32 moved;
  asm("shr.b32 %0, %1, %2;" : "=r"(moved) : "r"(v), "r"(shift));
  return moved;
}
HELPER u32 perm(u32 a, u32 b, u32 which) { return __byte_perm(a, b, which); }
HELPER u32 halves(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
HELPER u32 bytes(const u32 *v) {
  return __byte_perm(__byte_perm(v[0], v[1], 0x0040), __byte_perm(v[2], v[3], 0x0040), 0x5410);
}
HELPER u32 bits_of(float v) { return __float_as_uint(v); }
HELPER float float_of(u32 v) { return __uint_as_float(v); }
HELPER float add(float a, float b) { return __fadd_rn(a, b); }
HELPER float times(float a, float b) { return __fmul_rn(a, b); }
HELPER float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HELPER float smaller(float a, float b) { return fminf(a, b); }
HELPER float larger(float a, float b) { return fmaxf(a, b); }
HELPER u32 half_of(float v) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return h;
}
HELPER u32 half_pair(float low, float high) {
#if __CUDA_ARCH__ >= 800
  u32 both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return halves(half_of(low), half_of(high));
#endif
}
HELPER float saturated(float v) { return __saturatef(v); }
HELPER float of_half(u32 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)v));
  return f;
}
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) convert
#define BODY(src, dst, s) \\
  one(src, dst, s, (int)blockIdx.x, (int)blockIdx.y, (int)gridDim.y, (int)threadIdx.x)
#define STAGED_BODY(src, dst, s) \\
  __shared__ __align__(16) u8 stage[STAGE_BYTES]; \\
  for (int n = (int)blockIdx.y; n < (s)->batch; n += (int)gridDim.y) { \\
    fill(src, stage, s, (int)blockIdx.x, n, (int)threadIdx.x); \\
    __syncthreads(); \\
    flush(dst, stage, s, (int)blockIdx.x, n, (int)threadIdx.x); \\
    __syncthreads(); \\
  }
"""
