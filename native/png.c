/* PNG by libdeflate: grey and RGB of up to 16 bits and palettes, without their alpha, to the pixels of every decoder.
 *
 * What is not: 16 bits that become 8, interlaced files, colours that become grey, chunks that are not known here, whatever is damaged.
 * They are UNKNOWN, and Python decodes them, or says what is wrong. The chunks are read here; libdeflate has checksums and
 * decompression, which takes a whole image at a time: its size is known from the header. */
#include "autopipe.h"

#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static uint32_t number(const uint8_t *bytes) { return (uint32_t)from_bytes(bytes, 4, 0); }

enum { GREYS = 0, COLOURS = 2, PALETTE = 3 }; /* kinds; with 4 more, alpha is behind them */

struct png {
  size_t bits, samples; /* of a level, and levels of a pixel, in the file */
  int kind;
  size_t entries; /* of the palette, or levels of grey; 0 if there is none */
  uint8_t levels[256][4];
};

/* Return 1 if a file is complete, its checksums are right, and it has no chunks but a palette, those of the pixels,
 * which lie together, and others that do not change them. `count` is the bytes of its compressed pixels, from `first`
 * on. */
static int is_plain(const uint8_t *data, size_t size, struct png *png, size_t *first, size_t *count) {
  static const char passed_over[][5] = {"gAMA", "cHRM", "sRGB", "iCCP", "pHYs", "tIME",
                                        "tEXt", "zTXt", "iTXt", "tRNS", "bKGD", "sBIT"};
  size_t at = 8, length = 0, ended = 0;
  for (*first = *count = 0; size - at >= 12; at += length + 12) {
    const uint8_t *name = data + at + 4;
    length = number(data + at);
    if (size - at - 12 < length) return 0;
    if (CHECKS && libdeflate_crc32(0, name, length + 4) != number(name + 4 + length)) return 0;
    if (memcmp(name, "IDAT", 4) == 0) {
      if (ended) return 0;
      if (*first == 0) *first = at;
      *count += length;
      continue;
    }
    ended = *first != 0;
    if (memcmp(name, "IEND", 4) == 0) return ended && length == 0 && at + 12 == size;
    if (memcmp(name, "PLTE", 4) == 0 && png->kind == PALETTE && png->entries == 0 && !ended) {
      png->entries = length / 3;
      if (length == 0 || length % 3 != 0 || png->entries > (size_t)1 << png->bits) return 0;
      for (size_t each = 0; each < png->entries; each++) memcpy(png->levels[each], name + 4 + 3 * each, 3);
      continue;
    }
    size_t known = at == 8 && memcmp(name, "IHDR", 4) == 0;
    for (size_t each = 0; at > 8 && each < sizeof passed_over / sizeof *passed_over; each++)
      known += memcmp(name, passed_over[each], 4) == 0;
    if (!known) return 0;
  }
  return 0;
}

static int nearest_of(int left, int up, int corner) {
  int a = up - corner, b = left - corner, c = a + b;
  a = a < 0 ? -a : a, b = b < 0 ? -b : b, c = c < 0 ? -c : c;
  int near = b < a ? up : left, least = b < a ? b : a; /* two moves, and no jump that nothing foretells */
  return c < least ? corner : near;
}

/* Undo a filter in which a byte needs the one to its left: `step` is a constant, so that the levels of the pixel on the
 * left are held in registers. */
static inline __attribute__((always_inline)) void along(int filter, uint8_t *row, const uint8_t *above, size_t count,
                                                        size_t step) {
  uint8_t left[8] = {0}, corner[8] = {0};
  for (size_t at = 0; at + step <= count; at += step)
    for (size_t level = 0; level < step; level++) {
      int up = above[at + level], guess = left[level];
      if (filter == 3) guess = (guess + up) / 2;
      if (filter == 4) guess = nearest_of(guess, up, corner[level]);
      corner[level] = (uint8_t)up;
      row[at + level] = left[level] = (uint8_t)(row[at + level] + guess);
    }
}

#ifdef __SSE2__
static inline __m128i four_at(const uint8_t *from) {
  int bytes;
  memcpy(&bytes, from, sizeof bytes);
  return _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), _mm_setzero_si128());
}

static inline __m128i bytes_at(const uint8_t *from, size_t step) {
  if (step <= 4) return four_at(from);
  return _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)from), _mm_setzero_si128());
}

static inline __m128i chosen(__m128i is_first, __m128i first, __m128i second) {
  return _mm_or_si128(_mm_and_si128(is_first, first), _mm_andnot_si128(is_first, second));
}

