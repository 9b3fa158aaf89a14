/* Resizing, to the bits of OpenCV's `cv2.resize` (4.11 to 5.0).
 *
 * What is reproduced of 8 bits: INTER_LINEAR in fixed point of 11 bits; INTER_AREA by sums of 32-bit floats, by means of
 * whole cells if both ratios are whole numbers, and by linear interpolation with its own places where it enlarges. Nearest
 * is this project's own (`_nearest` of ops/sizes.py). Of 16 bits and of floats both are sums of 32-bit floats; INTER_LINEAR
 * of one, three and four channels is IPP's, of which that of one is reproduced: the others round some columns at the edges
 * differently. What is not: bicubic, other dtypes. `autopipe/native.py` compares at load. Flips behind a resize cost
 * nothing: they turn the tables of rows and columns round. */
#include "autopipe.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

struct taps { /* of each new row or column: the first source one, and the weights of it and of the next one */
  int64_t *first;
  int16_t *weights; /* pairs */
};

static int16_t weight(float share) { return (int16_t)lrintf(share * 2048.0f); }

enum { OPENCV, ENLARGING, IPP }; /* whose places: ENLARGING are those of INTER_AREA where it enlarges */

/* Return the share of the second source row or column of a new one, and write the number of the first.
 * `clamps`: those at the edges take one only. */
static float tap_of(int64_t at, int64_t before, int64_t after, int whose, int clamps, int64_t *first) {
  double inverse = (double)after / (double)before, scale = 1.0 / inverse;
  float share;
  if (whose == IPP) {
    double place = ((double)at + 0.5) * ((double)before / (double)after) - 0.5, below = floor(place);
    share = (float)(place - below);
    *first = (int64_t)below;
  } else if (whose == ENLARGING) {
    *first = (int64_t)floor((double)at * scale);
    share = (float)((double)(at + 1) - (double)(*first + 1) * inverse);
    share = share <= 0 ? 0.0f : share - floorf(share);
  } else {
    share = (float)(((double)at + 0.5) * scale - 0.5);
    *first = (int64_t)floorf(share);
    share -= (float)*first;
  }
  if (clamps && *first < 0) *first = 0, share = 0;
  if (clamps && *first >= before - 1) *first = before - 1, share = 0;
  return share;
}

static void linear_taps(struct taps taps, int64_t before, int64_t after, int whose, int clamps) {
  for (int64_t at = 0; at < after; at++) {
    int64_t first;
    float share = tap_of(at, before, after, whose, clamps, &first);
    taps.first[at] = first;
    taps.weights[2 * at] = weight(1.0f - share);
    taps.weights[2 * at + 1] = weight(share);
  }
}

static void reverse(struct taps taps, int64_t count) {
  for (int64_t at = 0; at < count / 2; at++) {
    int64_t other = count - 1 - at, first = taps.first[at];
    int16_t pair[2];
    taps.first[at] = taps.first[other];
    taps.first[other] = first;
    memcpy(pair, taps.weights + 2 * at, sizeof pair);
    memcpy(taps.weights + 2 * at, taps.weights + 2 * other, sizeof pair);
    memcpy(taps.weights + 2 * other, pair, sizeof pair);
  }
}

/* -------------------- linear: a row across, then two rows down */

static void across_plain(const uint8_t *row, int64_t before, int channels, struct taps taps, int64_t from, int64_t to,
                         int16_t *out) {
  for (int64_t at = from; at < to; at++) {
    int64_t first = taps.first[at], second = first + 1 < before ? first + 1 : before - 1;
    const uint8_t *a = row + first * channels, *b = row + second * channels;
    int w0 = taps.weights[2 * at], w1 = taps.weights[2 * at + 1];
    for (int channel = 0; channel < channels; channel++)
      out[at * channels + channel] = (int16_t)((a[channel] * w0 + b[channel] * w1) >> 4);
  }
}

static void down_plain(const int16_t *a, const int16_t *b, int w0, int w1, int64_t from, int64_t count, uint8_t *out) {
  for (int64_t at = from; at < count; at++) {
    int level = (((w0 * a[at]) >> 16) + ((w1 * b[at]) >> 16) + 2) >> 2;
    out[at] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
  }
}

