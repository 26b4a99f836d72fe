"""The pack kernels' text that reads runs of a dense tensor whose lines begin at any byte.

All the units of a thread's runs are loaded before any is looked at, and whole: those that begin
within the tensor. What is not of a run is cut away word by word, where a thread has any. Bytes that
become bytes are converted where they lie and then moved as such (STRAIGHT).
"""

from __future__ import annotations

__all__ = ["RUNS"]

RUNS = """\
/* the quotient of a number below 2**31 */
HELPER u32 divided(u32 v, const Numbers *s, int which) {
  return (u32)((unsigned long long)v * s->magic[which] >> s->moves[which]);
}

#if LOOSE
#define RUNS (SRC_SIDE == 0 ? CW : PX)
#define RUN_WORDS (SRC_BYTES / 4)
/* single words of float32 begin where units do */
#define FROM_WORDS ((SRC_BYTES + (UNIT == SRC_SIZE ? 0 : UNIT)) / 4)

/* a mask of a word's first bytes; none and all of them, too */
HELPER u32 kept(int count) { return right(0xffffffffu, count < 4 ? 32 - 8 * count : 0); }

/* the runs that begin `step` apart; units from `end` on are not read, where it is given */
HELPER void load_runs(u32 *words, const u8 *p, i64 step, const u8 *end) {
  u32 from[RUNS][FROM_WORDS];
  if (!end) {
#pragma unroll
    for (int r = 0; r < RUNS; r++) {
      const u8 *q = p + r * step;
#pragma unroll
      for (int i = 0; i < FROM_WORDS; i += UNIT / 4)
        load_unit(from[r] + i, q - ((i64)q & (UNIT - 1)) + 4 * i);
    }
  } else {
#pragma unroll
    for (int r = 0; r < RUNS; r++) {
      const u8 *q = p + r * step;
      q -= (i64)q & (UNIT - 1);
#pragma unroll
      for (int i = 0; i < FROM_WORDS; i += UNIT / 4) {
#pragma unroll
        for (int k = 0; k < UNIT / 4; k++) from[r][i + k] = 0;
        if (q + 4 * i < end) load_unit(from[r] + i, q + 4 * i);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < RUNS; r++)
    shifted(words + r * RUN_WORDS, from[r], (u32)((i64)(p + r * step) & (UNIT - 1)), RUN_WORDS,
            UNIT, SRC_SIZE);
}

/* the words of a thread's runs, one run after the other */
HELPER void load_loose(u32 *words, const u8 *src, const Numbers *s, int n, int c0, int h, int w0) {
  int pixels = s->width - w0;
  const u8 *p = src + place(SRC_SIDE, s, s->src_line, s->src_held, n, c0, h, w0) * SRC_SIZE;
#if SRC_SIDE == 2
#pragma unroll
  for (int j = 0; j < PX; j++)
    load_words(words + j * RUN_WORDS, p + (j < pixels ? j : 0) * VECTOR * SRC_SIZE);
#else
  i64 step = (SRC_SIDE == 0 ? (i64)s->height * s->src_line : s->src_held) * SRC_SIZE;
  const u8 *end = src + s->src_bytes;
#if ROLLED
  u32 line = divided((u32)w0, s, 0);
  int left = (int)((line + 1) * s->rolled) - w0;
  p += (i64)line * s->gap * SRC_SIZE;
#endif
  load_runs(words, p, step, p + (RUNS - 1) * step + SRC_BYTES + UNIT > end ? end : 0);
#if ROLLED
  if (left < PX) {
    u32 next[RUNS * RUN_WORDS];
    load_runs(next, p + s->gap * SRC_SIZE, step, end);
#pragma unroll
    for (int i = 0; i < RUN_WORDS; i++) {
      u32 mask = kept(left * SRC_SIZE - 4 * i);
#pragma unroll
      for (int r = 0; r < RUNS; r++) {
        u32 *word = words + r * RUN_WORDS + i;
        *word = (*word & mask) | (next[r * RUN_WORDS + i] & ~mask);
      }
    }
  }
#endif
  if (LOOSE == 1 && (pixels < PX || (DST_SIDE == 2 && c0 + CW > s->channels))) {
#pragma unroll
    for (int r = 0; r < RUNS; r++) {
      /* no plane is made of channels that are not there */
      int valid = SRC_SIDE == 0 ? (c0 + r < s->channels ? pixels : 0)
                : r >= pixels ? 0 : DST_SIDE == 0 ? SRC_K : s->channels - c0;
#pragma unroll
      for (int i = 0; i < RUN_WORDS; i++)
        words[r * RUN_WORDS + i] &= kept(valid * SRC_SIZE - 4 * i);
    }
  }
#endif
  if (STRAIGHT && !RAW) { /* bytes become bytes in their places */
#pragma unroll
    for (int i = 0; i < RUNS * RUN_WORDS; i++) {
      u32 run[4];
#pragma unroll
      for (int k = 0; k < 4; k++) run[k] = turned(element(words[i], k), s);
      words[i] = bytes(run);
    }
  }
}
#else
#define load_loose(words, src, s, n, c0, h, w0) (void)0
#endif
"""
