"""The second half of the pack kernels' text: what a thread does (``_kernels_source`` begins it)."""

from __future__ import annotations

__all__ = ["BODY"]

BODY = """\
#if CAMERA
/* one channel of the network, from a frame's byte */
HELPER u32 inked(float v, int c, const Numbers *s) {
  if (QUICK == 2) return step(v, c, s);
  return written(times(add(v, -s->mean[c]), s->factor[c]), s);
}

/* a byte of a colour, from its share of the luma's 255: exact but for its rounding */
HELPER float colour(float share) {
  return add(fused(saturated(share), 255.0f, ROUND), -ROUND);
}

HELPER void load_block(u32 *cell, const u8 *src, const Numbers *s, int n, int c0, int h, int w0,
                       int full) {
  int pixels = s->width - w0;
  u32 run[SRC_K];
  if (c0 >= 3) {
#pragma unroll
    for (int e = 0; e < CELLS; e++) cell[e] = 0;
    return;
  }
#if CAMERA == 2
  u32 pairs[SRC_K];
  int whole = (s->width + 1) / 2 * 2 - w0;
  load_run(pairs, src + s->chroma + (i64)((u32)h >> 1) * s->chroma_pitch + w0, whole, full);
  load_run(run, src + (i64)h * s->pitch + w0, pixels, full);
#else
  load_run(run, src + (i64)h * s->pitch + 3 * (i64)w0, 3 * pixels, full);
#endif
#pragma unroll
  for (int j = 0; j < PX; j++) {
    float value[3];
#if CAMERA == 2
    /* multiples of 2**-22 below 4: no sum is rounded */
    float u = (float)pairs[j / 2 * 2], v = (float)pairs[j / 2 * 2 + 1], y = (float)run[j];
    float red = fused(v, s->red_v, s->colour[0]), blue = fused(u, s->blue_u, s->colour[2]);
    float green = fused(v, s->green_v, fused(u, s->green_u, s->colour[1]));
    value[SWAP ? 2 : 0] = colour(fused(y, s->luma, red));
    value[1] = colour(fused(y, s->luma, green));
    value[SWAP ? 0 : 2] = colour(fused(y, s->luma, blue));
#else
#pragma unroll
    for (int c = 0; c < 3; c++)
      value[SWAP ? 2 - c : c] = add(float_of(run[3 * j + c]), -LIFT);
#endif
#pragma unroll
    for (int i = 0; i < CW; i++) {
      int c = c0 + i;
      u32 bits = 0;
#pragma unroll
      for (int k = 0; k < 3; k++)
        if (c == k && (full || j < pixels)) bits = inked(value[k], k, s);
      cell[j * CW + i] = bits;
    }
  }
}
#else
#if LOOSE
HELPER void load_block(u32 *cell, const u8 *src, const Numbers *s, int n, int c0, int h, int w0,
                       int full) {
  u32 words[RUNS * RUN_WORDS];
  load_loose(words, src, s, n, c0, h, w0);
#pragma unroll
  for (int r = 0; r < RUNS; r++) {
#pragma unroll
    for (int k = 0; k < SRC_K; k++)
      cell[SRC_SIDE == 0 ? k * CW + r : r * CW + k] =
          turned(element(words[r * RUN_WORDS + k * SRC_SIZE / 4], k % (4 / SRC_SIZE)), s);
  }
}
#else
HELPER void load_block(u32 *cell, const u8 *src, const Numbers *s, int n, int c0, int h, int w0,
                       int full) {
  int pixels = s->width - w0;
  const u8 *p = src + place(SRC_SIDE, s, s->src_line, s->src_held, n, c0, h, w0) * SRC_SIZE;
#if SRC_HOLD
  u32 run[SRC_K];
  load_run(run, p, pixels * SRC_HOLD, full);
#pragma unroll
  for (int j = 0; j < PX; j++) {
#pragma unroll
    for (int i = 0; i < CW; i++) {
      int e = i < SRC_HOLD ? j * SRC_HOLD + i : 0;
      cell[j * CW + i] = (i < SRC_HOLD && i < CHANNELS) ? turned(run[e], s) : 0;
    }
  }
#elif SRC_SIDE == 0
  i64 step = (i64)s->height * s->src_line * SRC_SIZE;
#pragma unroll
  for (int i = 0; i < CW; i++) {
    u32 run[SRC_K] = {0};
    if (!CHANNELS || i < CHANNELS)
      load_run(run, p + i * step, c0 + i < s->channels ? pixels : 0, full);
#pragma unroll
    for (int j = 0; j < PX; j++)
      cell[j * CW + i] = (!CHANNELS || i < CHANNELS) ? turned(run[j], s) : 0;
  }
#else
  i64 step = (i64)(SRC_SIDE == 1 ? s->src_held : VECTOR) * SRC_SIZE;
#pragma unroll
  for (int j = 0; j < PX; j++) {
    u32 run[SRC_K];
    load_run(run, p + j * step, j < pixels ? s->channels - c0 : 0, full);
#pragma unroll
    for (int i = 0; i < CW; i++) cell[j * CW + i] = turned(run[i], s);
  }
#endif
}
#endif
#endif

HELPER void store_block(u8 *dst, const u32 *cell, const Numbers *s, int n, int c0, int h, int w0,
                        int full) {
  u8 *p = dst + place(DST_SIDE, s, s->dst_line, s->dst_held, n, c0, h, w0) * DST_SIZE;
  int places = s->dst_line - w0;
#if DST_HOLD
  u32 run[DST_K];
#pragma unroll
  for (int j = 0; j < PX; j++) {
#pragma unroll
    for (int i = 0; i < DST_HOLD; i++)
      run[j * DST_HOLD + i] = i < CW ? cell[j * CW + (i < CW ? i : 0)] : 0;
  }
  store_run(p, run, places * DST_HOLD, full);
#elif DST_SIDE == 0
  i64 step = (i64)s->height * s->dst_line * DST_SIZE;
#pragma unroll
  for (int i = 0; i < CW; i++) {
    u32 run[DST_K];
#pragma unroll
    for (int j = 0; j < PX; j++) run[j] = cell[j * CW + i];
    if (full || c0 + i < s->channels) store_run(p + i * step, run, places, full || LOOSE == 1);
  }
#else
  i64 step = (i64)(DST_SIDE == 1 ? s->dst_held : VECTOR) * DST_SIZE;
#pragma unroll
  for (int j = 0; j < PX; j++) {
    u32 run[DST_K];
#pragma unroll
    for (int i = 0; i < CW; i++) run[i] = cell[j * CW + i];
    int valid = DST_SIDE == 1 ? s->channels - c0 : CW;
    if (full || j < places) store_run(p + j * step, run, valid, full);
  }
#endif
}

#if !STAGED && !WINDOW
/* a thread's blocks are STEP items apart */
#define STEP (THREADS / LANES)
HELPER u32 items_of(const Numbers *s) { return (u32)s->columns * s->height; }
HELPER u32 row_of(u32 item, const Numbers *s) {
  return FLAT ? 0 : LOOSE ? divided(item, s, 1) : item / s->columns;
}
HELPER int column_of(u32 item, u32 h, const Numbers *s) {
  return (int)(item - h * s->columns) * PX;
}

/* the blocks of a thread: `full` where each lies within the tensor, which needs no branches */
HELPER void blocks(const u8 *KEEP src, u8 *KEEP dst, const Numbers *s, int n, int c0, u32 first,
                   int t, int full) {
  u32 cell[UNROLL][CELLS], items = items_of(s);
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 item = first + u * STEP, h = row_of(item, s);
    int w0 = column_of(item, h, s);
    if (WHOLE && item >= items) continue;
    if (LOOSE && STRAIGHT) {
      if (item < items) load_loose(cell[u], src, s, n, c0, (int)h, w0);
    } else if (full && STRAIGHT == 2) load_square(cell[u], src, s, n, c0, (int)h, w0);
    else if (full && STRAIGHT)
      load_words(cell[u], src + SRC_SIZE * place(SRC_SIDE, s, s->src_line, s->src_held, n, c0,
                                                 (int)h, w0));
    else if (full || item < items) load_block(cell[u], src, s, n, c0, (int)h, w0, full);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 item = first + u * STEP, h = row_of(item, s);
    int w0 = column_of(item, h, s);
    if (WHOLE && item >= items) continue;
    if (LOOSE && STRAIGHT) {
      if (item < items) store_loose(dst, cell[u], s, n, c0, (int)h, w0);
    } else if (full && STRAIGHT == 2) store_square(dst, cell[u], s, n, c0, (int)h, w0);
    else if (full && STRAIGHT)
      store_words(dst + DST_SIZE * place(DST_SIDE, s, s->dst_line, s->dst_held, n, c0,
                                         (int)h, w0), cell[u]);
    else if (full || item < items) store_block(dst, cell[u], s, n, c0, (int)h, w0, full);
  }
}

/* Thread blocks of one place and different channel groups run together: they share lines. */
HELPER void one(const u8 *KEEP src, u8 *KEEP dst, const Numbers *s, int bx, int by, int gy, int t) {
  int c0 = CHANNELS ? 0 : (bx % s->groups * LANES + t % LANES) * CW;
  u32 first = (u32)(bx / s->groups) * (STEP * UNROLL) + t / LANES;
  u32 last = first + (UNROLL - 1) * STEP;
  int full = CAMERA || c0 + (CHANNELS ? CHANNELS : CW) <= s->channels;
  full = full && last < items_of(s);
  if (DST_SIDE != 2 && !DST_HOLD && c0 >= s->channels) return;
  if (DST_SIDE == 2 && c0 >= (s->channels + VECTOR - 1) / VECTOR * VECTOR) return;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 item = first + u * STEP, h = row_of(item, s);
    full = full && column_of(item, h, s) + PX <= s->width;
  }
  for (int n = by; n < s->batch; n += gy) {
    if (!LOOSE && (WHOLE || full)) blocks(src, dst, s, n, c0, first, t, 1);
    else blocks(src, dst, s, n, c0, first, t, 0);
  }
}

#endif

#if STAGED
KERNEL(const u8 *KEEP src, u8 *KEEP dst, const Numbers s) { STAGED_BODY(src, dst, &s); }
#else
KERNEL(const u8 *KEEP src, u8 *KEEP dst, const Numbers s) { BODY(src, dst, &s); }
#endif
"""
