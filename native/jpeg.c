/* JPEG by libjpeg-turbo: whole, reduced, or the rectangle of a crop, to the pixels that decoding all of it gives there.
 *
 * What is reproduced: the pixels of `simplejpeg.decode_jpeg` (slow integer transform, fancy upsampling), and its
 * verdict in strict mode, in which a warning of libjpeg's anywhere in the file is damage. A crop, too, reads the rest
 * of the entropy-coded data, without its transform, so that damage outside of the crop is found. What is not: four inks,
 * rare samplings, more than 8 bits. They are UNKNOWN, and Python decodes them, and what is made of a damaged file if
 * that is asked for: pixels there differ from version to version.
 *
 * Each image has a new decompressor: one that is used again lends the tables of the last image to a file that lacks its
 * own. libjpeg's errors come back here by `longjmp`; the next image releases what the failed one took. */
#include "jpeg.h"

#include <stdlib.h>
#include <string.h>

AUTOPIPE_API int autopipe_jpeg_version(void) { return LIBJPEG_TURBO_VERSION_NUMBER; }

__attribute__((visibility("hidden"))) FILE *autopipe_stderr; /* see CMakeLists.txt */

static void failed(j_common_ptr info) { longjmp(((struct decoder *)info->client_data)->back, 1); }

static void noted(j_common_ptr info, int level) {
  if (level < 0) info->err->num_warnings++; /* damaged data */
}

static void silent(j_common_ptr info) { (void)info; }

struct decoder *decoder_new(void) {
  struct decoder *decoder = calloc(1, sizeof *decoder);
  if (decoder == NULL) return NULL;
  decoder->huffman = huffman_new();
  if (decoder->huffman == NULL) {
    free(decoder);
    return NULL;
  }
  decoder->info.err = jpeg_std_error(&decoder->errors);
  decoder->errors.error_exit = failed;
  decoder->errors.emit_message = noted;
  decoder->errors.output_message = silent;
  decoder->info.client_data = decoder;
  return decoder;
}

void decoder_free(struct decoder *decoder) {
  if (decoder == NULL) return;
  jpeg_destroy_decompress(&decoder->info);
  huffman_free(decoder->huffman);
  free(decoder);
}

/* -------------------- EXIF: the orientation, from 1 (upright) to 8, as `orientation_of` of ops/headers.py finds it */

/* Return the orientation in an EXIF block, which is a little TIFF file; 1 if it has none. */
int orientation_in(const uint8_t *tiff, size_t size) {
  if (size < 8) return 1;
  int little = tiff[0] == 'I' && tiff[1] == 'I';
  int big = from_bytes(tiff + 2, 2, little) == 43, word = big ? 8 : 4, entry_bytes = big ? 20 : 12;
  if (size < (size_t)(big ? 16 : 8)) return 1;
  uint64_t start = from_bytes(tiff + (big ? 8 : 4), word, little);
  if (start > size || size - start < (size_t)(big ? 8 : 2)) return 1;
  uint64_t count = from_bytes(tiff + start, big ? 8 : 2, little);
  size_t at = (size_t)start + (big ? 8 : 2);
  for (uint64_t entry = 0; entry < count && entry < 4096; entry++, at += (size_t)entry_bytes) {
    if (at > size || size - at < 4) return 1;
    if (from_bytes(tiff + at, 2, little) != 0x0112) continue;
    uint64_t kind = from_bytes(tiff + at + 2, 2, little);
    int bytes = kind == 3 ? 2 : kind == 4 ? 4 : kind == 16 ? 8 : 0;
    size_t place = at + (big ? 12 : 8);
    if (bytes == 0 || place > size || size - place < (size_t)bytes) return 1;
    uint64_t found = from_bytes(tiff + place, bytes, little);
    return found >= 1 && found <= 8 ? (int)found : 1;
  }
  return 1;
}

static int orientation_of_jpeg(const uint8_t *data, size_t size) {
  size_t at = 2;
  while (at + 1 < size && data[at] == 0xFF) {
    while (at + 1 < size && data[at + 1] == 0xFF) at++;
    if (at + 1 >= size || data[at + 1] == 0xDA || at + 4 > size) return 1;
    size_t place = at + 2, length = (size_t)from_bytes(data + place, 2, 0);
    if (data[at + 1] == 0xE1 && size - place >= 8 && memcmp(data + place + 2, "Exif\0\0", 6) == 0) {
      size_t end = place + length < size ? place + length : size;
      return end < place + 8 ? 1 : orientation_in(data + place + 8, end - place - 8);
    }
    at = place + length;
  }
  return 1;
}

