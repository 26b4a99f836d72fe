"""The pack kernels' text for squares of bytes that are only moved (``_kernels_source``)."""

from __future__ import annotations

__all__ = ["SQUARE"]

SQUARE = """\
/* a square of bytes, a word of each of four rows at a time: words of its columns */
HELPER void turn_words(u32 *to, const u32 *from, int rows, int across) {
#pragma unroll
  for (int r = 0; r < rows; r += 4) {
#pragma unroll
    for (int i = 0; i < across / 4; i++) {
      const u32 *a = from + r * (across / 4) + i;
      u32 b = a[across / 4], c = a[across / 2], d = a[3 * across / 4];
      u32 low = perm(a[0], b, 0x5140), low2 = perm(c, d, 0x5140);
      u32 high = perm(a[0], b, 0x7362), high2 = perm(c, d, 0x7362);
      u32 *place = to + 4 * i * (rows / 4) + r / 4;
      place[0] = perm(low, low2, 0x5410);
      place[rows / 4] = perm(low, low2, 0x7632);
      place[2 * (rows / 4)] = perm(high, high2, 0x5410);
      place[3 * (rows / 4)] = perm(high, high2, 0x7632);
    }
  }
}

#if STRAIGHT == 2
HELPER void load_square(u32 *words, const u8 *src, const Numbers *s, int n, int c0, int h,
                        int w0) {
  const u8 *p = src + place(SRC_SIDE, s, s->src_line, s->src_held, n, c0, h, w0);
  i64 step = SRC_SIDE == 0 ? (i64)s->height * s->src_line : SRC_SIDE == 1 ? s->src_held : VECTOR;
#pragma unroll
  for (int i = 0; i < CELLS / SRC_K; i++) load_words(words + i * (SRC_K / 4), p + i * step);
}

HELPER void store_square(u8 *dst, const u32 *words, const Numbers *s, int n, int c0, int h,
                         int w0) {
  u32 turned_words[CELLS / 4];
  u8 *p = dst + place(DST_SIDE, s, s->dst_line, s->dst_held, n, c0, h, w0);
  i64 step = DST_SIDE == 0 ? (i64)s->height * s->dst_line : DST_SIDE == 1 ? s->dst_held : VECTOR;
  turn_words(turned_words, words, CELLS / SRC_K, SRC_K);
#pragma unroll
  for (int i = 0; i < CELLS / DST_K; i++)
    if (!LOOSE || (DST_SIDE == 0 ? c0 + i < s->channels : i < s->dst_line - w0))
      store_words(p + i * step, turned_words + i * (DST_K / 4));
}
#else
#define load_square(words, src, s, n, c0, h, w0) (void)0
#define store_square(dst, words, s, n, c0, h, w0) (void)0
#endif

#if LOOSE
/* bits that are only moved: the words of `load_loose` */
HELPER void store_loose(u8 *dst, const u32 *words, const Numbers *s, int n, int c0, int h,
                        int w0) {
#if STRAIGHT == 1
  u8 *p = dst + place(DST_SIDE, s, s->dst_line, s->dst_held, n, c0, h, w0) * DST_SIZE;
  int places = s->dst_line - w0;
  if (LOOSE == 1 || places >= PX) store_words(p, words);
  else {
#pragma unroll
    for (int k = 0; k < DST_K; k++) {
      u32 one = words[k * DST_SIZE / 4] >> k * DST_SIZE % 4 * 8;
      if (k < places && DST_SIZE == 2) store2(p + 2 * k, one);
      if (k < places && DST_SIZE == 1) store1(p + k, one);
    }
  }
#else
  store_square(dst, words, s, n, c0, h, w0);
#endif
}
#else
#define store_loose(dst, words, s, n, c0, h, w0) (void)0
#endif
"""
