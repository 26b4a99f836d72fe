"""The second half of the pack kernels' text: what a thread does (``_kernels_source`` begins it)."""

from __future__ import annotations

__all__ = ["BODY"]

BODY = """\
#if CAMERA
/* one pixel of a frame as the network's three values */
HELPER void colours(float *to, float first, float second, float third, const Numbers *s) {
  float a = SWAP ? third : first, c = SWAP ? first : third;
  to[0] = times(add(a, -s->mean[0]), s->factor[0]);
  to[1] = times(add(second, -s->mean[1]), s->factor[1]);
  to[2] = times(add(c, -s->mean[2]), s->factor[2]);
}

HELPER float within(float v) { return smaller(larger(v, 0.0f), 255.0f); }

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
  load_run(pairs, src + s->chroma + (i64)(h / 2) * s->chroma_pitch + w0, whole, full);
  load_run(run, src + (i64)h * s->pitch + w0, pixels, full);
#else
  load_run(run, src + (i64)h * s->pitch + 3 * (i64)w0, 3 * pixels, full);
#endif
#pragma unroll
  for (int j = 0; j < PX; j++) {
    float value[3];
#if CAMERA == 2
    float y = times(add((float)run[j], -s->luma_offset), s->luma);
    float u = add((float)pairs[j / 2 * 2], -128.0f), v = add((float)pairs[j / 2 * 2 + 1], -128.0f);
    float green = add(add(y, times(s->green_u, u)), times(s->green_v, v));
    colours(value, within(add(y, times(s->red_v, v))), within(green),
            within(add(y, times(s->blue_u, u))), s);
#else
    colours(value, (float)run[3 * j], (float)run[3 * j + 1], (float)run[3 * j + 2], s);
#endif
#pragma unroll
    for (int i = 0; i < CW; i++) {
      int c = c0 + i;
      float v = c == 0 ? value[0] : c == 1 ? value[1] : value[2];
      cell[j * CW + i] = (c < 3 && (full || j < pixels)) ? written(v, s) : 0;
    }
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
    for (int j = 0; j < PX; j++) cell[j * CW + i] = turned(run[j], s);
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
    if (full || c0 + i < s->channels) store_run(p + i * step, run, places, full);
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

/* the blocks of a thread: `full` where each lies within the tensor, which needs no branches */
HELPER void blocks(const u8 *KEEP src, u8 *KEEP dst, const Numbers *s, int n, int c0, u32 first,
                   int full) {
  u32 cell[UNROLL][CELLS], items = (u32)s->columns * s->height;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 item = first + u * (THREADS / LANES), h = FLAT ? 0 : item / s->columns;
    int w0 = (int)(item - h * s->columns) * PX;
    if (full && STRAIGHT)
      load_words(cell[u], src + SRC_SIZE * place(SRC_SIDE, s, s->src_line, s->src_held, n, c0,
                                                 (int)h, w0));
    else if (full || item < items) load_block(cell[u], src, s, n, c0, (int)h, w0, full);
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 item = first + u * (THREADS / LANES), h = FLAT ? 0 : item / s->columns;
    int w0 = (int)(item - h * s->columns) * PX;
    if (full && STRAIGHT)
      store_words(dst + DST_SIZE * place(DST_SIDE, s, s->dst_line, s->dst_held, n, c0,
                                         (int)h, w0), cell[u]);
    else if (full || item < items) store_block(dst, cell[u], s, n, c0, (int)h, w0, full);
  }
}

/* Thread blocks of one place and different channel groups run together: they share lines. */
HELPER void one(const u8 *KEEP src, u8 *KEEP dst, const Numbers *s, int bx, int by, int gy, int t) {
  int c0 = (bx % s->groups * LANES + t % LANES) * CW;
  u32 first = (u32)(bx / s->groups) * (THREADS / LANES * UNROLL) + t / LANES;
  u32 last = first + (UNROLL - 1) * (THREADS / LANES);
  int full = CAMERA || c0 + (CHANNELS ? CHANNELS : CW) <= s->channels;
  full = full && last < (u32)s->columns * s->height;
  if (DST_SIDE != 2 && !DST_HOLD && c0 >= s->channels) return;
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    u32 item = first + u * (THREADS / LANES), h = FLAT ? 0 : item / s->columns;
    full = full && (int)(item - h * s->columns) * PX + PX <= s->width;
  }
  for (int n = by; n < s->batch; n += gy) {
    if (full) blocks(src, dst, s, n, c0, first, 1);
    else blocks(src, dst, s, n, c0, first, 0);
  }
}

KERNEL(const u8 *KEEP src, u8 *KEEP dst, const Numbers s) { BODY(src, dst, &s); }
"""