/* Turn pixels as a viewer shows them, into the other room. */
int turned_pixels(struct autopipe_scratch *scratch, int orientation, struct image *image) {
  if (orientation == 1) return FINE;
  int swaps = orientation >= 5, channels = (int)image->channels;
  int up = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  int back = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  int64_t height = swaps ? image->width : image->height, width = swaps ? image->height : image->width;
  uint8_t *out = next_pixels(scratch, (size_t)height * (size_t)width * (size_t)channels), *to = out;
  if (out == NULL) return NO_MEMORY;
  for (int64_t row = 0; row < height; row++)
    for (int64_t column = 0; column < width; column++, to += channels) {
      int64_t down = up ? height - 1 - row : row, across = back ? width - 1 - column : column;
      const uint8_t *from = swaps ? image->pixels + across * image->stride + down * channels
                                  : image->pixels + down * image->stride + across * channels;
      for (int channel = 0; channel < channels; channel++) to[channel] = from[channel];
    }
  *image = (struct image){out, width * channels, height, width, channels, 1};
  return FINE;
}

static struct box as_stored(struct box box, int64_t height, int64_t width, int orientation) {
  if (orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8)
    box.top = height - box.top - box.height;
  if (orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7)
    box.left = width - box.left - box.width;
  return orientation >= 5 ? (struct box){box.left, box.top, box.width, box.height} : box;
}

/* -------------------- decoding */

/* Whether the other decoders know this kind, and give the pixels that libjpeg gives here. */
static int is_common(const struct jpeg_decompress_struct *info) {
  const jpeg_component_info *part = info->comp_info;
  if (info->num_components == 1 && info->jpeg_color_space == JCS_GRAYSCALE) return 1;
  if (info->num_components != 3 || (info->jpeg_color_space != JCS_YCbCr && info->jpeg_color_space != JCS_RGB)) return 0;
  int across = part[0].h_samp_factor, down = part[0].v_samp_factor;
  for (int each = 1; each < 3; each++)
    if (part[each].h_samp_factor != 1 || part[each].v_samp_factor != 1) return 0;
  return (across <= 2 && down <= 2) || (across == 4 && down == 1);
}

/* Return 0 for a progressive file that ends before its last scan: libjpeg then guesses, each version otherwise. */
static int has_all_scans(const struct jpeg_decompress_struct *info) {
  if (info->coef_bits == NULL) return 1;
  for (int part = 0; part < info->num_components; part++)
    for (int each = 0; each < DCTSIZE2; each++)
      if (info->coef_bits[part][each] != 0) return 0;
  return 1;
}

/* Return the largest of 8, 4, 2 by which an image is reduced without falling below the least size; 1 for none. */
static int64_t ratio_of(int64_t height, int64_t width, int64_t least_height, int64_t least_width) {
  for (int64_t ratio = 8; ratio > 1; ratio /= 2)
    if ((height + ratio - 1) / ratio >= least_height && (width + ratio - 1) / ratio >= least_width) return ratio;
  return 1;
}

static int begun(struct decoder *decoder, const uint8_t *data, size_t size,
                 const struct autopipe_instruction *decode, int turned) {
  struct jpeg_decompress_struct *info = &decoder->info;
  jpeg_destroy_decompress(info);
  jpeg_create_decompress(info);
  jpeg_mem_src(info, (unsigned char *)(uintptr_t)data, (unsigned long)size);
  jpeg_read_header(info, TRUE);
  int64_t height = info->image_height, width = info->image_width;
  if (height * width > decode->whole[1]) return TOO_LARGE; /* before anything is allocated for its pixels */
  if (!is_common(info)) return UNKNOWN;
  info->out_color_space = decode->whole[0] == 1 ? JCS_GRAYSCALE : JCS_RGB;
  if (decode->whole[0] == 0 && info->num_components == 1) info->out_color_space = JCS_GRAYSCALE;
  if (info->out_color_space == JCS_GRAYSCALE && info->jpeg_color_space == JCS_RGB) return UNKNOWN;
  info->dct_method = JDCT_ISLOW;
  info->do_fancy_upsampling = TRUE;
  int64_t least_height = decode->whole[2], least_width = decode->whole[3];
  if (least_height > 0) {
    if (height < 16 || width < 16) return UNKNOWN; /* several ratios give one size */
    int64_t ratio = turned >= 5 ? ratio_of(height, width, least_width, least_height)
                                : ratio_of(height, width, least_height, least_width);
    info->scale_num = 1;
    info->scale_denom = (unsigned int)ratio;
  }
  return FINE;
}

