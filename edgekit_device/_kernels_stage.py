"""The pack kernels' text for dense tensors whose lines begin at any byte (``_kernels_source``).

What a block of threads unpacks lies next to each other in the dense tensor, so it is put together
in shared memory and written from there in aligned 16-byte words: one row of whole pixels where
channels lie next to each other (STAGED 2), else a row for each channel (STAGED 1). Only the bytes
before a row's first aligned word and behind its last are written one element at a time.
"""

from __future__ import annotations

__all__ = ["SHIFTED", "STAGE"]

SHIFTED = """\
/* `count` words that begin `off` bytes after `from`, off < unit; `from` has a unit more */
HELPER void shifted(u32 *words, u32 *from, u32 off, int count, int unit, int size) {
  if (unit == 16) {
#pragma unroll
    for (int i = 0; i < count + 2; i++) from[i] = off & 8 ? from[i + 2] : from[i];
  }
  if (unit >= 8) {
#pragma unroll
    for (int i = 0; i < count + 1; i++) from[i] = off & 4 ? from[i + 1] : from[i];
  }
#pragma unroll
  for (int i = 0; i < count; i++)
    words[i] = size == 4 ? from[i] : join(from[i], from[i + 1], (off & 3) * 8);
}
"""

STAGE = """\
#if STAGED
#define ITEMS (THREADS / LANES * UNROLL)
#define ROW_BYTES (ITEMS * PX * DST_SIZE * (STAGED == 2 ? CW * LANES : 1))
#define ROW_PITCH (ROW_BYTES + 16)
#define ROWS (STAGED == 2 ? 1 : CW * LANES)
#define STAGE_BYTES (ROWS * ROW_PITCH + 16)

/* a thread's cells, where they belong in shared memory */
HELPER void stage_block(u8 *stage, const u32 *cell, const Numbers *s, int c0, int lane, int item) {
#if STAGED == 2
#pragma unroll
  for (int j = 0; j < PX; j++)
    store_run(stage + ((item * PX + j) * s->channels + c0) * DST_SIZE, cell + j * CW,
              s->channels - c0, 0);
#else
#pragma unroll
  for (int i = 0; i < CW; i++) {
    u32 run[DST_K];
#pragma unroll
    for (int j = 0; j < PX; j++) run[j] = cell[j * CW + i];
    store_run(stage + (lane * CW + i) * ROW_PITCH + item * PX * DST_SIZE, run, DST_K, 1);
  }
#endif
}

/* writes what the threads of a block put into shared memory */
HELPER void flush(u8 *dst, const u8 *stage, const Numbers *s, int bx, int n, int t) {
  int c0 = STAGED == 2 ? 0 : bx % s->groups * (CW * LANES), w0 = bx / s->groups * (ITEMS * PX);
  int count = s->width - w0 < ITEMS * PX ? s->width - w0 : ITEMS * PX;
  int size = count * DST_SIZE * (STAGED == 2 ? s->channels : 1);
  u8 *base = dst + place(DST_SIDE, s, s->dst_line, s->dst_held, n, c0, 0, w0) * DST_SIZE;
  i64 step = (i64)s->dst_line * DST_SIZE; /* all planes are one line each */
  for (int k = t; k < ROWS * (ROW_BYTES / 16 + 1); k += THREADS) {
    int row = k / (ROW_BYTES / 16 + 1), c = c0 + row;
    if (c >= s->channels || (STAGED == 2 && 16 * k > size)) break;
    u8 *p = base + row * step;
    int at = 16 * (k - row * (ROW_BYTES / 16 + 1)) - (int)((i64)p & 15);
    if (at >= 0 && at + 16 <= size) {
      u32 words[4], from[8] = {0};
      const u8 *held = stage + row * ROW_PITCH + (at & ~15);
      peek16(from, held);
      peek16(from + 4, held + 16);
      shifted(words, from, at & 15, 4, 16, DST_SIZE);
      store16(p + at, words);
    }
  }
  for (int k = t; k < ROWS * 32; k += THREADS) {
    int row = k / 32, c = c0 + row, e = k % 16 * DST_SIZE;
    if (c >= s->channels) break;
    u8 *p = base + row * step;
    const u8 *held = stage + row * ROW_PITCH;
    int head = (int)(-(i64)p & 15), last = size;
    if (head > size) head = size;
    if (k % 32 < 16) last = head;
    else e += head + ((size - head) & ~15);
    if (e >= last) continue;
    if (DST_SIZE == 4) store4(p + e, *(const u32 *)(held + e));
    else if (DST_SIZE == 2) store2(p + e, *(const u16 *)(held + e));
    else store1(p + e, held[e]);
  }
}
#else
#define stage_block(stage, cell, s, c0, lane, item) (void)0
#endif
"""