#if defined(__x86_64__)
/* Eight bytes from the first of two pixels on are read, so columns near the end of a row are left to the plain form. */
__attribute__((target("ssse3"))) static void across_three(const uint8_t *row, struct taps taps, int64_t from,
                                                          int64_t to, int16_t *out) {
  const __m128i order = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
  for (int64_t at = from; at < to; at++) {
    __m128i pixels = _mm_loadl_epi64((const __m128i *)(const void *)(row + taps.first[at] * 3));
    int32_t pair;
    memcpy(&pair, taps.weights + 2 * at, sizeof pair);
    __m128i sums = _mm_madd_epi16(_mm_shuffle_epi8(pixels, order), _mm_set1_epi32(pair));
    sums = _mm_srai_epi32(sums, 4);
    _mm_storel_epi64((__m128i *)(void *)(out + at * 3), _mm_packs_epi32(sums, sums));
  }
}

/* Four columns by one step. Each half of a register has two of them, one in each of the two sums. */
__attribute__((target("avx2"))) static __m256i two_pixels(const uint8_t *low, const uint8_t *high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadl_epi64((const void *)low)),
                                 _mm_loadl_epi64((const void *)high), 1);
}

__attribute__((target("avx2"))) static int64_t across_four(const uint8_t *row, struct taps taps, int64_t from,
                                                           int64_t to, int16_t *out) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i close = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1));
  const __m256i even = _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2), odd = _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3);
  for (; from + 4 <= to; from += 4) {
    const int64_t *first = taps.first + from;
    __m256i weights = _mm256_castsi128_si256(_mm_loadu_si128((const void *)(taps.weights + 2 * from)));
    __m256i a = _mm256_shuffle_epi8(two_pixels(row + first[0] * 3, row + first[2] * 3), order);
    __m256i b = _mm256_shuffle_epi8(two_pixels(row + first[1] * 3, row + first[3] * 3), order);
    a = _mm256_srai_epi32(_mm256_madd_epi16(a, _mm256_permutevar8x32_epi32(weights, even)), 4);
    b = _mm256_srai_epi32(_mm256_madd_epi16(b, _mm256_permutevar8x32_epi32(weights, odd)), 4);
    a = _mm256_shuffle_epi8(_mm256_packs_epi32(a, b), close);
    _mm_storeu_si128((void *)(out + from * 3), _mm256_castsi256_si128(a));
    _mm_storeu_si128((void *)(out + from * 3 + 6), _mm256_extracti128_si256(a, 1));
  }
  return from;
}

static void down_eight(const int16_t *a, const int16_t *b, int w0, int w1, int64_t count, uint8_t *out) {
  const __m128i first = _mm_set1_epi16((int16_t)w0), second = _mm_set1_epi16((int16_t)w1), two = _mm_set1_epi16(2);
  int64_t at = 0;
  for (; at + 16 <= count; at += 16) {
    __m128i low = _mm_add_epi16(_mm_mulhi_epi16(_mm_loadu_si128((const void *)(a + at)), first),
                                _mm_mulhi_epi16(_mm_loadu_si128((const void *)(b + at)), second));
    __m128i high = _mm_add_epi16(_mm_mulhi_epi16(_mm_loadu_si128((const void *)(a + at + 8)), first),
                                 _mm_mulhi_epi16(_mm_loadu_si128((const void *)(b + at + 8)), second));
    low = _mm_srai_epi16(_mm_add_epi16(low, two), 2);
    high = _mm_srai_epi16(_mm_add_epi16(high, two), 2);
    _mm_storeu_si128((void *)(out + at), _mm_packus_epi16(low, high));
  }
  down_plain(a, b, w0, w1, at, count, out);
}

static int simd_of(int most) {
  int level = __builtin_cpu_supports("avx2") ? 2 : __builtin_cpu_supports("ssse3") ? 1 : 0;
  return level < most ? level : most;
}
#else
static int simd_of(int most) { return 0 * most; }
#endif

AUTOPIPE_API const char *autopipe_simd(void) {
  static const char *const names[] = {"scalar", "ssse3", "avx2"};
  return names[simd_of(2)];
}

