/* What is done to pixels where they lie: padding, colours, erasing, classes of a mask, and tables of values.
 *
 * Reproduced to the bit: the ops of `autopipe/workload/ops` on 8-bit images. Each is IEEE arithmetic in single precision
 * in the order of the op, rounded half to even. A change of levels is a table of 256, or one for each channel; so is any
 * chain of Rescale, Normalize and Cast, whose table Python makes by the ops themselves. */
#include "autopipe.h"

#include <string.h>


int own_pixels(struct autopipe_scratch *scratch, struct image *image) {
  if (image->is_own) return FINE;
  size_t count = (size_t)(image->width * image->channels);
  uint8_t *out = next_pixels(scratch, count * (size_t)image->height);
  if (out == NULL) return NO_MEMORY;
  for (int64_t row = 0; row < image->height; row++)
    memcpy(out + (size_t)row * count, image->pixels + row * image->stride, count);
  image->pixels = out;
  image->stride = (ptrdiff_t)count;
  image->is_own = 1;
  return FINE;
}

/* PAD: whole = {height, width, level}. */
static int pad(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, struct image *image) {
  int64_t height = each->whole[0] > image->height ? each->whole[0] : image->height;
  int64_t width = each->whole[1] > image->width ? each->whole[1] : image->width;
  if (height == image->height && width == image->width) return FINE;
  size_t count = (size_t)(width * image->channels), held = (size_t)(image->width * image->channels);
  uint8_t *out = next_pixels(scratch, count * (size_t)height);
  if (out == NULL) return NO_MEMORY;
  int64_t top = (height - image->height) / 2, left = (width - image->width) / 2;
  memset(out, (int)each->whole[2], count * (size_t)height);
  for (int64_t row = 0; row < image->height; row++)
    memcpy(out + (size_t)(top + row) * count + (size_t)(left * image->channels), image->pixels + row * image->stride, held);
  *image = (struct image){out, (ptrdiff_t)count, height, width, image->channels, 1};
  return FINE;
}

/* -------------------- colours */

static void mapped(struct image *image, uint8_t (*tables)[256], int count) {
  size_t values = (size_t)(image->width * image->channels);
  for (int64_t row = 0; row < image->height; row++) {
    uint8_t *pixels = image->pixels + row * image->stride;
    if (count == 3)
      for (size_t at = 0; at + 2 < values; at += 3) {
        pixels[at] = tables[0][pixels[at]];
        pixels[at + 1] = tables[1][pixels[at + 1]];
        pixels[at + 2] = tables[2][pixels[at + 2]];
      }
    else
      for (size_t at = 0; at < values; at++) pixels[at] = tables[0][pixels[at]];
  }
}

/* BRIGHTNESS: real = {delta}, or with whole = {1} {factor from, to}. */
static void brighten(const struct autopipe_instruction *each, double number, struct image *image) {
  float gain = 1, shift = 0;
  uint8_t table[1][256];
  if (each->whole[0])
    gain = (float)(each->real[0] + (each->real[1] - each->real[0]) * number);
  else
    shift = (float)((2 * number - 1) * each->real[0]) * 255.0f;
  for (int level = 0; level < 256; level++) table[0][level] = level_of((float)level * gain + shift);
  mapped(image, table, 1);
}

