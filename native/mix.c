/* MixUp and CutMix: the samples of a batch, each combined with another one, where they lie.
 *
 * Reproduced to the bit: `autopipe/workload/ops/mix.py`, and of NumPy the numbers of `Philox` and how `beta` draws from
 * them up to 1, by Johnk's algorithm. Larger parameters and values other than bytes, words and floats are Python's. */
#include "autopipe.h"

#include <math.h>
#include <string.h>

#define BLOCK 4096 /* bytes of each sample at a time, so that those of a batch stay in the processor's cache */

struct mixing { /* of a sample: what is drawn for it */
  int is_mixed;
  float kept, other; /* weights of values that are added */
  struct box box;    /* of pixels that are put in */
};

/* Philox 4x64 with ten rounds (Salmon et al., 2011). */
static void philox(uint64_t counter, uint64_t key, uint64_t other_key, uint64_t to[4]) {
  uint64_t from[4] = {counter, 0, 0, 0};
  for (int round = 0; round < 10; round++, key += 0x9E3779B97F4A7C15u, other_key += 0xBB67AE8584CAA73Bu) {
    unsigned __int128 first = (unsigned __int128)0xD2E7470EE14C6C93u * from[0];
    unsigned __int128 second = (unsigned __int128)0xCA5A826395121157u * from[2];
    to[0] = (uint64_t)(second >> 64) ^ from[1] ^ key;
    to[1] = (uint64_t)second;
    to[2] = (uint64_t)(first >> 64) ^ from[3] ^ other_key;
    to[3] = (uint64_t)first;
    memcpy(from, to, sizeof from);
  }
}

/* Draw from a beta distribution whose parameters are both `alpha`, above 0.05 so that not both powers come to be 0. */
static double beta(const double *numbers, double alpha) {
  uint64_t some[4];
  for (uint64_t at = 0;; at += 2) {
    if (at % 4 == 0) philox(at / 4 + 1, (uint64_t)(numbers[0] * 0x1p53), (uint64_t)(numbers[1] * 0x1p53), some);
    double one = (double)(some[at % 4] >> 11) * 0x1p-53, two = (double)(some[at % 4 + 1] >> 11) * 0x1p-53;
    double share = pow(one, 1 / alpha), rest = pow(two, 1 / alpha);
    if (share + rest <= 1 && one + two > 0) return share / (share + rest);
  }
}

static struct mixing drawn(const double *draws, double alpha, double probability, int64_t height, int64_t width) {
  struct mixing mixing = {.is_mixed = draws[1] < probability};
  if (!mixing.is_mixed) return mixing;
  double share = beta(draws + 2, alpha), side = pow(1 - share, 0.5);
  if (height > 0) {
    struct box *box = &mixing.box;
    box->height = (int64_t)((double)height * side + 0.5);
    box->width = (int64_t)((double)width * side + 0.5);
    box->top = (int64_t)(draws[4] * (double)(height - box->height + 1));
    box->left = (int64_t)(draws[5] * (double)(width - box->width + 1));
    share = 1 - (double)(box->height * box->width) / (double)(height * width);
  }
  mixing.kept = (float)share, mixing.other = (float)(1 - share);
  return mixing;
}

WIDE static void add_bytes(const uint8_t *one, const uint8_t *two, float kept, float other, size_t count, uint8_t *to) {
  for (size_t at = 0; at < count; at++) to[at] = level_of((float)one[at] * kept + (float)two[at] * other);
}

WIDE static void add_words(const uint16_t *one, const uint16_t *two, float kept, float other, size_t count, uint16_t *to) {
  for (size_t at = 0; at < count; at++) {
    float value = (float)one[at] * kept + (float)two[at] * other;
    to[at] = (uint16_t)(int)(((value > 65535 ? 65535 : value) + 12582912.0f) - 12582912.0f); /* as `level_of` */
  }
}

WIDE static void add_floats(const float *one, const float *two, float kept, float other, size_t count, float *to) {
  for (size_t at = 0; at < count; at++) to[at] = one[at] * kept + two[at] * other;
}

static void put(const struct autopipe_part *part, const struct mixing *mixing, size_t at, size_t bytes, const uint8_t *mine,
                const uint8_t *theirs, uint8_t *to) {
  const struct box *box = &mixing->box;
  if (part->value_bytes == 1) {
    add_bytes(mine, theirs, mixing->kept, mixing->other, bytes, to);
  } else if (part->value_bytes == 2) {
    add_words((const void *)mine, (const void *)theirs, mixing->kept, mixing->other, bytes / 2, (void *)to);
  } else if (part->value_bytes == 4) {
    add_floats((const void *)mine, (const void *)theirs, mixing->kept, mixing->other, bytes / 4, (void *)to);
  } else if ((int64_t)(at / bytes) >= box->top && (int64_t)(at / bytes) < box->top + box->height) { /* a line */
    size_t left = (size_t)(box->left * part->channels);
    memcpy(to + left, theirs + left, (size_t)(box->width * part->channels));
  }
}

/* Mix the parts of a batch: row r with row order[r], by the six random numbers of each. A part whose values have 1, 2 or
 * 4 bytes is added, as bytes, words or floats; of one that says 0 a rectangle is put in, the same in all such parts, which have
 * this height and width. For MixUp, these are 0. Return a verdict; if it is not FINE, nothing was changed. */
AUTOPIPE_API int autopipe_mix(const struct autopipe_part *parts, int64_t count, int64_t rows, const double *draws,
                              const int64_t *order, double alpha, double probability, int64_t height, int64_t width,
                              struct autopipe_scratch *scratch) {
  size_t block = BLOCK;
  for (const struct autopipe_part *part = parts; part < parts + count; part++) {
    size_t line = part->value_bytes == 0 ? (size_t)(part->width * part->channels) : 0;
    if (line > 0 && (part->height != height || part->width != width)) return OTHER_SHAPE;
    block = line > block ? line : block;
  }
  struct mixing *mixings = (void *)room_of(&scratch->table, (size_t)rows * sizeof *mixings);
  uint8_t *held = room_of(&scratch->file, (size_t)rows * block);
  if (mixings == NULL || held == NULL) return NO_MEMORY;
  for (int64_t row = 0; row < rows; row++) {
    if (order[row] < 0 || order[row] >= rows) return OTHER_SHAPE;
    mixings[row] = drawn(draws + 6 * row, alpha, probability, height, width);
  }
  for (const struct autopipe_part *part = parts; part < parts + count; part++) {
    size_t line = (size_t)(part->width * part->channels), all = (size_t)part->height * line;
    size_t step = part->value_bytes == 0 ? line : BLOCK;
    for (size_t at = 0; at < all; at += step) {
      size_t bytes = all - at < step ? all - at : step;
      for (int64_t row = 0; row < rows; row++) memcpy(held + (size_t)row * block, part->values + (size_t)row * all + at, bytes);
      for (int64_t row = 0; row < rows; row++)
        if (mixings[row].is_mixed)
          put(part, &mixings[row], at, bytes, held + (size_t)row * block, held + (size_t)order[row] * block,
              part->values + (size_t)row * all + at);
    }
  }
  drop_large(&scratch->file);
  return FINE;
}