static void across(const struct image *image, int64_t row, struct taps taps, int64_t width, int simd, int16_t *out) {
  const uint8_t *pixels = image->pixels + row * image->stride;
  int64_t from = 0, to = 0;
#if defined(__x86_64__)
  if (simd && image->channels == 3) { /* columns rise or, mirrored, fall, so those far from the end are one run */
    to = width;
    while (from < to && taps.first[from] > image->width - 3) from++;
    while (to > from && taps.first[to - 1] > image->width - 3) to--;
    across_three(pixels, taps, simd > 1 ? across_four(pixels, taps, from, to, out) : from, to, out);
    /* More numbers are written than there are, so the plain form writes what lies behind once more. */
  }
#else
  (void)simd;
#endif
  across_plain(pixels, image->width, (int)image->channels, taps, 0, from, out);
  across_plain(pixels, image->width, (int)image->channels, taps, to, width, out);
}

struct job {
  struct autopipe_scratch *scratch;
  const struct image *image;
  int64_t height, width;
  int mirrored, upside_down;
  uint8_t *out;
  int64_t value, channels; /* bytes of a value: 2 of 16 bits, 4 of floats; values of a pixel */
};

static int64_t row_of(const struct job *job, int64_t row) { return job->upside_down ? job->height - 1 - row : row; }

static int linear(const struct job *job, int whose) {
  const struct image *image = job->image;
  int simd = simd_of(job->scratch->simd);
  size_t most = (size_t)(job->height + job->width), count = (size_t)(job->width * image->channels);
  uint8_t *bytes = room_of(&job->scratch->table, most * 12 + 4 * (count + 8));
  if (bytes == NULL) return NO_MEMORY;
  struct taps columns, rows;
  columns.first = (int64_t *)(void *)bytes;
  rows.first = columns.first + job->width;
  columns.weights = (int16_t *)(void *)(rows.first + job->height);
  rows.weights = columns.weights + 2 * job->width;
  int16_t *lines[2] = {rows.weights + 2 * job->height, rows.weights + 2 * job->height + count + 8};
  int64_t held[2] = {-1, -1};
  linear_taps(columns, image->width, job->width, whose, 1);
  linear_taps(rows, image->height, job->height, whose, 0);
  if (job->mirrored) reverse(columns, job->width);
  for (int64_t at = 0; at < job->height; at++) {
    int64_t wanted[2];
    for (int each = 0; each < 2; each++) {
      int64_t row = rows.first[at] + each;
      wanted[each] = row < 0 ? 0 : row >= image->height ? image->height - 1 : row;
    }
    if (held[0] != wanted[0] && held[1] == wanted[0]) {
      int16_t *line = lines[0];
      lines[0] = lines[1], lines[1] = line;
      held[1] = held[0], held[0] = wanted[0];
    }
    for (int each = 0; each < 2; each++) {
      if (held[each] == wanted[each]) continue;
      across(image, wanted[each], columns, job->width, simd, lines[each]);
      held[each] = wanted[each];
    }
    uint8_t *out = job->out + (size_t)row_of(job, at) * count;
#if defined(__x86_64__)
    if (simd) {
      down_eight(lines[0], lines[1], rows.weights[2 * at], rows.weights[2 * at + 1], (int64_t)count, out);
      continue;
    }
#endif
    down_plain(lines[0], lines[1], rows.weights[2 * at], rows.weights[2 * at + 1], 0, (int64_t)count, out);
  }
  return FINE;
}

/* -------------------- values of 16 bits and floats */

static inline __attribute__((always_inline)) float value_at(const uint8_t *from, int64_t value) {
  uint16_t deep;
  float number;
  if (value == 2) {
    memcpy(&deep, from, sizeof deep);
    return (float)deep;
  }
  memcpy(&number, from, sizeof number);
  return number;
}

static inline __attribute__((always_inline)) void put_value(uint8_t *to, int64_t value, float number) {
  if (value == 2) {
    number = number > 65535 ? 65535 : number > 0 ? number : 0;
    uint16_t deep = (uint16_t)(int)((number + 12582912.0f) - 12582912.0f); /* as in `level_of` */
    memcpy(to, &deep, sizeof deep);
  } else {
    memcpy(to, &number, sizeof number);
  }
}

WIDE static void widen(const uint8_t *from, int64_t value, size_t count, float *to) {
  if (value == 2)
    for (size_t at = 0; at < count; at++) to[at] = value_at(from + 2 * at, 2);
  else
    memcpy(to, from, 4 * count);
}

WIDE static int is_finite(const float *row, size_t count) {
  uint32_t bits, largest = 0;
  for (size_t at = 0; at < count; at++) {
    memcpy(&bits, row + at, sizeof bits);
    largest = (bits & 0x7F800000) > largest ? bits & 0x7F800000 : largest;
  }
  return largest < 0x7F800000;
}

