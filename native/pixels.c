/* What is done to pixels where they lie: padding, colours, erasing, classes of a mask, and arithmetic on values.
 *
 * Reproduced to the bit: the ops of `autopipe/workload/ops` on 8-bit images, and some of them on floats. Each is IEEE
 * arithmetic in single precision in the order of the op, rounded half to even to a byte. */
#include "autopipe.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
/* What the function of each instruction gets; `draws` are its own random numbers. */
#define INSTRUCTION \
  struct autopipe_scratch *scratch, const struct autopipe_instruction *each, const double *draws, struct image *image

/* Have the pixels lie in memory of ours. */
static int own_pixels(struct autopipe_scratch *scratch, struct image *image) {
  if (image->is_own) return FINE;
  uint8_t *out = room_for(scratch, image->height, image->width, image->channels);
  if (out == NULL) return NO_MEMORY;
  copy_rows(image, out, (size_t)(image->width * image->channels));
  *image = (struct image){out, image->width * image->channels, image->height, image->width, image->channels, 1};
  return FINE;
}

/* Put the bytes of a row in the opposite order; what is restricted lets the compiler take several at once. */
WIDE static void put_bytes_mirrored(const uint8_t *restrict from, int64_t width, uint8_t *restrict to) {
  for (int64_t at = 0; at < width; at++) to[width - 1 - at] = from[at];
}

/* Put pixels of three bytes in the opposite order: four bytes at a time, of which the next pixel covers the last. */
static void put_colours_mirrored(const uint8_t *from, int64_t width, uint8_t *to) {
  memcpy(to, from + 3 * (width - 1), 3);
  for (int64_t column = 1; column < width - 1; column++) memcpy(to + 3 * column, from + 3 * (width - 1 - column), 4);
  memcpy(to + 3 * (width - 1), from, 3);
}

#define MIRRORED(size) \
  for (int64_t column = 0; column < width; column++) memcpy(to + size * column, from + size * (width - 1 - column), size);

/* Put the pixels of a row in the opposite order. */
void put_mirrored(const uint8_t *from, int64_t width, int64_t channels, uint8_t *to) {
  if (channels == 1) {
    put_bytes_mirrored(from, width, to);
  } else if (channels == 3 && width > 0) {
    put_colours_mirrored(from, width, to);
  } else if (channels == 2) {
    MIRRORED(2)
  } else if (channels == 4) {
    MIRRORED(4)
  } else if (channels == 6) {
    MIRRORED(6)
  } else if (channels == 12) {
    MIRRORED(12)
  } else {
    size_t size = (size_t)channels;
    for (int64_t column = width - 1; column >= 0; column--, from += channels) memcpy(to + column * channels, from, size);
  }
}

/* Repeat a value of `size` bytes, at most eight. */
static void put_values(uint8_t *to, size_t bytes, const void *value, size_t size) {
  if (size == 1)
    memset(to, *(const uint8_t *)value, bytes);
  else
    for (size_t at = 0; at + size <= bytes; at += size) memcpy(to + at, value, size);
}

/* PAD: whole = {height, width, the bytes of a value, how many these are}. */
static int pad(INSTRUCTION) {
  int64_t height = each->whole[0] > image->height ? each->whole[0] : image->height;
  int64_t width = each->whole[1] > image->width ? each->whole[1] : image->width;
  if (height == image->height && width == image->width) return FINE;
  size_t count = (size_t)(width * image->channels);
  uint8_t *out = room_for(scratch, height, width, image->channels);
  if (out == NULL) return NO_MEMORY;
  int64_t top = (height - image->height) / 2, left = (width - image->width) / 2;
  put_values(out, count * (size_t)height, &each->whole[2], (size_t)each->whole[3]);
  copy_rows(image, out + (size_t)top * count + (size_t)(left * image->channels), count);
  *image = (struct image){out, (ptrdiff_t)count, height, width, image->channels, 1};
  return FINE;
}

/* -------------------- colours */

static double between(const double *limits, double number) { return limits[0] + (limits[1] - limits[0]) * number; }

