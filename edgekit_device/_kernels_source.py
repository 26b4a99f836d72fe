"""The text of the pack kernels: one template, made into a kernel by definitions before it.

The same text is compiled by NVRTC for the GPU and, with another prelude, by a C compiler for the
tests, which compare it with the NumPy packer without a GPU. But for ``_kernels_stage`` a thread
moves a block of CW channels by PX pixels through its registers, and the threads of a warp lie so
that both sides touch whole 32-byte sectors.

Definitions (``_kernels_plan`` chooses them):
  SRC_T, DST_T: element types, 0 float32, 1 float16, 2 uint8, 3 int8.
  SRC_SIDE, DST_SIDE: 0 planes of pixels, 1 channels last, 2 vectors of VECTOR channels.
  SRC_HOLD, DST_HOLD: channels of a pixel in memory where a run crosses pixels, otherwise 0.
  SRC_MODE, DST_MODE: 0 one element at a time, 1 aligned words; loads only: 2 put together of
    words, 3 of words of up to 16 bytes.
  LOOSE: 1 runs are loaded whole wherever the tensor's memory goes on, and what is not valid is
    zero; 2 the same, and it is anything; 0 elsewhere.
  ROLLED: a dense tensor is written as one line, from lines of `rolled` pixels and a gap behind.
  STAGED: the threads of a block write together (``_kernels_stage``, ``_kernels_window``).
  WINDOW: channels last are written in aligned runs, 1 from vectors, 2 from planes.
  CW, PX, LANES, UNROLL, THREADS: block, lanes along channels, blocks of a thread, threads.
  CHANNELS: where pixels lie in one thread, how many, otherwise 0.
  RAW: bits are moved; SCALED: INT8 values are multiplied by their scale; FLAT: one row.
  STRAIGHT: 1 whole runs are moved as words, 2 so are squares of bytes, turned word by word;
    where LOOSE, bytes that become bytes, too.
  NANS: values may be NaN; DIVIDE: steps of the division, fewer than 2 where each value is quantised
    the same without.
  QUICK: bytes become bytes by one multiplication, 1 between LOWER and UPPER ends where these are
    set, 2 saturated by the multiplication itself; 3 halves become INT8 by a saturated product for
    each sign, of which NaN has none; 4 as 2, of bytes lifted by 2**15.
  BLOCKS: thread blocks that a multiprocessor must have registers for.
  WHOLE: each block lies within the tensor.
  CAMERA: 0 none, 1 UINT8 channels last, 2 NV12; SWAP: the order of three channels is turned.

Division: ``quantise`` rounds as float32 division does. With y the rounded reciprocal and q within
one unit of the last place, fma(fma(-q, b, a), y, q) is the rounded quotient (P. Markstein,
"Computation of elementary functions on the IBM RISC System/6000 processor", 1990, theorem 7.1);
the first of the two steps brings q there. Adding 1.5 * 2**23 rounds to an integer, half to even.
"""

from __future__ import annotations

__all__ = ["TEMPLATE"]

