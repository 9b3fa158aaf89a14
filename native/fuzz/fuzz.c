/* Hostile files and records, and arrays, through every instruction that reads them, under AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 * With clang, `-fsanitize=fuzzer,address,undefined` makes a libFuzzer target of it. With -DMUTATE it is a program of its
 * own, `fuzz ROUNDS FILE...`, that changes, cuts and joins the given files at random, always in the same way. */
#include "../autopipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 24

struct autopipe_scratch *autopipe_scratch_new(int simd);
void autopipe_scratch_free(struct autopipe_scratch *scratch);
int64_t autopipe_fill(const struct autopipe_program *program, const struct autopipe_span *spans, int64_t rows,
                      const double *draws, int64_t drawn, uint8_t *out, int64_t row_bytes,
                      struct autopipe_scratch *scratch, uint8_t *verdicts);
void autopipe_features(const struct autopipe_span *records, int64_t rows, const struct autopipe_feature *features,
                       int64_t count, struct autopipe_span *found, struct autopipe_scratch *scratch);

static const struct autopipe_feature features[] = {{"image/encoded", 13, 0}, {"image/class/label", 17, 1}};

#define DECODED(channels, least) {DECODE, 0, {channels, 1 << 22, least, least, 1}, {0}, NULL}
static const struct autopipe_instruction cropped[] = {
    DECODED(3, 0), {CROP_RANDOM_SIZE, 0, {0}, {0.08, 1, 0.75, 1.3333}, NULL}, {RESIZE, 0, {SIDE, SIDE, BILINEAR}, {0}, NULL},
    {FLIP, 4, {1, 1}, {0}, NULL}};
static const struct autopipe_instruction reduced[] = {DECODED(3, SIDE), {RESIZE, 0, {SIDE, SIDE, AREA}, {0}, NULL}};
static const struct autopipe_instruction grey[] = {DECODED(1, 0), {CROP, 0, {SIDE, SIDE, 1}, {0}, NULL}};
static const struct autopipe_instruction mask[] = {DECODED(0, 0), {RESIZE, 0, {SIDE, SIDE, NEAREST}, {0}, NULL}};
static const struct autopipe_instruction coloured[] = { /* on images of any size */
    DECODED(3, 0), {BRIGHTNESS, 0, {0}, {0.5}, NULL}, {CONTRAST, 1, {0}, {0.2, 3}, NULL}, {SATURATION, 2, {0}, {0, 4}, NULL},
    {HUE, 3, {0}, {0.5}, NULL}, {ERASE, 0, {1, 2, 3, 0, 0, 1}, {0.02, 0.4, 0.3, 3.3, 1}, NULL}, {GREY, 5, {0}, {0.5}, NULL},
    {FIT, 0, {SIDE, SIDE, BILINEAR}, {0}, NULL}, {PAD, 0, {SIDE, SIDE, 7, 1}, {0}, NULL}};
#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))
static const struct autopipe_program programs[] = {
    {cropped, COUNT(cropped), SIDE, SIDE, 3}, {reduced, COUNT(reduced), SIDE, SIDE, 3},
    {coloured, COUNT(coloured), SIDE, SIDE, 3}, {grey, COUNT(grey), SIDE, SIDE, 1}, {mask, COUNT(mask), SIDE, SIDE, 1},
    {mask, COUNT(mask), SIDE, SIDE, 3}};

/* Arrays of bytes and of floats, of one pixel upwards. */
#define EDGE 6
static const float line[3 * EDGE * 3] = {-1, 2, -3};
static const struct autopipe_instruction colours[] = {
    {PAD, 0, {EDGE + 2, EDGE + 1, 7, 1}, {0}, NULL}, {CROP, 0, {EDGE, EDGE, 1}, {0}, NULL}, {FLIP, 2, {1, 1}, {0}, NULL},
    {BRIGHTNESS, 0, {0}, {0.5}, NULL}, {CONTRAST, 1, {0}, {0.5, 2}, NULL}, {SATURATION, 2, {0}, {0.5, 2}, NULL},
    {HUE, 3, {0}, {0.5}, NULL}, {GREY, 4, {0}, {0.5}, NULL}, {ERASE, 0, {1, 2, 3, 0, 0, 1}, {0.02, 0.9, 0.3, 3.3, 0.9}, NULL},
    {LINEAR, 0, {1, 3 * EDGE}, {0}, line}};
static const struct autopipe_instruction floats[] = {
    {PAD, 0, {EDGE, EDGE + 2, 7, 4}, {0}, NULL}, {CROP, 0, {EDGE, EDGE, 1}, {0}, NULL}, {FLIP, 2, {1, 1}, {0}, NULL},
    {BRIGHTNESS, 0, {1, 1}, {0.5, 2}, NULL}, {ERASE, 0, {1, 2, 3, 0, 0, 4}, {0.02, 0.9, 0.3, 3.3, 0.9}, NULL},
    {LINEAR, 0, {4, 1}, {0}, line}};
static const struct autopipe_program of_arrays[] = {
    {colours, COUNT(colours), EDGE, EDGE, 12}, {floats, COUNT(floats), EDGE, EDGE, 12},
    {colours, 3, EDGE, EDGE, 3}, {floats, 3, EDGE, EDGE, 12}, {floats, 3, EDGE, EDGE, 8}, {colours, 3, EDGE, EDGE, 1}};