/* Look values up in a table for each of three; of any other number of channels, all tables are alike. */
static void mapped(struct image *image, uint8_t (*tables)[256]) {
  size_t values = (size_t)(image->width * image->channels), at;
  for (int64_t row = 0; row < image->height; row++) {
    uint8_t *pixels = image->pixels + row * image->stride;
    for (at = 0; at + 2 < values; at += 3) {
      pixels[at] = tables[0][pixels[at]];
      pixels[at + 1] = tables[1][pixels[at + 1]];
      pixels[at + 2] = tables[2][pixels[at + 2]];
    }
    for (; at < values; at++) pixels[at] = tables[0][pixels[at]];
  }
}

/* BRIGHTNESS: real = {delta}, or, if whole[0], {factor from, to}; whole[1]: whether pixels are floats and not bytes. */
static int brighten(INSTRUCTION) {
  float gain = each->whole[0] ? (float)between(each->real, draws[0]) : 1;
  float shift = each->whole[0] ? 0 : (float)((2 * draws[0] - 1) * each->real[0]);
  uint8_t tables[3][256];
  for (int64_t row = 0; each->whole[1] && row < image->height; row++) {
    float *values = (float *)(void *)(image->pixels + row * image->stride);
    for (int64_t at = 0; at < image->width * image->channels / 4; at++) values[at] = values[at] * gain + shift;
  }
  if (each->whole[1]) return FINE;
  for (int level = 0; level < 256; level++)
    tables[0][level] = tables[1][level] = tables[2][level] = level_of((float)level * gain + shift * 255.0f);
  mapped(image, tables);
  return FINE;
}

/* CONTRAST: real = {lower, upper}; one or three channels. */
static int contrast(INSTRUCTION) {
  float factor = (float)between(each->real, draws[0]);
  size_t values = (size_t)(image->width * image->channels), channels = (size_t)image->channels;
  if ((channels != 1 && channels != 3) || image->height > 1 << 24) return UNKNOWN; /* so that 32 bits hold sums */
  uint32_t *sums = (uint32_t *)(void *)room_of(&scratch->table, values * sizeof *sums);
  if (sums == NULL) return NO_MEMORY;
  uint64_t total[3] = {0, 0, 0};
  memset(sums, 0, values * sizeof *sums);
  for (int64_t row = 0; row < image->height; row++) {
    const uint8_t *pixels = image->pixels + row * image->stride;
    for (size_t at = 0; at < values; at++) sums[at] += pixels[at];
  }
  for (size_t at = 0; at < values; at++) total[at % channels] += sums[at];
  uint8_t tables[3][256];
  for (size_t channel = 0; channel < 3; channel++) {
    float mean = (float)((double)total[channel % channels] / (double)(image->height * image->width));
    for (int level = 0; level < 256; level++) tables[channel][level] = level_of(((float)level - mean) * factor + mean);
  }
  mapped(image, tables);
  return FINE;
}

#define RUN 64 /* pixels at a time, so that the compiler takes several at once */

struct run {
  float levels[3][RUN], most[RUN], least[RUN]; /* the largest and the smallest level of each pixel */
};

__attribute__((always_inline)) static inline void take_run(struct run *run, const uint8_t *pixels, int64_t count) {
  for (int64_t at = 0; at < count; at++)
    for (int channel = 0; channel < 3; channel++) run->levels[channel][at] = (float)pixels[3 * at + channel];
  for (int64_t at = 0; at < count; at++) {
    float red = run->levels[0][at], green = run->levels[1][at], blue = run->levels[2][at];
    float high = red > green ? red : green, low = red < green ? red : green;
    run->most[at] = high > blue ? high : blue;
    run->least[at] = low < blue ? low : blue;
  }
}

__attribute__((always_inline)) static inline void put_run(const struct run *run, uint8_t *pixels, int64_t count) {
  for (int64_t at = 0; at < count; at++)
    for (int channel = 0; channel < 3; channel++) pixels[3 * at + channel] = (uint8_t)run->levels[channel][at];
}

WIDE static void saturated_run(uint8_t *pixels, int64_t count, const float *factor) {
  struct run run;
  float gain[RUN];
  take_run(&run, pixels, count);
  for (int64_t at = 0; at < count; at++) {
    float most = run.most[at] / (run.most[at] - run.least[at]); /* the smallest level comes to be 0; of grey no number */
    gain[at] = most < *factor ? most : *factor;
  }
  for (int channel = 0; channel < 3; channel++)
    for (int64_t at = 0; at < count; at++) {
      float below = (float)level_of((run.most[at] - run.levels[channel][at]) * gain[at]);
      run.levels[channel][at] = run.most[at] > below ? run.most[at] - below : 0;
    }
  put_run(&run, pixels, count);
}

