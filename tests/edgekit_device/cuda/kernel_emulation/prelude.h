/* What the pack kernels' text stands on, for a C compiler: every access is checked. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#define HELPER static inline
#define KERNEL static void convert
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef long long i64;

static const u8 *source_begin, *source_end;
static u8 *target_begin, *target_end;
static long outside, crooked;
static inline void check_load(const u8 *p, int n) {
  if (p < source_begin || p + n > source_end) outside++;
  if ((uintptr_t)p % n) crooked++;
}
static inline void check_store(u8 *p, int n) {
  if (p < target_begin || p + n > target_end) outside++;
  if ((uintptr_t)p % n) crooked++;
}
static inline u32 get(const u8 *p, int n) {
  u32 v = 0;
  memcpy(&v, p, n);
  return v;
}
HELPER u32 load4(const u8 *p) { check_load(p, 4); return get(p, 4); }
HELPER u32 load2(const u8 *p) { check_load(p, 2); return get(p, 2); }
HELPER u32 load1(const u8 *p) { check_load(p, 1); return get(p, 1); }
HELPER void load16(u32 *to, const u8 *p) { check_load(p, 16); memcpy(to, p, 16); }
HELPER void load8(u32 *to, const u8 *p) { check_load(p, 8); memcpy(to, p, 8); }
HELPER void store16(u8 *p, const u32 *v) { check_store(p, 16); memcpy(p, v, 16); }
HELPER void store8(u8 *p, const u32 *v) { check_store(p, 8); memcpy(p, v, 8); }
HELPER void store4(u8 *p, u32 v) { check_store(p, 4); memcpy(p, &v, 4); }
HELPER void store2(u8 *p, u32 v) { check_store(p, 2); memcpy(p, &v, 2); }
HELPER void store1(u8 *p, u32 v) { check_store(p, 1); *p = (u8)v; }
HELPER u32 perm(u32 a, u32 b, u32 which) {
  uint64_t both = (uint64_t)b << 32 | a;
  u32 v = 0;
  for (int i = 0; i < 4; i++) v |= (u32)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
  return v;
}
HELPER u32 bits_of(float v) { u32 b; memcpy(&b, &v, 4); return b; }
HELPER float float_of(u32 b) { float v; memcpy(&v, &b, 4); return v; }
HELPER float add(float a, float b) { return a + b; }
HELPER float times(float a, float b) { return a * b; }
HELPER float fused(float a, float b, float c) { return fmaf(a, b, c); }
HELPER float within(float v, float low, float high) { return fminf(fmaxf(v, low), high); }
HELPER float saturated(float v) { return v > 0 ? fminf(v, 1.0f) : 0.0f; }
/* IEEE 754 binary16, to nearest, half to even */
HELPER u32 half_of(float v) {
  u32 b = bits_of(v), sign = b >> 16 & 0x8000, rest = b & 0x7fffffff;
  if (rest > 0x7f800000) return 0x7fff;
  if (rest >= 0x477ff000) return sign | 0x7c00;
  if (rest < 0x38800000) return sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000);
  return sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}
HELPER float of_half(u32 h) {
  u32 sign = (h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest < 0x400) return float_of(sign | bits_of((float)rest * 5.9604644775390625e-8f));
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  return float_of(sign | ((rest << 13) + 0x38000000));
}
static int block_x, block_y, blocks_y, thread_x;
#define BLOCK_X block_x
#define BLOCK_Y block_y
#define BLOCKS_Y blocks_y
#define THREAD thread_x