/* Read the rows that cover a rectangle of the stored pixels, and pass over the others. One block of margin: fancy
 * upsampling of the chroma takes its neighbours. */
static int scanned(struct autopipe_scratch *scratch, struct box box, struct image *image) {
  struct jpeg_decompress_struct *info = &scratch->decoder->info;
  JDIMENSION across = (JDIMENSION)(info->max_h_samp_factor * DCTSIZE), left = (JDIMENSION)box.left;
  JDIMENSION down = (JDIMENSION)(info->max_v_samp_factor * DCTSIZE), top = (JDIMENSION)box.top;
  JDIMENSION first = 0, wide = info->output_width, end = top + (JDIMENSION)box.height;
  if (box.width < (int64_t)wide) {
    first = left > across ? left - across : 0;
    wide = left + (JDIMENSION)box.width + across;
    wide = (wide < info->output_width ? wide : info->output_width) - first;
    jpeg_crop_scanline(info, &first, &wide);
  }
  size_t stride = (size_t)wide * (size_t)info->output_components;
  JDIMENSION begin = top > down ? top - down : 0;
  uint8_t *pixels = next_pixels(scratch, stride * (size_t)(end - begin));
  if (pixels == NULL) return NO_MEMORY;
  if (begin > 0) jpeg_skip_scanlines(info, begin);
  while (info->output_scanline < end) {
    JSAMPROW rows[16];
    JDIMENSION at = info->output_scanline - begin, count = end - info->output_scanline;
    if (count > 16) count = 16;
    for (JDIMENSION row = 0; row < count; row++) rows[row] = pixels + (size_t)(at + row) * stride;
    if (jpeg_read_scanlines(info, rows, count) == 0) return DAMAGED;
  }
  if (end < info->output_height) { /* the last row is read: to skip to the very end would look at no data */
    JSAMPROW row = room_of(&scratch->line, stride);
    if (row == NULL) return NO_MEMORY;
    if (end + 1 < info->output_height) jpeg_skip_scanlines(info, info->output_height - 1 - end);
    if (jpeg_read_scanlines(info, &row, 1) != 1) return DAMAGED;
  }
  jpeg_finish_decompress(info);
  *image = (struct image){pixels + (size_t)(top - begin) * stride + (size_t)(left - first) * (size_t)info->output_components,
                          (ptrdiff_t)stride, box.height, box.width, info->output_components, 1};
  return FINE;
}

static int decode(struct autopipe_scratch *scratch, const uint8_t *data, size_t size,
                  const struct autopipe_instruction *decode, const struct autopipe_instruction *crop,
                  const double *draws, int by_libjpeg, struct image *image) {
  struct decoder *decoder = scratch->decoder;
  int turned = decode->whole[4] ? orientation_of_jpeg(data, size) : 1;
  decoder->gave_up = 0;
  if (setjmp(decoder->back)) return DAMAGED;
  int verdict = begun(decoder, data, size, decode, turned);
  if (verdict != FINE) return verdict;
  jpeg_start_decompress(&decoder->info); /* of several scans, it reads all */
  if (!has_all_scans(&decoder->info)) return UNKNOWN;
  if (!by_libjpeg) huffman_begin(decoder);
  int64_t height = decoder->info.output_height, width = decoder->info.output_width;
  struct box box = {0, 0, height, width};
  if (crop != NULL) {
    int64_t shown_height = turned >= 5 ? width : height, shown_width = turned >= 5 ? height : width;
    verdict = box_of(crop, shown_height, shown_width, draws, &box);
    if (verdict != FINE) return verdict;
    box = as_stored(box, shown_height, shown_width, turned);
  }
  verdict = scanned(scratch, box, image);
  if (verdict != FINE) return verdict;
  if (decoder->errors.num_warnings != 0) return DAMAGED;
  return turned_pixels(scratch, turned, image);
}

/* DECODE: whole = {channels (0: a mask, as its file has it), most pixels, least height and width or 0, EXIF, bytes of a
 * value (0: as the file has it)}.
 * `crop` is the crop that follows, or NULL. */
int decode_jpeg(struct autopipe_scratch *scratch, const uint8_t *data, size_t size,
                const struct autopipe_instruction *instruction, const struct autopipe_instruction *crop,
                const double *draws, struct image *image) {
  int verdict = decode(scratch, data, size, instruction, crop, draws, !scratch->simd, image);
  if (verdict == FINE || !scratch->decoder->gave_up) return verdict;
  return decode(scratch, data, size, instruction, crop, draws, 1, image);
}