static void change_runs(void (*change)(uint8_t *, int64_t, const float *), const float *numbers, struct image *image) {
  for (int64_t row = 0; row < image->height; row++)
    for (int64_t at = 0; at < image->width; at += RUN)
      change(image->pixels + row * image->stride + at * 3, image->width - at < RUN ? image->width - at : RUN, numbers);
}

/* SATURATION: real = {lower, upper}. Each level comes nearer to the largest of its pixel, or goes away from it. */
static int saturate(INSTRUCTION) {
  float factor = (float)between(each->real, draws[0]);
  change_runs(saturated_run, &factor, image);
  return FINE;
}

/* `places`: of red, green and blue on the circle of hues, in sixths, after it was turned. */
WIDE static void turned_run(uint8_t *pixels, int64_t count, const float *places) {
  struct run run;
  float span[RUN], hue[RUN];
  take_run(&run, pixels, count);
  for (int64_t at = 0; at < count; at++) {
    float red = run.levels[0][at], green = run.levels[1][at], blue = run.levels[2][at], high = run.most[at];
    float side = high == red ? green - blue : high == green ? blue - red : red - green;
    float sixths = high == red ? 0.0f : high == green ? 2.0f : 4.0f;
    span[at] = high - run.least[at];
    hue[at] = side / (span[at] > 0 ? span[at] : 1.0f) + sixths;
  }
  for (int channel = 0; channel < 3; channel++)
    for (int64_t at = 0; at < count; at++) {
      float place = hue[at] + places[channel];
      place = place >= 6 ? place - 6 : place;
      float near = place < 4 - place ? place : 4 - place;
      near = near > 0 ? near : 0;
      near = near < 1 ? near : 1;
      run.levels[channel][at] = (float)level_of(run.most[at] - span[at] * near);
    }
  put_run(&run, pixels, count);
}

/* HUE: real = {delta}. The largest and the smallest level of a pixel stay; see `RandomHue` of ops/colors.py. */
static int turn_hues(INSTRUCTION) {
  double turn = 6 * ((2 * draws[0] - 1) * each->real[0]);
  float places[3];
  for (int channel = 0; channel < 3; channel++) {
    double place = 5 - 2 * channel + turn;
    places[channel] = (float)(place < 0 ? place + 6 : place >= 6 ? place - 6 : place);
  }
  change_runs(turned_run, places, image);
  return FINE;
}

/* GREY: by OpenCV's weights in 15 bits. */
static int grey(INSTRUCTION) {
  for (int64_t row = 0; row < image->height; row++) {
    uint8_t *pixel = image->pixels + row * image->stride, *end = pixel + image->width * 3;
    for (; pixel < end; pixel += 3)
      pixel[0] = pixel[1] = pixel[2] =
          (uint8_t)((pixel[0] * 9798 + pixel[1] * 19235 + pixel[2] * 3735 + (1 << 14)) >> 15);
  }
  return FINE;
}

/* ERASE: real = {area from, to, ratio from, to}; whole = {the bytes of the value of each channel, at most four; in the
 * last place how many bytes a value has}. */
static int erase(INSTRUCTION) {
  struct autopipe_instruction drawn = {.code = CROP_RANDOM_SIZE, .draw = 1};
  struct box box;
  uint8_t paint[32];
  int64_t size = each->whole[5], channels = image->channels / size;
  memcpy(drawn.real, each->real, sizeof drawn.real);
  if (channels > 4 || box_of(&drawn, image->height, image->width, draws, &box) != FINE) return UNKNOWN;
  for (int64_t channel = 0; channel < channels; channel++)
    memcpy(paint + channel * size, &each->whole[channel], (size_t)size);
  for (int64_t row = box.top; row < box.top + box.height; row++)
    for (int64_t column = box.left; column < box.left + box.width; column++)
      memcpy(image->pixels + row * image->stride + column * image->channels, paint, (size_t)image->channels);
  return FINE;
}