/* CONTRAST: real = {lower, upper}; one or three channels. */
static int contrast(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, double number,
                    struct image *image) {
  float factor = (float)(each->real[0] + (each->real[1] - each->real[0]) * number);
  size_t values = (size_t)(image->width * image->channels), channels = (size_t)image->channels;
  if (channels != 1 && channels != 3) return UNKNOWN;
  uint32_t *sums = (uint32_t *)(void *)room_of(&scratch->table, values * sizeof *sums);
  if (sums == NULL) return NO_MEMORY;
  uint64_t total[3] = {0, 0, 0};
  for (int64_t row = 0; row < image->height;) { /* as many rows as 32 bits hold */
    int64_t end = image->height - row > 1 << 24 ? row + (1 << 24) : image->height;
    memset(sums, 0, values * sizeof *sums);
    for (; row < end; row++) {
      const uint8_t *pixels = image->pixels + row * image->stride;
      for (size_t at = 0; at < values; at++) sums[at] += pixels[at];
    }
    for (size_t at = 0; at < values; at++) total[at % channels] += sums[at];
  }
  uint8_t tables[3][256];
  for (size_t channel = 0; channel < channels; channel++) {
    float mean = (float)((double)total[channel] / (double)(image->height * image->width));
    for (int level = 0; level < 256; level++) tables[channel][level] = level_of(((float)level - mean) * factor + mean);
  }
  mapped(image, tables, (int)channels);
  return FINE;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif
#define RUN 64 /* pixels at a time, so that the compiler takes several at once */

WIDE static void enlarged_run(uint8_t *pixels, int64_t count, float factor) {
  float levels[3][RUN], most[RUN], gain[RUN];
  for (int64_t at = 0; at < count; at++)
    for (int channel = 0; channel < 3; channel++) levels[channel][at] = (float)pixels[3 * at + channel];
  for (int64_t at = 0; at < count; at++) {
    float red = levels[0][at], green = levels[1][at], blue = levels[2][at];
    float high = red > green ? red : green, low = red < green ? red : green;
    high = high > blue ? high : blue;
    low = low < blue ? low : blue;
    float least = high / (high - low); /* the smallest level comes to be 0 at the most; of grey no number */
    gain[at] = least < factor ? least : factor;
    most[at] = high;
  }
  for (int channel = 0; channel < 3; channel++)
    for (int64_t at = 0; at < count; at++) {
      float below = (float)level_of((most[at] - levels[channel][at]) * gain[at]);
      levels[channel][at] = most[at] > below ? most[at] - below : 0;
    }
  for (int64_t at = 0; at < count; at++)
    for (int channel = 0; channel < 3; channel++) pixels[3 * at + channel] = (uint8_t)levels[channel][at];
}

/* SATURATION: real = {lower, upper}. Each level comes nearer to the largest of its pixel, or goes away from it. */
static void saturate(const struct autopipe_instruction *each, double number, struct image *image) {
  double factor = each->real[0] + (each->real[1] - each->real[0]) * number;
  uint8_t table[256];
  for (int level = 0; level < 256; level++) table[level] = level_of((float)level * (float)factor);
  for (int64_t row = 0; row < image->height; row++) {
    uint8_t *pixel = image->pixels + row * image->stride, *end = pixel + image->width * 3;
    for (int64_t left = 0; factor > 1 && left < image->width; left += RUN)
      enlarged_run(pixel + left * 3, image->width - left < RUN ? image->width - left : RUN, (float)factor);
    for (; factor <= 1 && pixel < end; pixel += 3) {
      uint8_t most = pixel[0] > pixel[1] ? pixel[0] : pixel[1];
      most = most > pixel[2] ? most : pixel[2];
      for (int channel = 0; channel < 3; channel++) pixel[channel] = (uint8_t)(most - table[most - pixel[channel]]);
    }
  }
}

/* `places`: of red, green and blue on the circle of hues, in sixths, after it was turned. */
WIDE static void turned_run(uint8_t *pixels, int64_t count, const float *places) {
  float levels[3][RUN], most[RUN], span[RUN], hue[RUN];
  for (int64_t at = 0; at < count; at++)
    for (int channel = 0; channel < 3; channel++) levels[channel][at] = (float)pixels[3 * at + channel];
  for (int64_t at = 0; at < count; at++) {
    float red = levels[0][at], green = levels[1][at], blue = levels[2][at];
    float high = red > green ? red : green, low = red < green ? red : green;
    high = high > blue ? high : blue;
    low = low < blue ? low : blue;
    float side = high == red ? green - blue : high == green ? blue - red : red - green;
    float sixths = high == red ? 0.0f : high == green ? 2.0f : 4.0f;
    most[at] = high;
    span[at] = high - low;
    hue[at] = side / (span[at] > 0 ? span[at] : 1.0f) + sixths;
  }
  for (int channel = 0; channel < 3; channel++)
    for (int64_t at = 0; at < count; at++) {
      float place = hue[at] + places[channel];
      place = place >= 6 ? place - 6 : place;
      float near = place < 4 - place ? place : 4 - place;
      near = near > 0 ? near : 0;
      near = near < 1 ? near : 1;
      levels[channel][at] = (float)level_of(most[at] - span[at] * near);
    }
  for (int64_t at = 0; at < count; at++)
    for (int channel = 0; channel < 3; channel++) pixels[3 * at + channel] = (uint8_t)levels[channel][at];
}

/* HUE: real = {delta}. The largest and the smallest level of a pixel stay; see `RandomHue` of ops/colors.py. */
static void turn_hues(const struct autopipe_instruction *each, double number, struct image *image) {
  double turn = 6 * ((2 * number - 1) * each->real[0]);
  float places[3];
  for (int channel = 0; channel < 3; channel++) {
    double place = 5 - 2 * channel + turn;
    places[channel] = (float)(place < 0 ? place + 6 : place >= 6 ? place - 6 : place);
  }
  for (int64_t row = 0; row < image->height; row++)
    for (int64_t left = 0; left < image->width; left += RUN)
      turned_run(image->pixels + row * image->stride + left * 3, image->width - left < RUN ? image->width - left : RUN, places);
}

/* GREY: real = {probability}; OpenCV's weights in 15 bits. */
static void grey(struct image *image) {
  for (int64_t row = 0; row < image->height; row++) {
    uint8_t *pixel = image->pixels + row * image->stride, *end = pixel + image->width * 3;
    for (; pixel < end; pixel += 3)
      pixel[0] = pixel[1] = pixel[2] =
          (uint8_t)((pixel[0] * 9798 + pixel[1] * 19235 + pixel[2] * 3735 + (1 << 14)) >> 15);
  }
}

/* ERASE: real = {area from, to, ratio from, to, probability}; whole = {levels of the channels}. */
static void erase(const struct autopipe_instruction *each, const double *draws, struct image *image) {
  struct autopipe_instruction drawn = {.code = CROP_RANDOM_SIZE, .draw = 1};
  struct box box;
  memcpy(drawn.real, each->real, sizeof drawn.real);
  if (box_of(&drawn, image->height, image->width, draws, &box) != FINE) return;
  for (int64_t row = box.top; row < box.top + box.height; row++)
    for (int64_t column = box.left; column < box.left + box.width; column++)
      for (int64_t channel = 0; channel < image->channels; channel++)
        image->pixels[row * image->stride + column * image->channels + channel] = (uint8_t)each->whole[channel];
}

/* -------------------- classes of a mask, tables of values */

/* CLASSES: table = the class of every 24-bit colour; whole = {the class of unknown ones, or -1: they are DAMAGED}. */
static int classes(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, struct image *image) {
  const uint8_t *table = each->table;
  if (image->channels != 3) return OTHER_SHAPE;
  uint8_t *out = next_pixels(scratch, (size_t)(image->height * image->width)), *to = out;
  if (out == NULL) return NO_MEMORY;
  for (int64_t row = 0; row < image->height; row++) {
    const uint8_t *pixel = image->pixels + row * image->stride, *end = pixel + image->width * 3;
    for (; pixel < end; pixel += 3, to++) {
      *to = table[(uint32_t)pixel[0] | (uint32_t)pixel[1] << 8 | (uint32_t)pixel[2] << 16];
      if (*to != 255) continue;
      if (each->whole[0] < 0) return DAMAGED;
      *to = (uint8_t)each->whole[0];
    }
  }
  *image = (struct image){out, image->width, image->height, image->width, 1, 1};
  return FINE;
}

/* The value of each level: `table` has 256 for each of `channels`, or for all. Writes to the row itself. */
#define VALUES(type)                                                                            \
  static void values_##type(const struct image *image, const type *table, int each, type *to) { \
    int channels = (int)image->channels;                                                        \
    for (int64_t row = 0; row < image->height; row++) {                                         \
      const uint8_t *from = image->pixels + row * image->stride;                                \
      if (each && channels == 3)                                                                \
        for (int64_t column = 0; column < image->width; column++, from += 3, to += 3) {         \
          to[0] = table[from[0]];                                                               \
          to[1] = table[256 + from[1]];                                                         \
          to[2] = table[512 + from[2]];                                                         \
        }                                                                                       \
      else                                                                                      \
        for (int64_t column = 0; column < image->width; column++)                               \
          for (int channel = 0; channel < channels; channel++)                                  \
            *to++ = table[(each ? 256 * channel : 0) + *from++];                                \
    }                                                                                           \
  }
