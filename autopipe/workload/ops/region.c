/* Decodes a rectangle of a JPEG with libjpeg-turbo, to the pixels that decoding all of it gives there. */

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

struct failure {
  struct jpeg_error_mgr manager; /* first: libjpeg knows this part only */
  jmp_buf back;
};

static void failed(j_common_ptr info) { longjmp(((struct failure *)info->err)->back, 1); }

static void noted(j_common_ptr info, int level) {
  if (level < 0) info->err->num_warnings++; /* damaged data */
}

static void silent(j_common_ptr info) { (void)info; }

/* Write `height` rows of `width` pixels from row `top` and column `left` on; return 0, or another number if the file is
 * damaged or is not as wide and high as that. `row` has room for all pixels of a row. */
int autopipe_region(const unsigned char *data, size_t size, int top, int left, int height, int width, int channels,
                    unsigned char *row, unsigned char *out) {
  struct jpeg_decompress_struct info;
  struct failure error;
  info.err = jpeg_std_error(&error.manager);
  error.manager.error_exit = failed;
  error.manager.emit_message = noted;
  error.manager.output_message = silent;
  if (setjmp(error.back)) {
    jpeg_destroy_decompress(&info);
    return 1;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, (unsigned char *)data, (unsigned long)size);
  jpeg_read_header(&info, TRUE);
  info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&info);
  if ((JDIMENSION)(top + height) > info.output_height || (JDIMENSION)(left + width) > info.output_width)
    error.manager.error_exit((j_common_ptr)&info);
  /* One block of margin: fancy upsampling of the chroma takes its neighbours. */
  int across = info.max_h_samp_factor * DCTSIZE, down = info.max_v_samp_factor * DCTSIZE;
  JDIMENSION first = left > across ? left - across : 0;
  JDIMENSION wanted = left + width + across;
  wanted = (wanted < info.output_width ? wanted : info.output_width) - first;
  jpeg_crop_scanline(&info, &first, &wanted);
  if (top > down) jpeg_skip_scanlines(&info, top - down);
  size_t begin = (size_t)(left - (int)first) * channels, count = (size_t)width * channels;
  while (info.output_scanline < (JDIMENSION)(top + height)) {
    int at = (int)info.output_scanline - top;
    if (jpeg_read_scanlines(&info, &row, 1) != 1) error.manager.error_exit((j_common_ptr)&info);
    if (at >= 0) memcpy(out + (size_t)at * count, row + begin, count);
  }
  int damaged = error.manager.num_warnings != 0;
  jpeg_destroy_decompress(&info);
  return damaged;
}