/* The filter 4 as `along` undoes it, all levels of a pixel at once. Up to three bytes behind the rows are read. */
static inline __attribute__((always_inline)) void nearest_along(uint8_t *row, const uint8_t *above, size_t count,
                                                                size_t step) {
  const __m128i zero = _mm_setzero_si128(), byte = _mm_set1_epi16(255);
  __m128i left = zero, corner = zero;
  for (size_t at = 0; at + step <= count; at += step) {
    __m128i up = bytes_at(above + at, step), a = _mm_sub_epi16(up, corner), b = _mm_sub_epi16(left, corner);
    __m128i c = _mm_add_epi16(a, b);
    a = _mm_max_epi16(a, _mm_sub_epi16(zero, a));
    b = _mm_max_epi16(b, _mm_sub_epi16(zero, b));
    c = _mm_max_epi16(c, _mm_sub_epi16(zero, c));
    __m128i near = chosen(_mm_cmplt_epi16(b, a), up, left);
    near = chosen(_mm_cmplt_epi16(c, _mm_min_epi16(a, b)), corner, near);
    left = _mm_and_si128(_mm_add_epi16(bytes_at(row + at, step), near), byte);
    corner = up;
    uint8_t bytes[16];
    _mm_storeu_si128((__m128i *)(void *)bytes, _mm_packus_epi16(left, left));
    memcpy(row + at, bytes, step);
  }
}
#else
#define nearest_along(row, above, count, step) along(4, row, above, count, step)
#endif

static inline __attribute__((always_inline)) void of_pixels(int filter, uint8_t *row, const uint8_t *above,
                                                            size_t count, size_t step, int simd) {
  if (filter == 1)
    along(1, row, above, count, step);
  else if (filter == 3)
    along(3, row, above, count, step);
  else if (simd)
    nearest_along(row, above, count, step);
  else
    along(4, row, above, count, step);
}

/* Undo the filter of a row, in place; `above` is the row before it, or zeros. A pixel has `step` bytes, at most eight. */
static int unfiltered(int filter, uint8_t *row, const uint8_t *above, size_t count, size_t step, int simd) {
  if (filter > 4) return 0;
  for (size_t at = 0; filter == 2 && at < count; at++) row[at] = (uint8_t)(row[at] + above[at]);
  if (filter == 0 || filter == 2) return 1;
  switch (step) {
    case 1: of_pixels(filter, row, above, count, 1, simd); break;
    case 2: of_pixels(filter, row, above, count, 2, simd); break;
    case 3: of_pixels(filter, row, above, count, 3, simd); break;
    case 4: of_pixels(filter, row, above, count, 4, simd); break;
    case 6: of_pixels(filter, row, above, count, 6, simd); break;
    default: of_pixels(filter, row, above, count, 8, simd);
  }
  return 1;
}

static int inflated(struct autopipe_scratch *scratch, const uint8_t *data, size_t first, size_t packed, uint8_t *out,
                    size_t size) {
  const uint8_t *bytes = data + first + 8;
  if (number(data + first) < packed) { /* in several chunks: one behind the other */
    uint8_t *to = room_of(&scratch->line, packed);
    if (to == NULL) return NO_MEMORY;
    bytes = to;
    for (size_t at = first; to < bytes + packed; at += number(data + at) + 12) {
      memcpy(to, data + at + 8, number(data + at));
      to += number(data + at);
    }
  }
  /* Of a window that is smaller than the image, libpng requires that it is kept to, and libdeflate does not. */
  if (packed < 2 || (bytes[0] & 15) != 8 || (bytes[0] < 0x78 && (size_t)1 << ((bytes[0] >> 4) + 8) < size)) return UNKNOWN;
  struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
  if (inflater == NULL) return NO_MEMORY;
  enum libdeflate_result result = CHECKS ? libdeflate_zlib_decompress(inflater, bytes, packed, out, size, NULL)
                                         : libdeflate_deflate_decompress(inflater, bytes + 2, packed - 2, out, size, NULL);
  libdeflate_free_decompressor(inflater);
  return result == LIBDEFLATE_SUCCESS ? FINE : UNKNOWN;
}

/* Look at the header; return how many values the pixels come to have, 0 if they are left to Python. */
static size_t channels_of(const uint8_t *rest, const struct autopipe_instruction *decode, struct png *png) {
  png->bits = rest[0];
  png->kind = rest[1] == 4 || rest[1] == 6 ? rest[1] - 4 : rest[1];
  int is_deep = png->bits == 16 && decode->whole[5] != 1;
  int is_whole = is_deep || (png->bits == 8 && decode->whole[5] != 2), is_less = png->bits == 1 || png->bits == 2 || png->bits == 4;
  if (png->kind != GREYS && png->kind != COLOURS && png->kind != PALETTE) return 0;
  if (decode->whole[5] == 2 && !is_deep) return 0;
  if ((is_deep && png->kind == PALETTE) || (!is_whole && !(is_less && (rest[1] == GREYS || rest[1] == PALETTE)))) return 0;
  if (rest[2] || rest[3] || rest[4]) return 0; /* compression, filter, interlace */
  if (png->kind == GREYS && !is_deep) png->entries = (size_t)1 << png->bits;
  for (size_t level = 0; level < png->entries; level++)
    memset(png->levels[level], (int)(level * 255 / (png->entries - 1)), sizeof *png->levels);
  png->samples = (size_t)(png->kind == COLOURS ? 3 : 1) + (rest[1] >= 4);
  size_t own = rest[1] == GREYS ? 1 : 3, wanted = (size_t)decode->whole[0];
  if (wanted == 1 && png->kind != GREYS) return 0;
  return wanted == 0 ? own : wanted;
}