WIDE static void put_values(const float *from, int64_t value, size_t count, uint8_t *to) {
  if (value == 2)
    for (size_t at = 0; at < count; at++) put_value(to + 2 * at, 2, from[at]);
  else
    memcpy(to, from, 4 * count);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FUSED __attribute__((target_clones("arch=haswell", "default")))
#else
#define FUSED
#endif

/* Both rows come to a third one: IPP rounds once a step, and OpenCV thrice. */
FUSED static void between_rows(const float *a, const float *b, float share, int whose, size_t count, float *to) {
  float rest = 1.0f - share;
  if (whose == IPP)
    for (size_t at = 0; at < count; at++) to[at] = fmaf(b[at] - a[at], share, a[at]);
  else
    for (size_t at = 0; at < count; at++) to[at] = a[at] * rest + b[at] * share;
}

/* A share below 0 takes the first column alone, also if the next one is no number. */
FUSED static void between_columns(const float *row, const int64_t *first, const float *shares, int whose, size_t count,
                                  size_t channels, float *to) {
  for (size_t at = 0; at < count; at++) {
    float share = shares[at], rest = 1.0f - share;
    const float *a = row + (size_t)first[at] * channels, *b = share < 0 ? a : a + channels;
    for (size_t channel = 0; channel < channels; channel++, to++)
      *to = share < 0      ? a[channel]
            : whose == IPP ? fmaf(b[channel] - a[channel], share, a[channel])
                           : a[channel] * rest + b[channel] * share;
  }
}

static int linear_deep(const struct job *job, int whose) {
  const struct image *image = job->image;
  size_t channels = (size_t)job->channels, count = (size_t)job->width * channels, source = (size_t)image->width * channels;
  size_t width = (size_t)job->width, bytes = width * (sizeof(int64_t) + sizeof(float)) + sizeof(float) * (3 * count + source);
  int64_t *first = (int64_t *)(void *)room_of(&job->scratch->table, bytes), held[2] = {-1, -1};
  if (first == NULL) return NO_MEMORY;
  float *shares = (float *)(void *)(first + width), *lines[2] = {shares + width, shares + width + count};
  float *made = lines[1] + count, *row = made + count;
  for (int64_t at = 0; at < job->width; at++) {
    int64_t to = job->mirrored ? job->width - 1 - at : at;
    shares[to] = tap_of(at, image->width, job->width, whose, 1, first + to);
    if (first[to] >= image->width - 1) shares[to] = -1;
  }
  for (int64_t at = 0; at < job->height; at++) {
    int64_t upper;
    float share = tap_of(at, image->height, job->height, whose, 0, &upper);
    for (int each = 0; each < 2; each++) {
      int64_t wanted = upper + each < 0 ? 0 : upper + each >= image->height ? image->height - 1 : upper + each;
      if (each == 0 && held[1] == wanted) {
        float *line = lines[0];
        lines[0] = lines[1], lines[1] = line;
        held[1] = held[0], held[0] = wanted;
      }
      if (held[each] == wanted) continue;
      widen(image->pixels + wanted * image->stride, job->value, source, row);
      if (whose == IPP && !is_finite(row, source)) return UNKNOWN; /* at the edges, IPP makes other numbers of these */
      between_columns(row, first, shares, whose, width, channels, lines[each]);
      held[each] = wanted;
    }
    between_rows(lines[0], lines[1], share, whose, count, made);
    put_values(made, job->value, count, job->out + (size_t)row_of(job, at) * count * (size_t)job->value);
  }
  return FINE;
}

/* -------------------- means of whole cells */

/* The channels of a channel's group, which is resized at once: AREA takes four (`resized` of ops/sizes.py). */
static int64_t group_of(int64_t channel, int64_t channels, int how) {
  return how != AREA ? channels : channel < channels / 4 * 4 ? 4 : channels % 4;
}

/* The mean of a cell of 16 bits or floats, whose halves OpenCV adds up in other orders. */
static inline __attribute__((always_inline)) float mean_of(const uint8_t *from, const struct job *job, int64_t down,
                                                           int64_t across, int64_t value, int64_t group, int is_in_four) {
  int64_t step = job->channels * value, stride = job->image->stride, left = down * across;
  float total = 0, four = 0;
  if (left == 4 && down == 2 && value == 2 && group != 2) {
    float sum = value_at(from, 2) + value_at(from + step, 2) + value_at(from + stride, 2) + value_at(from + stride + step, 2);
    return (float)((int)(sum + 2) >> 2);
  }
  if (left == 4 && down == 2 && value == 4 && (group == 4 || (group == 1 && is_in_four))) {
    float upper = value_at(from, 4) + value_at(from + step, 4);
    return (upper + (value_at(from + stride, 4) + value_at(from + stride + step, 4))) * 0.25f;
  }
  int64_t taken = 0, fours = left / 4 * 4;
  for (int64_t y = 0; y < down; y++)
    for (int64_t x = 0; x < across; x++, taken++) {
      float number = value_at(from + y * stride + x * step, value);
      if (taken >= fours)
        total += number;
      else if (taken % 4 == 0)
        four = number;
      else
        four += number;
      if (taken < fours && taken % 4 == 3) total += four;
    }
  return total * (1.0f / (float)left);
}

static inline __attribute__((always_inline)) void cells_of(const struct job *job, int64_t down, int64_t across, int how,
                                                           int64_t value) {
  int64_t size = job->channels * value;
  for (int64_t row = 0; row < job->height; row++)
    for (int64_t column = 0; column < job->width; column++) {
      const uint8_t *from = job->image->pixels + row * down * job->image->stride + column * across * size;
      uint8_t *to = job->out + (row_of(job, row) * job->width + (job->mirrored ? job->width - 1 - column : column)) * size;
      for (int64_t channel = 0; channel < job->channels; channel++) {
        int64_t group = group_of(channel, job->channels, how);
        float mean = mean_of(from + channel * value, job, down, across, value, how == AREA ? group : 2,
                             column < job->width / 4 * 4);
        put_value(to + channel * value, value, mean);
      }
    }
}

static int cells_deep(const struct job *job, int64_t down, int64_t across, int how) {
  if (job->value == 2)
    cells_of(job, down, across, how, 2);
  else
    cells_of(job, down, across, how, 4);
  return FINE;
}

static int cells(const struct job *job, int64_t down, int64_t across, int how) {
  const struct image *image = job->image;
  int64_t channels = image->channels;
  float share = 1.0f / (float)(down * across);
  for (int64_t row = 0; row < job->height; row++)
    for (int64_t column = 0; column < job->width; column++) {
      const uint8_t *from = image->pixels + row * down * image->stride + column * across * channels;
      uint8_t *to = job->out + row_of(job, row) * job->width * channels +
                    (job->mirrored ? job->width - 1 - column : column) * channels;
      for (int64_t channel = 0; channel < channels; channel++) {
        int64_t sum = 0, group = group_of(channel, channels, how);
        int is_half = down == 2 && across == 2 && (group == 1 || group == 3 || group == 4);
        for (int64_t y = 0; y < down; y++)
          for (int64_t x = 0; x < across; x++) sum += from[y * image->stride + x * channels + channel];
        to[channel] = is_half ? (uint8_t)((sum + 2) >> 2) : level_of((float)(int32_t)sum * share);
      }
    }
  return FINE;
}

/* -------------------- area: weighted sums of 32-bit floats */

struct cell { /* of a new row or column: the source ones, and where their weights begin */
  int64_t first, count;
  const float *weights;
};

/* Write the weights of a cell to `weights`, which has room for as many as its source rows or columns. */
static struct cell cell_of(int64_t at, int64_t before, double scale, float *weights) {
  double from = (double)at * scale, to = from + scale, size = scale < (double)before - from ? scale : (double)before - from;
  int64_t first = (int64_t)ceil(from), last = (int64_t)floor(to);
  if (last > before - 1) last = before - 1;
  if (first > last) first = last;
  struct cell cell = {first, 0, weights};
  if ((double)first - from > 1e-3) {
    cell.first--;
    weights[cell.count++] = (float)(((double)first - from) / size);
  }
  for (int64_t each = first; each < last; each++) weights[cell.count++] = (float)(1.0 / size);
  if (to - (double)last > 1e-3) {
    double left = to - (double)last;
    left = left < 1.0 ? left : 1.0;
    weights[cell.count++] = (float)((left < size ? left : size) / size);
  }
  return cell;
}

static void summed_plain(const uint8_t *pixels, const struct cell *cell, size_t channels, float *to) {
  for (size_t channel = 0; channel < channels; channel++) {
    const uint8_t *from = pixels + (size_t)cell->first * channels + channel;
    float total = 0;
    for (int64_t x = 0; x < cell->count; x++) total += (float)from[(size_t)x * channels] * cell->weights[x];
    to[channel] = total;
  }
}

#if defined(__x86_64__)
/* Four bytes of three are read, and four numbers written, so the last column of a row is left to the plain form. */
__attribute__((target("ssse3"))) static void summed_three(const uint8_t *pixels, const struct cell *cell, float *to) {
  const __m128i order = _mm_setr_epi8(0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1);
  const uint8_t *from = pixels + cell->first * 3;
  __m128 total = _mm_setzero_ps();
  for (int64_t x = 0; x < cell->count; x++, from += 3) {
    int32_t pixel;
    memcpy(&pixel, from, sizeof pixel);
    __m128 levels = _mm_cvtepi32_ps(_mm_shuffle_epi8(_mm_cvtsi32_si128(pixel), order));
    total = _mm_add_ps(total, _mm_mul_ps(levels, _mm_set1_ps(cell->weights[x])));
  }
  _mm_storeu_ps(to, total);
}
#endif

/* Sum the columns of a source row of 16 bits or floats, which come to `source`. */
static void summed_deep(const struct job *job, int64_t row, const struct cell *columns, float *source, float *line) {
  size_t channels = (size_t)job->channels;
  widen(job->image->pixels + row * job->image->stride, job->value, (size_t)job->image->width * channels, source);
  for (int64_t column = 0; column < job->width; column++) {
    const float *from = source + (size_t)columns[column].first * channels, *weights = columns[column].weights;
    for (size_t channel = 0; channel < channels; channel++, from++) {
      float total = 0;
      for (int64_t x = 0; x < columns[column].count; x++) total += from[(size_t)x * channels] * weights[x];
      *line++ = total;
    }
  }
}

/* Sum the columns of a source row. */
static void summed(const struct job *job, int64_t row, const struct cell *columns, float *source, float *line) {
  const uint8_t *pixels = job->image->pixels + row * job->image->stride;
  if (job->value > 1) {
    summed_deep(job, row, columns, source, line);
    return;
  }
  size_t channels = (size_t)job->image->channels;
  int64_t wide = 0;
#if defined(__x86_64__)
  if (simd_of(job->scratch->simd) && channels == 3) {
    wide = job->width - 1;
    for (int64_t column = 0; column < wide; column++) summed_three(pixels, columns + column, line + column * 3);
  }
#endif
  for (int64_t column = wide; column < job->width; column++)
    summed_plain(pixels, columns + column, channels, line + (size_t)column * channels);
}

static int area(const struct job *job, double scale_down, double scale_across) {
  const struct image *image = job->image;
  size_t count = (size_t)(job->width * job->channels), most = (size_t)(image->height + image->width + 3 * job->width + 3);
  size_t source = job->value > 1 ? (size_t)(image->width * job->channels) : 0, row_bytes = count * (size_t)job->value;
  size_t bytes = sizeof(struct cell) * (size_t)job->width + sizeof(float) * (most + 2 * count + 8 + source) + row_bytes;
  struct cell *columns = (struct cell *)(void *)room_of(&job->scratch->table, bytes);
  if (columns == NULL) return NO_MEMORY;
  float *line = (float *)(void *)(columns + job->width), *sum = line + count + 4, *wide = sum + count;
  float *weights = wide + source;
  uint8_t *levels = (uint8_t *)(weights + most);
  int64_t held = -1;
  for (int64_t column = 0; column < job->width; column++) {
    columns[column] = cell_of(column, image->width, scale_across, weights);
    weights += columns[column].count;
  }
  for (int64_t row = 0; row < job->height; row++) {
    struct cell rows = cell_of(row, image->height, scale_down, weights);
    for (int64_t each = 0; each < rows.count; each++) {
      float down = rows.weights[each];
      if (held != rows.first + each) summed(job, rows.first + each, columns, wide, line);
      held = rows.first + each;
      if (each == 0)
        for (size_t at = 0; at < count; at++) sum[at] = line[at] * down;
      else
        for (size_t at = 0; at < count; at++) sum[at] = sum[at] + line[at] * down;
    }
    uint8_t *out = job->out + (size_t)row_of(job, row) * row_bytes;
    uint8_t *to = job->mirrored ? levels : out;
    if (job->value > 1)
      put_values(sum, job->value, count, to);
    else
      for (size_t at = 0; at < count; at++) to[at] = level_of(sum[at]);
    if (job->mirrored) put_mirrored(levels, job->width, image->channels, out);
  }
  return FINE;
}

/* -------------------- nearest */

static int nearest(const struct job *job) {
  const struct image *image = job->image;
  size_t channels = (size_t)image->channels;
  uint8_t *bytes = room_of(&job->scratch->table, sizeof(int64_t) * (size_t)job->width);
  if (bytes == NULL) return NO_MEMORY;
  int64_t *columns = (int64_t *)(void *)bytes;
  for (int64_t column = 0; column < job->width; column++)
    columns[job->mirrored ? job->width - 1 - column : column] =
        (2 * column + 1) * image->width / (2 * job->width) * (int64_t)channels;
  for (int64_t row = 0; row < job->height; row++) {
    const uint8_t *from = image->pixels + (2 * row + 1) * image->height / (2 * job->height) * image->stride;
    uint8_t *to = job->out + (size_t)row_of(job, row) * (size_t)job->width * channels;
    if (channels == 1)
      for (int64_t column = 0; column < job->width; column++) to[column] = from[columns[column]];
    else
      for (int64_t column = 0; column < job->width; column++, to += channels)
        for (size_t channel = 0; channel < channels; channel++) to[channel] = from[columns[column] + (int64_t)channel];
  }
  return FINE;
}

/* -------------------- the choice among them, as OpenCV makes it */

static int64_t whole(double scale) {
  double rounded = rint(scale);
  return fabs(scale - rounded) < DBL_EPSILON ? (int64_t)rounded : 0;
}

/* Of 16 bits and of floats; `rows` and `columns` are how many make one, if these are whole numbers. */
static int resize_deep(const struct job *job, int how, double down, double across, int64_t rows, int64_t columns) {
  int is_wide = job->image->height > 1 && job->image->width > 1;
  int is_ipp = how == BILINEAR && is_wide && (job->channels == 1 || job->channels == 3 || job->channels == 4);
  if (is_ipp) return job->channels == 1 ? linear_deep(job, IPP) : UNKNOWN;
  if (how == BILINEAR && job->channels > 128) return UNKNOWN; /* OpenCV makes several images of them */
  if ((rows == 2 && columns == 2) || (how == AREA && rows > 0 && columns > 0)) return cells_deep(job, rows, columns, how);
  if (how == AREA && down >= 1 && across >= 1) return area(job, down, across);
  return linear_deep(job, how == AREA ? ENLARGING : OPENCV);
}

/* RESIZE: whole = {height, width, how, bytes of a value: 1, 2 of 16 bits, 4 of floats}. */
int resize_image(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, int64_t height, int64_t width,
                 int mirrored, int upside_down, struct image *image) {
  int how = (int)each->whole[2];
  int64_t value = each->whole[3] > 1 ? each->whole[3] : 1;
  if (image->height < 1 || image->width < 1 || image->channels % value != 0) return OTHER_SHAPE;
  uint8_t *out = room_for(scratch, height, width, image->channels);
  if (out == NULL) return NO_MEMORY;
  struct job job = {scratch, image, height, width, mirrored, upside_down, out, value, image->channels / value};
  double down = 1.0 / ((double)height / (double)image->height), across = 1.0 / ((double)width / (double)image->width);
  int64_t rows = whole(down), columns = whole(across);
  int verdict;
  if (how == NEAREST || (image->height == height && image->width == width))
    verdict = nearest(&job); /* of the same size: a copy */
  else if (value > 1)
    verdict = resize_deep(&job, how, down, across, rows, columns);
  else if (rows == 2 && columns == 2)
    verdict = cells(&job, 2, 2, how);
  else if (how == AREA && rows > 0 && columns > 0)
    verdict = cells(&job, rows, columns, how);
  else if (how == AREA && down >= 1 && across >= 1)
    verdict = area(&job, down, across);
  else
    verdict = linear(&job, how == AREA ? ENLARGING : OPENCV);
  if (verdict == FINE) *image = (struct image){out, width * image->channels, height, width, image->channels, 1};
  return verdict;
}
