/* Runs the kernel for every block and thread; says how many accesses were wrong. */
long emulate(const u8 *src, i64 src_bytes, u8 *dst, i64 dst_bytes, const Numbers *numbers,
             int grid_x, int grid_y) {
  source_begin = src; source_end = src + src_bytes;
  target_begin = dst; target_end = dst + dst_bytes;
  outside = crooked = 0;
  blocks_y = grid_y;
  for (block_y = 0; block_y < grid_y; block_y++)
    for (block_x = 0; block_x < grid_x; block_x++)
      for (thread_x = 0; thread_x < THREADS; thread_x++) convert(src, dst, *numbers);
  return outside * 1000000 + crooked;
}