/* Write a row of `width` pixels, with `channels` levels each; return 0 if one is not in the palette. */
static int expanded(const struct png *png, const uint8_t *line, size_t width, size_t channels, uint8_t *to) {
  size_t bits = png->bits, most = ((size_t)1 << bits) - 1, largest = 0;
  for (size_t at = 0; at < width; at++, to += channels) {
    const uint8_t *from = line + at * png->samples;
    if (png->kind != COLOURS) {
      size_t level = bits == 8 ? *from : line[at * bits / 8] >> (8 - bits - at * bits % 8) & most;
      largest = level > largest ? level : largest;
      from = png->levels[level];
    }
    to[0] = from[0];
    if (channels == 3) {
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return largest < png->entries || png->kind == COLOURS;
}

/* Write a row of 16 bits, which lie in a file with the upper ones first. */
static void expanded_deep(const struct png *png, const uint8_t *line, size_t width, size_t channels, uint8_t *to) {
  for (size_t at = 0; at < width; at++, line += 2 * png->samples)
    for (size_t channel = 0; channel < channels; channel++, to += 2) {
      const uint8_t *from = line + (png->kind == COLOURS ? 2 * channel : 0);
      uint16_t value = (uint16_t)(from[0] << 8 | from[1]);
      memcpy(to, &value, sizeof value);
    }
}

/* DECODE: see `decode_jpeg`. */
int decode_png(struct autopipe_scratch *scratch, const uint8_t *data, size_t size,
               const struct autopipe_instruction *decode, struct image *image) {
  size_t first, packed;
  struct png png = {.levels = {{0}}};
  if (size < 33 || memcmp(data, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) != 0) return UNKNOWN;
  uint32_t width = number(data + 16), height = number(data + 20);
  if (width == 0 || height == 0 || width > 0xFFFFFF || height > 0xFFFFFF) return UNKNOWN;
  if ((int64_t)width * (int64_t)height > decode->whole[1]) return TOO_LARGE; /* before anything is allocated for it */
  size_t values = channels_of(data + 24, decode, &png), channels = values * (png.bits == 16 ? 2 : 1);
  if (channels == 0 || !is_plain(data, size, &png, &first, &packed)) return UNKNOWN;
  if (png.kind == PALETTE && png.entries == 0) return UNKNOWN;
  size_t count = (width * png.samples * png.bits + 7) / 8, step = (png.samples * png.bits + 7) / 8;
  if ((count + 1) * height / 1032 > packed) return UNKNOWN; /* more than deflate can pack: nothing is allocated for a lie */
  uint8_t *pixels = next_pixels(scratch, (count + 1) * height + count); /* behind them a row of zeros */
  if (pixels == NULL) return NO_MEMORY;
  int verdict = inflated(scratch, data, first, packed, pixels, (count + 1) * height);
  if (verdict != FINE) return verdict;
  int as_stored = png.bits == 8 && png.kind != PALETTE && values == png.samples;
  uint8_t *out = as_stored ? NULL : next_pixels(scratch, (size_t)width * height * channels);
  if (!as_stored && out == NULL) return NO_MEMORY;
  const uint8_t *above = pixels + (count + 1) * height;
  memset(pixels + (count + 1) * height, 0, count);
  for (uint32_t row = 0; row < height; row++) {
    uint8_t *line = pixels + row * (count + 1);
    if (!unfiltered(line[0], line + 1, above, count, step, scratch->simd)) return UNKNOWN;
    above = line + 1;
    if (png.bits == 16)
      expanded_deep(&png, above, width, values, out + (size_t)row * width * channels);
    else if (!as_stored && !expanded(&png, above, width, channels, out + (size_t)row * width * channels)) return UNKNOWN;
  }
  *image = as_stored ? (struct image){pixels + 1, (ptrdiff_t)count + 1, height, width, (int64_t)channels, 1}
                     : (struct image){out, (ptrdiff_t)(width * channels), height, width, (int64_t)channels, 1};
  return FINE;
}