static const int64_t shapes[][2] = {{1, 1}, {1, 9}, {9, 1}, {5, 7}, {8, 8}};

/* Fill arrays of all shapes with some bytes, again and again, and run the programs of arrays on them. */
static void run_on_arrays(const uint8_t *data, size_t size, const double *draws, struct autopipe_scratch *scratch) {
  for (int64_t shape = 0; size > 0 && shape < COUNT(shapes); shape++)
    for (int64_t each = 0; each < COUNT(of_arrays); each++) {
      int64_t height = shapes[shape][0], width = shapes[shape][1];
      int64_t channels = each == 0 ? 3 : of_arrays[each].channels;
      size_t count = (size_t)(height * width * channels);
      uint8_t *pixels = malloc(count), verdict;
      float out[EDGE * EDGE * 3];
      for (size_t at = 0; pixels != NULL && at < count; at++) pixels[at] = data[at % size];
      const struct autopipe_span span = {.data = pixels, .height = height, .width = width, .channels = channels};
      autopipe_fill(&of_arrays[each], &span, 1, draws, 0, (uint8_t *)out, sizeof out, scratch, &verdict);
      if (pixels != NULL && verdict != FINE) abort();
      free(pixels);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct autopipe_scratch *scratches[3]; /* plain C, SSSE3, what the processor has */
  static const double draws[2][6] = {{0.3, 0.7, 0.1, 0.9, 0.2, 0.8}, {0.999, 0.001, 0.999, 0.999, 0.6, 0.4}};
  uint8_t *bytes = malloc(size ? size : 1); /* of this very size, so that a read beyond it is seen */
  if (bytes == NULL) return 0;
  if (size) memcpy(bytes, data, size);
  struct autopipe_span spans[3] = {{.data = bytes, .size = (int64_t)size}}; /* and the features of a record in it */
  static uint8_t out[3][COUNT(programs)][2][SIDE * SIDE * 3], verdicts[3][COUNT(programs)][2];
  for (int simd = 0; simd < 3; simd++) {
    if (scratches[simd] == NULL) scratches[simd] = autopipe_scratch_new(simd);
    run_on_arrays(bytes, size, draws[size % 2], scratches[simd]);
    autopipe_features(spans, 1, features, 2, spans + 1, scratches[simd]);
    for (int64_t each = 0; each < COUNT(programs); each++)
      autopipe_fill(&programs[each], spans, 2, draws[size % 2], 0, out[simd][each][0], sizeof *out[simd][each],
                    scratches[simd], verdicts[simd][each]);
  }
  for (int64_t at = 0; at < 4 * COUNT(programs); at++) {
    int64_t each = at / 4, row = at / 2 % 2, simd = at % 2 + 1;
    size_t row_bytes = (size_t)(SIDE * SIDE * programs[each].channels);
    int verdict = verdicts[0][each][row];
    if (verdicts[simd][each][row] != verdict || (verdict == 0 && memcmp(out[simd][each][row], out[0][each][row], row_bytes))) {
      fprintf(stderr, "program %d: vector instructions make something else than plain C\n", (int)each);
      abort();
    }
  }
  free(bytes);
  return 0;
}

#ifdef MUTATE

#define MOST ((size_t)1 << 20)

static uint64_t state = 88172645463325252u; /* xorshift64 (Marsaglia, 2003) */

static uint64_t below(uint64_t limit) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return limit ? state % limit : 0;
}

static size_t mutated(uint8_t *bytes, size_t size) {
  static const uint8_t edges[] = {0, 1, 0x7F, 0x80, 0xFF, 0xD8, 0xDA, 0xE1, 0xC4};
  for (uint64_t changes = 1 + below(6); changes > 0 && size > 4; changes--) {
    size_t near = below(2) ? size : size < 400 ? size : 400; /* headers more often */
    size_t at = below(near);
    switch (below(5)) {
      case 0: bytes[at] ^= (uint8_t)(1u << below(8)); break;
      case 1: bytes[at] = edges[below(sizeof edges)]; break;
      case 2: bytes[at] = (uint8_t)below(256); break;
      case 3: size = below(8) ? size : at; break;
      default: {
        size_t count = below(size - at < 64 ? size - at : 64), from = below(size - count);
        memmove(bytes + at, bytes + from, count);
      }
    }
  }
  return size;
}

int main(int count, char **arguments) {
  static uint8_t whole[MOST], bytes[MOST];
  long rounds = count > 2 ? strtol(arguments[1], NULL, 10) : 0;
  if (rounds <= 0) return fprintf(stderr, "usage: fuzz ROUNDS FILE...\n"), 2;
  for (long round = 0; round < rounds; round++) {
    const char *path = arguments[2 + round % (count - 2)];
    FILE *file = fopen(path, "rb");
    if (file == NULL) return perror(path), 2;
    size_t size = fread(whole, 1, MOST, file);
    fclose(file);
    memcpy(bytes, whole, size);
    LLVMFuzzerTestOneInput(bytes, round < count - 2 ? size : mutated(bytes, size));
  }
  printf("%ld mutated files: nothing to report\n", rounds);
  return 0;
}

#endif
