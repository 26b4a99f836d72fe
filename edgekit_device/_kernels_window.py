"""The pack kernels' text that writes channels last where pixels begin at any byte.

What is written is cut into runs of CW elements, one for each thread, whose places are aligned. A
run lies across one or two pixels: it is put together of two units of the first pixel's channels and
the first unit of the next one's, as they were read, and then converted. Vectors of channels are
read so from memory (WINDOW 1); planes are turned into such pixels in shared memory (WINDOW 2),
where elements that become smaller are converted before.
"""

from __future__ import annotations

__all__ = ["WINDOW"]

WINDOW = """\
#if WINDOW
/* what becomes smaller is converted before it is turned */
#define EARLY (WINDOW == 2 && DST_SIZE < SRC_SIZE)
#define HELD_SIZE (EARLY ? DST_SIZE : SRC_SIZE)
#define SPAN_BYTES (CW * HELD_SIZE)
#define SPAN_WORDS (SPAN_BYTES / 4)

HELPER void take(u32 *to, const u8 *p) {
#if WINDOW == 1
  if (SPAN_BYTES == 16) load16(to, p);
  else if (SPAN_BYTES == 8) load8(to, p);
  else to[0] = load4(p);
#else
  if (SPAN_BYTES == 16) peek16(to, p);
  else {
#pragma unroll
    for (int i = 0; i < SPAN_WORDS; i++) to[i] = *(const u32 *)(p + 4 * i);
  }
#endif
}

/* CW elements as they are held: `off` bytes behind a, of a and b, and from `own` on of next */
HELPER void window(u32 *words, const u8 *a, const u8 *b, const u8 *next, u32 off, int own) {
  u32 from[2 * SPAN_WORDS];
  take(from, a);
  take(from + SPAN_WORDS, b);
  shifted(words, from, off, SPAN_WORDS, SPAN_BYTES, HELD_SIZE);
  if (own < CW) {
    u32 behind[2 * SPAN_WORDS] = {0}, moved[SPAN_WORDS];
    take(behind + SPAN_WORDS, next);
    shifted(moved, behind, (u32)(SPAN_BYTES - own * HELD_SIZE), SPAN_WORDS, SPAN_BYTES, HELD_SIZE);
#pragma unroll
    for (int i = 0; i < SPAN_WORDS; i++) {
      u32 mask = kept(own * HELD_SIZE - 4 * i);
      words[i] = (words[i] & mask) | (moved[i] & ~mask);
    }
  }
}

HELPER void put(u8 *p, const u32 *words, const Numbers *s, int valid) {
  if ((RAW || EARLY) && valid >= CW) store_words(p, words);
  else if (EARLY) {
#pragma unroll
    for (int k = 0; k < CW; k++)
      if (k < valid) store1(p + k, words[k / 4] >> k % 4 * 8);
  } else {
    u32 run[CW];
#pragma unroll
    for (int k = 0; k < CW; k++)
      run[k] = turned(element(words[k * SRC_SIZE / 4], k % (4 / SRC_SIZE)), s);
    store_run(p, run, valid, 0);
  }
}
#endif

#if WINDOW == 1
HELPER void one(const u8 *KEEP src, u8 *KEEP dst, const Numbers *s, int bx, int by, int gy, int t) {
  u32 area = (u32)s->height * s->width, channels = s->channels;
  u32 total = s->batch * area * channels;
  i64 image = (i64)((channels + VECTOR - 1) / VECTOR) * area * VECTOR * SRC_SIZE;
  u32 words[UNROLL][SPAN_WORDS];
  u32 first = ((u32)bx * (THREADS * UNROLL) + t) * CW;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 e = first + u * THREADS * CW;
    if (e >= total) continue;
    u32 q = divided(e, s, 0), r = e - q * channels, n = divided(q, s, 1), at = q - n * area;
    u32 c = r & ~(CW - 1u), after = c + CW;
    const u8 *held = src + n * image, *next = held + (i64)(at + 1) * VECTOR * SRC_SIZE;
    const u8 *a = held + (((i64)(c / VECTOR) * area + at) * VECTOR + c % VECTOR) * SRC_SIZE, *b = a;
    if (after < channels)
      b = a + SPAN_BYTES + (after % VECTOR ? 0 : (i64)(area - 1) * VECTOR * SRC_SIZE);
    if (at + 1 == area) next = n + 1 < (u32)s->batch ? src + (n + 1) * image : a;
    window(words[u], a, b, next, (r - c) * SRC_SIZE, (int)(channels - r));
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 e = first + u * THREADS * CW;
    if (e < total) put(dst + (i64)e * DST_SIZE, words[u], s, (int)(total - e));
  }
}
#endif

#if WINDOW == 2
#define ITEMS (THREADS / LANES)
#define TILE (ITEMS * PX)
#define BESIDE (ITEMS < 8 ? ITEMS : 8)
#define PITCH (LANES * SPAN_BYTES)
/* threads beside each other meet other banks */
#define HELD(pixel) ((pixel) * PITCH + (pixel) / PX * 16)
#define STAGE_BYTES (HELD(TILE) + 32)

HELPER void fill(const u8 *KEEP src, u8 *stage, const Numbers *s, int bx, int n, int t) {
  int item = t % BESIDE + t / (BESIDE * LANES) * BESIDE, c0 = t / BESIDE % LANES * CW;
  int h = (int)divided((u32)bx, s, 1), w0 = (bx - h * s->columns) * TILE + item * PX;
  if (w0 >= s->width || c0 >= s->channels) return;
  u32 words[CELLS * SRC_SIZE / 4], to[CELLS * SRC_SIZE / 4];
  const u8 *p = src + place(0, s, s->src_line, 0, n, c0, h, w0) * SRC_SIZE;
  i64 step = (i64)s->height * s->src_line * SRC_SIZE;
#pragma unroll
  for (int i = 0; i < CW; i++)
    load_words(words + i * (SRC_BYTES / 4), p + (c0 + i < s->channels ? i : 0) * step);
  if (EARLY) {
#pragma unroll
    for (int k = 0; k < CELLS / 4; k++) {
      u32 run[4];
#pragma unroll
      for (int m = 0; m < 4; m++) {
        int i = (k % (CW / 4) * 4 + m) * (PX / 2), j = k / (CW / 4);
        run[m] = turned(element(words[i + j / 2], j % 2), s);
      }
      to[k] = bytes(run);
    }
  } else if (SRC_SIZE == 1) turn_words(to, words, CW, PX);
  else {
#pragma unroll
    for (int k = 0; k < CELLS / 2; k++) {
      int j = k / (CW / 2), i = k % (CW / 2) * PX + j / 2;
      to[k] = perm(words[i], words[i + PX / 2], j % 2 ? 0x7632 : 0x5410);
    }
  }
#pragma unroll
  for (int j = 0; j < PX; j++) {
    u8 *q = stage + HELD(item * PX + j) + c0 * HELD_SIZE;
    if (SPAN_BYTES == 16) store16(q, to + j * SPAN_WORDS);
    else if (SPAN_BYTES == 8) store8(q, to + j * SPAN_WORDS);
    else store4(q, to[j]);
  }
}

HELPER void flush(u8 *dst, const u8 *stage, const Numbers *s, int bx, int n, int t) {
  int h = (int)divided((u32)bx, s, 1), w0 = (bx - h * s->columns) * TILE;
  int pixels = s->width - w0 < TILE ? s->width - w0 : TILE, total = pixels * s->channels;
  u8 *base = dst + place(1, s, s->width, s->channels, n, 0, h, w0) * DST_SIZE;
  int head = (int)(-(i64)base & (DST_BYTES < 16 ? DST_BYTES - 1 : 15)) / DST_SIZE;
  if (head > total) head = total;
  for (int k = t; k <= (total - head + CW - 1) / CW; k += THREADS) {
    int e = k ? head + (k - 1) * CW : 0, valid = k ? total - e : head;
    if (!valid) continue;
    u32 q = divided(e, s, 0), r = e - q * s->channels, c = r & ~(CW - 1u), words[SPAN_WORDS];
    const u8 *a = stage + HELD(q) + c * HELD_SIZE;
    window(words, a, a + SPAN_BYTES, stage + HELD(q + 1), (r - c) * HELD_SIZE,
           (int)(s->channels - r));
    put(base + e * DST_SIZE, words, s, valid);
  }
}
#endif
"""
