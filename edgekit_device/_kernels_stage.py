"""The pack kernels' text for planes whose lines begin at any byte, of vectors of channels.

What a block of threads reads is turned in shared memory as it was read, a row for each channel, and
converted when it is written in aligned runs of 16 bytes. Blocks read some pixels more than they
write, so that each writes whole runs; only what lies before a plane's first run and behind its last
is written one element at a time.
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
#if STAGED && !WINDOW
#define LOADED (THREADS / LANES * PX)
#define RUN (16 / DST_SIZE)
#define RUN_BYTES (RUN * SRC_SIZE)
#define RUN_UNIT (RUN_BYTES < 16 ? RUN_BYTES : 16)
#define RUN_COUNT (LOADED / RUN - 1)
#define ROWS (CW * LANES)
/* threads of different rows meet other banks */
#define HELD(row) ((row) * (LOADED * SRC_SIZE + 16) + (row) / CW * 32)
#define STAGE_BYTES (HELD(ROWS) + 32)

/* a thread's cells, turned and where they belong in shared memory, as they were read */
HELPER void fill(const u8 *KEEP src, u8 *stage, const Numbers *s, int bx, int n, int t) {
  int lane = t % LANES, item = t / LANES, c0 = (bx % s->groups * LANES + lane) * CW;
  int w0 = bx / s->groups * (RUN_COUNT * RUN) + item * PX;
  u32 words[CELLS * SRC_SIZE / 4], to[CELLS * SRC_SIZE / 4];
  if (c0 >= s->channels || w0 >= s->width) return;
  load_loose(words, src, s, n, c0, 0, w0);
  if (SRC_SIZE == 1) turn_words(to, words, PX, CW);
  else {
#pragma unroll
    for (int k = 0; k < CELLS / 2; k++) {
      int i = k / (PX / 2), j = k % (PX / 2) * CW + i / 2;
      to[k] = perm(words[j], words[j + CW / 2], i % 2 ? 0x7632 : 0x5410);
    }
  }
#pragma unroll
  for (int i = 0; i < CW; i++) {
    u8 *q = stage + HELD(lane * CW + i) + item * PX * SRC_SIZE;
    const u32 *row = to + i * (PX * SRC_SIZE / 4);
#pragma unroll
    for (int k = 0; k < PX * SRC_SIZE / 4;) {
      if (PX * SRC_SIZE % 16 == 0) store16(q + 4 * k, row + k), k += 4;
      else if (PX * SRC_SIZE % 8 == 0) store8(q + 4 * k, row + k), k += 2;
      else store4(q + 4 * k, row[k]), k += 1;
    }
  }
}

HELPER void store_staged(u8 *p, u32 run) {
  if (DST_SIZE == 4) store4(p, run);
  else if (DST_SIZE == 2) store2(p, LATE ? half_of(float_of(run)) : run);
  else store1(p, run);
}

HELPER u32 staged(const u8 *held, const Numbers *s) {
  return turned(element(SRC_SIZE == 2 ? *(const u16 *)held : *held, 0), s);
}

/* writes what the threads of a block put into shared memory */
HELPER void flush(u8 *dst, const u8 *stage, const Numbers *s, int bx, int n, int t) {
  int c0 = bx % s->groups * ROWS, w0 = bx / s->groups * (RUN_COUNT * RUN);
  int count = s->width - w0;
  u8 *base = dst + place(0, s, s->dst_line, 0, n, c0, 0, w0) * DST_SIZE;
  i64 step = (i64)s->dst_line * DST_SIZE; /* all planes are one line each */
  for (int k = t; k < ROWS * RUN_COUNT; k += THREADS) {
    int row = k / RUN_COUNT;
    u8 *p = base + row * step;
    int e = (k - row * RUN_COUNT) * RUN + (int)(-(i64)p & 15) / DST_SIZE;
    if (c0 + row >= s->channels) break;
    const u8 *held = stage + HELD(row) + e * SRC_SIZE;
    p += e * DST_SIZE;
    if (e + RUN <= count) {
      u32 words[RUN_BYTES / 4], from[(RUN_BYTES + RUN_UNIT) / 4];
      u32 off = (u32)(e * SRC_SIZE) & (RUN_UNIT - 1);
#pragma unroll
      for (int i = 0; i <= RUN_BYTES / RUN_UNIT; i++) {
        if (RUN_UNIT == 16) peek16(from + 4 * i, held - off + 16 * i);
        else {
#pragma unroll
          for (int k = 0; k < RUN_UNIT / 4; k++)
            from[i * (RUN_UNIT / 4) + k] = *(const u32 *)(held - off + RUN_UNIT * i + 4 * k);
        }
      }
      shifted(words, from, off, RUN_BYTES / 4, RUN_UNIT, SRC_SIZE);
      u32 run[RUN], out[4];
#pragma unroll
      for (int i = 0; i < RUN; i++)
        run[i] = turned(element(words[i * SRC_SIZE / 4], i % (4 / SRC_SIZE)), s);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (RAW) out[i] = words[i < RUN_BYTES / 4 ? i : 0];
        else if (DST_SIZE == 4) out[i] = run[i < RUN ? i : 0];
        else if (DST_SIZE == 2) out[i] = both(run[2 * i % RUN], run[2 * i % RUN + 1]);
        else out[i] = bytes(run + 4 * i % RUN);
      }
      store16(p, out);
    } else {
      for (int i = 0; i < count - e; i++)
        store_staged(p + i * DST_SIZE, staged(held + i * SRC_SIZE, s));
    }
  }
  if (w0) return;
  for (int k = t; k < ROWS * RUN; k += THREADS) {
    int row = k / RUN, e = k % RUN;
    u8 *p = base + row * step;
    if (c0 + row < s->channels && e < count && e < (int)(-(i64)p & 15) / DST_SIZE)
      store_staged(p + e * DST_SIZE, staged(stage + HELD(row) + e * SRC_SIZE, s));
  }
}
#endif
"""