TEMPLATE = """\
typedef struct {
  int batch, channels, height, width;
  int src_line, dst_line, src_held, dst_held;
  int groups, columns, pitch, chroma_pitch;
  float src_scale, dst_scale, inverse, low, high;
  float mean[3], factor[3], colour[3], luma, red_v, green_u, green_v, blue_u;
  float slope[3], start[3], span, base;
  i64 chroma, src_bytes;
  int rolled, gap;
  u32 magic[2];
  int moves[2];
} Numbers;

#ifndef LOOSE
#define LOOSE 0
#define ROLLED 0
#define STAGED 0
#define WINDOW 0
#endif

#define SIZE_OF(t) ((t) == 0 ? 4 : (t) == 1 ? 2 : 1)
#define SRC_SIZE SIZE_OF(SRC_T)
#define DST_SIZE SIZE_OF(DST_T)
#define CELLS (CW * PX)
#if SRC_HOLD
#define SRC_K (PX * SRC_HOLD)
#elif SRC_SIDE == 0
#define SRC_K PX
#else
#define SRC_K CW
#endif
#if DST_HOLD
#define DST_K (PX * DST_HOLD)
#elif DST_SIDE == 0
#define DST_K PX
#else
#define DST_K CW
#endif
/* halves are made of two values at once, when they are stored */
#define LATE (DST_T == 1 && !RAW)
/* a byte b is the float 2**23 + b: one byte permutation, and a sum that is exact */
#define LIFTED (SRC_SIZE == 1 && !RAW && CAMERA != 2)
#define LIFT (SRC_T == 3 ? 8388736.0f : 8388608.0f)
/* or 2**15 + b, which one product and sum take as it is */
#define LOW_LIFT (LIFTED && QUICK == 4)
#define ROUND 12582912.0f
#define SRC_BYTES (SRC_K * SRC_SIZE)
#define DST_BYTES (DST_K * DST_SIZE)

HELPER u32 load_one(const u8 *p) {
  return SRC_SIZE == 4 ? load4(p) : SRC_SIZE == 2 ? load2(p) : load1(p);
}

/* an element of a word; a byte that is not only moved as a float, 2**23 + 128 higher if signed */
HELPER u32 element(u32 word, int k) {
  if (LOW_LIFT)
    return perm(SRC_T == 3 ? word ^ 0x80808080u : word, 0x47000000u, 0x7404u + (k << 4));
  if (LIFTED) return perm(SRC_T == 3 ? word ^ 0x80808080u : word, 0x4b000000u, 0x7440u + k);
  if (SRC_SIZE == 2) return k ? word >> 16 : word & 0xffffu;
  return SRC_SIZE == 4 ? word : RAW ? word >> 8 * k : word >> 8 * k & 0xffu;
}

#define UNIT (SRC_BYTES % 16 == 0 ? 16 : SRC_BYTES % 8 == 0 ? 8 : 4)
HELPER void load_unit(u32 *to, const u8 *p) {
  if (UNIT == 16) load16(to, p);
  else if (UNIT == 8) load8(to, p);
  else to[0] = load4(p);
}

/* the words of a run; not for mode 0 */
HELPER void load_words(u32 *words, const u8 *p) {
  if (SRC_MODE == 2) {
    u32 off = (u32)((i64)p & 3);
    const u8 *base = p - off;
    u32 low = load4(base);
#pragma unroll
    for (int i = 0; i < SRC_BYTES / 4; i++) {
      u32 high = (off || i + 1 < SRC_BYTES / 4) ? load4(base + 4 * i + 4) : 0;
      words[i] = join(low, high, off * 8);
      low = high;
    }
  } else if (SRC_BYTES % 16 == 0) {
#pragma unroll
    for (int i = 0; i < SRC_BYTES / 16; i++) load16(words + 4 * i, p + 16 * i);
  } else if (SRC_BYTES % 8 == 0) {
#pragma unroll
    for (int i = 0; i < SRC_BYTES / 8; i++) load8(words + 2 * i, p + 8 * i);
  } else {
#pragma unroll
    for (int i = 0; i < SRC_BYTES / 4; i++) words[i] = load4(p + 4 * i);
  }
}

HELPER void store_words(u8 *p, const u32 *words) {
  if (DST_BYTES % 16 == 0) {
#pragma unroll
    for (int i = 0; i < DST_BYTES / 16; i++) store16(p + 16 * i, words + 4 * i);
  } else if (DST_BYTES % 8 == 0) {
#pragma unroll
    for (int i = 0; i < DST_BYTES / 8; i++) store8(p + 8 * i, words + 2 * i);
  } else {
#pragma unroll
    for (int i = 0; i < DST_BYTES / 4; i++) store4(p + 4 * i, words[i]);
  }
}

/* SRC_K elements that lie next to each other; those from `valid` on are zeros and unread */
HELPER void load_run(u32 *run, const u8 *p, int valid, int full) {
  if (SRC_MODE != 0 && (full || valid >= SRC_K)) {
    u32 words[(SRC_BYTES + 3) / 4];
    load_words(words, p);
#pragma unroll
    for (int k = 0; k < SRC_K; k++)
      run[k] = element(words[k * SRC_SIZE / 4], k % (4 / SRC_SIZE));
  } else {
#pragma unroll
    for (int k = 0; k < SRC_K; k++)
      run[k] = element(full || k < valid ? load_one(p + k * SRC_SIZE) : 0, 0);
  }
}

HELPER u32 both(u32 a, u32 b) {
  return LATE ? half_pair(float_of(a), float_of(b)) : halves(a, b);
}

HELPER void store_run(u8 *p, const u32 *run, int valid, int full) {
  if (DST_MODE != 0 && (full || valid >= DST_K)) {
    u32 words[(DST_BYTES + 3) / 4];
#pragma unroll
    for (int i = 0; i < (DST_BYTES + 3) / 4; i++) {
      int k = i * (4 / DST_SIZE), last = DST_K - 1;
      if (DST_SIZE == 4) words[i] = run[k];
      else if (DST_SIZE == 2) words[i] = both(run[k], run[k < last ? k + 1 : last]);
      else words[i] = bytes(run + (k + 3 < last ? k : last - 3));
    }
    store_words(p, words);
  } else {
#pragma unroll
    for (int k = 0; k < DST_K; k++) {
      if (full || k < valid) {
        if (DST_SIZE == 4) store4(p + 4 * k, run[k]);
        else if (DST_SIZE == 2) store2(p + 2 * k, LATE ? half_of(float_of(run[k])) : run[k]);
        else store1(p + k, run[k]);
      }
    }
  }
}

/* the nearest step, half to even, saturated; NaN is 0 */
HELPER u32 quantise(float v, const Numbers *s) {
  if (NANS) v = v == v ? v : 0.0f;
  v = smaller(larger(v, s->low), s->high);
  float q = times(v, s->inverse);
  if (DIVIDE) {
    q = fused(fused(-q, s->dst_scale, v), s->inverse, q);
    if (DIVIDE > 1) q = fused(fused(-q, s->dst_scale, v), s->inverse, q);
  }
  return bits_of(add(q, ROUND));
}

/* what is stored: bits, of which a byte takes the lowest eight; a value where it is stored LATE */
HELPER u32 written(float v, const Numbers *s) {
  if (DST_T < 2) return bits_of(v);
  if (DST_T == 3) return quantise(v, s);
  /* NaN saturates to 0; the products with powers of two are exact, but where they round to 0 */
  if (NANS) {
    v = smaller(saturated(times(v, 0.00390625f)), 0.99609375f);
    return bits_of(fused(v, 256.0f, ROUND));
  }
  return bits_of(add(smaller(larger(v, 0.0f), 255.0f), ROUND));
}

/* the step of a byte's value: saturated between 0 and 1, then spread over the steps */
HELPER u32 step(float v, int c, const Numbers *s) {
  return bits_of(fused(saturated(fused(v, s->slope[c], s->start[c])), s->span, s->base));
}

HELPER u32 turned(u32 bits, const Numbers *s) {
  if (RAW) return bits;
  float v = SRC_T == 1 ? of_half(bits) : float_of(bits);
  if (LOW_LIFT) return step(v, 0, s);
  if (LIFTED) v = add(v, -LIFT);
  if (QUICK == 2) return step(v, 0, s);
  if (QUICK == 3)
    return bits_of(fused(saturated(times(v, s->slope[0])), 127.0f,
                         fused(saturated(times(v, s->slope[1])), -128.0f, ROUND)));
  if (QUICK) {
    if (LOWER) v = larger(v, s->low);
    if (UPPER) v = smaller(v, s->high);
    return bits_of(fused(v, s->slope[0], ROUND));
  }
  if (SCALED) v = times(v, s->src_scale);
  return written(v, s);
}

HELPER i64 place(int side, const Numbers *s, int line, int held, int n, int c, int h, int w) {
  if (side == 0) return (((i64)n * s->channels + c) * s->height + h) * line + w;
  if (side == 1) return (((i64)n * s->height + h) * line + w) * held + c;
  i64 vectors = (s->channels + VECTOR - 1) / VECTOR;
  return (((n * vectors + c / VECTOR) * s->height + h) * line + w) * VECTOR + c % VECTOR;
}
"""