VALUES(uint8_t)
VALUES(uint16_t)
VALUES(uint32_t)
VALUES(uint64_t)

/* TABLE: whole = {bytes of a value, whether each channel has a table}; it is the last instruction. */
static int values(const struct autopipe_instruction *each, uint8_t *out, struct image *image) {
  int apart = (int)each->whole[1];
  switch (each->whole[0]) {
    case 1: values_uint8_t(image, each->table, apart, out); break;
    case 2: values_uint16_t(image, each->table, apart, (uint16_t *)(void *)out); break;
    case 4: values_uint32_t(image, each->table, apart, (uint32_t *)(void *)out); break;
    case 8: values_uint64_t(image, each->table, apart, (uint64_t *)(void *)out); break;
    default: return UNKNOWN;
  }
  image->pixels = out;
  return FINE;
}

/* -------------------- dispatch */

int run_pixels(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, const double *draws,
               const struct autopipe_program *program, uint8_t *out, struct image *image) {
  int colours = image->channels == 3, verdict = FINE;
  draws += each->draw;
  if (each->code == PAD) return pad(scratch, each, image);
  if (each->code == CLASSES) return classes(scratch, each, image);
  if (each->code == TABLE) {
    int fits = image->height == program->height && image->width == program->width && image->channels == program->channels;
    return fits ? values(each, out, image) : OTHER_SHAPE;
  }
  if ((each->code == SATURATION || each->code == HUE || each->code == GREY) && !colours) return FINE;
  if ((each->code == GREY && draws[0] >= each->real[0]) || (each->code == ERASE && draws[0] >= each->real[4])) return FINE;
  verdict = own_pixels(scratch, image);
  if (verdict != FINE) return verdict;
  switch (each->code) {
    case BRIGHTNESS: brighten(each, draws[0], image); break;
    case CONTRAST: return contrast(scratch, each, draws[0], image);
    case SATURATION: saturate(each, draws[0], image); break;
    case HUE: turn_hues(each, draws[0], image); break;
    case GREY: grey(image); break;
    case ERASE: erase(each, draws, image); break;
    default: return UNKNOWN;
  }
  return FINE;
}