/* -------------------- classes of a mask, values */

/* CLASSES: table = the class of every 24-bit colour; whole = {the class of unknown ones, or -1: they are DAMAGED}. */
static int classes(INSTRUCTION) {
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

/* `of_row`: whether factor and others are an array, for each value, or one for all. */
#define LINE(type, of_row)                                                                             \
  for (size_t at = 0; at < count; at++) {                                                              \
    size_t which = of_row ? at : 0;                                                                    \
    to[at] = ((float)((const type *)from)[at] + line[0][which]) * line[1][which] + line[2][which]; \
  }
WIDE static void linear_run(const void *from, int64_t size, const float *const line[3], int of_row, size_t count, float *to) {
  if (size == 1 && of_row) {
    LINE(uint8_t, 1)
  } else if (size == 1) {
    LINE(uint8_t, 0)
  } else if (size == 2 && of_row) {
    LINE(uint16_t, 1)
  } else if (size == 2) {
    LINE(uint16_t, 0)
  } else if (of_row) {
    LINE(float, 1)
  } else {
    LINE(float, 0)
  }
}

/* LINEAR: table = what is added to each value first, the factor, and what is added behind, all floats; whole = {bytes of
 * a value: 1, 2, or 4 of floats; how many of these floats there are of each: one, or as many as values in a row}. */
static int linear(INSTRUCTION) {
  int64_t size = each->whole[0], count = each->whole[1], channels = image->channels / size * 4;
  int64_t values = image->width * image->channels / size, rows = image->height;
  if (image->channels % size != 0 || (count > 1 && values != count)) return OTHER_SHAPE;
  uint8_t *out = room_for(scratch, image->height, image->width, channels);
  if (out == NULL) return NO_MEMORY;
  const float *table = each->table, *line[3] = {table, table + count, table + 2 * count};
  float *to = (float *)(void *)out;
  if (count == 1 && image->stride == values * size) values *= rows, rows = 1; /* all rows as one */
  for (int64_t row = 0; row < rows; row++, to += values)
    linear_run(image->pixels + row * image->stride, size, line, count > 1, (size_t)values, to);
  *image = (struct image){out, image->width * channels, image->height, image->width, channels, 1};
  return FINE;
}

/* -------------------- the table: a new instruction is its function and a line here, which an op names */

enum { /* flags */
  STAYS = 1, /* changes pixels where they lie, so that what comes before it may write to the row itself */
  COLOURS = 2, /* leaves images alone that have no three bytes a pixel */
  CHANCE = 4 /* does nothing, unless its first random number is below real[5] */
};

static const struct {
  const char *name;
  int (*run)(INSTRUCTION);
  int flags;
} kinds[] = {
    {"PAD", pad, 0},
    {"CLASSES", classes, 0},
    {"LINEAR", linear, 0},
    {"BRIGHTNESS", brighten, STAYS},
    {"CONTRAST", contrast, STAYS},
    {"ERASE", erase, STAYS | CHANCE},
    {"SATURATION", saturate, STAYS | COLOURS},
    {"HUE", turn_hues, STAYS | COLOURS},
    {"GREY", grey, STAYS | COLOURS | CHANCE},
};

static int kind_of(int32_t code) {
  return code >= PIXELS && code - PIXELS < (int32_t)(sizeof kinds / sizeof *kinds) ? code - PIXELS : -1;
}

const char *name_of_pixels(int32_t code) { return kind_of(code) < 0 ? NULL : kinds[kind_of(code)].name; }

int stays(const struct autopipe_instruction *each) {
  return kind_of(each->code) >= 0 && (kinds[kind_of(each->code)].flags & STAYS);
}

int run_pixels(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, const double *draws,
               struct image *image) {
  int kind = kind_of(each->code), flags = kind < 0 ? 0 : kinds[kind].flags;
  draws += each->draw;
  if (kind < 0) return UNKNOWN;
  if (((flags & COLOURS) && image->channels != 3) || ((flags & CHANCE) && draws[0] >= each->real[5])) return FINE;
  int verdict = flags & STAYS ? own_pixels(scratch, image) : FINE;
  return verdict == FINE ? kinds[kind].run(scratch, each, draws, image) : verdict;
}
