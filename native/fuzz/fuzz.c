/* Hostile files and records, and arrays, through every instruction that reads them, and images of any shape through programs of any
 * instructions, under AddressSanitizer and UndefinedBehaviorSanitizer. Plain C and vector instructions have to agree.
 *
 * With clang, `-fsanitize=fuzzer,address,undefined` makes a libFuzzer target of it. With -DMUTATE it is a program of its
 * own, `fuzz ROUNDS FILE...`, that changes, cuts and joins the given files at random, always in the same way, and runs
 * each instruction on each of many shapes. It prints a digest of what was made of whole files and of the shapes, which is
 * the same on every kind of processor. Of damaged files it is not: coefficients that no image has overflow differently in
 * libjpeg's vector instructions. */
#define _GNU_SOURCE
#include "../autopipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIDE 24

struct autopipe_scratch *autopipe_scratch_new(int simd);
void autopipe_scratch_free(struct autopipe_scratch *scratch);
const char *autopipe_name(int32_t code);
int64_t autopipe_fill(const struct autopipe_program *program, const struct autopipe_span *spans, int64_t rows,
                      const double *draws, int64_t drawn, uint8_t *out, int64_t row_bytes,
                      struct autopipe_scratch *scratch, uint8_t *verdicts);
void autopipe_features(const struct autopipe_span *records, int64_t rows, const struct autopipe_feature *features,
                       int64_t count, struct autopipe_span *found, struct autopipe_scratch *scratch);

int autopipe_mix(const struct autopipe_part *parts, int64_t count, int64_t rows, const double *draws, const int64_t *order,
                 double alpha, double probability, int64_t height, int64_t width, struct autopipe_scratch *scratch);

static const struct autopipe_feature features[] = {{"image/encoded", 13, 0}, {"image/class/label", 17, 1}};

/* In this file instructions of the table in pixels.c have codes of their own, from which `prepare` makes the true ones. */
enum { OURS = 64, PAD = OURS, CLASSES, LINEAR, BRIGHTNESS, CONTRAST, SATURATION, HUE, GREY, ERASE };
static const char *const names[] = {"PAD", "CLASSES", "LINEAR", "BRIGHTNESS", "CONTRAST", "SATURATION", "HUE", "GREY", "ERASE"};

#define DECODED(channels, least) {DECODE, 0, {channels, 1 << 22, least, least, 1, (channels) != 0}, {0}, NULL}
static struct autopipe_instruction cropped[] = {
    DECODED(3, 0), {CROP_RANDOM_SIZE, 0, {0}, {0.08, 1, 0.75, 1.3333}, NULL}, {RESIZE, 0, {SIDE, SIDE, BILINEAR}, {0}, NULL},
    {FLIP, 4, {1, 1}, {0}, NULL}};
static struct autopipe_instruction reduced[] = {DECODED(3, SIDE), {RESIZE, 0, {SIDE, SIDE, AREA}, {0}, NULL}};
static struct autopipe_instruction grey[] = {DECODED(1, 0), {CROP, 0, {SIDE, SIDE, 1}, {0}, NULL}};
static struct autopipe_instruction mask[] = {DECODED(0, 0), {RESIZE, 0, {SIDE, SIDE, NEAREST}, {0}, NULL}};
static const float line[3 * 3 * 6] = {-1, 2, -3};
static struct autopipe_instruction deep[] = { /* of 16 bits */
    {DECODE, 0, {3, 1 << 22, 0, 0, 1, 2}, {0}, NULL}, {CROP_RANDOM_SIZE, 0, {0}, {0.08, 1, 0.75, 1.3333}, NULL},
    {RESIZE, 0, {SIDE, SIDE, AREA, 2}, {0}, NULL}, {FLIP, 4, {1, 1}, {0}, NULL}, {LINEAR, 0, {2, 1}, {0}, line}};
static struct autopipe_instruction deep_grey[] = {
    {DECODE, 0, {1, 1 << 22, 0, 0, 1, 2}, {0}, NULL}, {RESIZE, 0, {SIDE, SIDE, BILINEAR, 2}, {0}, NULL},
    {FLIP, 4, {1, 1}, {0}, NULL}};
static struct autopipe_instruction coloured[] = { /* on images of any size */
    DECODED(3, 0), {BRIGHTNESS, 0, {0}, {0.5}, NULL}, {CONTRAST, 1, {0}, {0.2, 3}, NULL}, {SATURATION, 2, {0}, {0, 4}, NULL},
    {HUE, 3, {0}, {0.5}, NULL}, {ERASE, 0, {1, 2, 3, 0, 0, 1}, {0.02, 0.4, 0.3, 3.3, 0, 1}, NULL}, {GREY, 5, {0}, {0, 0, 0, 0, 0, 0.5}, NULL},
    {FIT, 0, {SIDE, SIDE, BILINEAR}, {0}, NULL}, {PAD, 0, {SIDE, SIDE, 7, 1}, {0}, NULL}};
#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))
static const struct autopipe_program programs[] = {
    {cropped, COUNT(cropped), SIDE, SIDE, 3}, {reduced, COUNT(reduced), SIDE, SIDE, 3},
    {coloured, COUNT(coloured), SIDE, SIDE, 3}, {grey, COUNT(grey), SIDE, SIDE, 1}, {mask, COUNT(mask), SIDE, SIDE, 1},
    {mask, COUNT(mask), SIDE, SIDE, 3}, {mask, COUNT(mask), SIDE, SIDE, 2}, {deep, COUNT(deep), SIDE, SIDE, 12},
    {deep_grey, COUNT(deep_grey), SIDE, SIDE, 2}};

/* Arrays of bytes and of floats, of one pixel upwards. */
#define EDGE 6
static struct autopipe_instruction colours[] = {
    {PAD, 0, {EDGE + 2, EDGE + 1, 7, 1}, {0}, NULL}, {CROP, 0, {EDGE, EDGE, 1}, {0}, NULL}, {FLIP, 2, {1, 1}, {0}, NULL},
    {BRIGHTNESS, 0, {0}, {0.5}, NULL}, {CONTRAST, 1, {0}, {0.5, 2}, NULL}, {SATURATION, 2, {0}, {0.5, 2}, NULL},
    {HUE, 3, {0}, {0.5}, NULL}, {GREY, 4, {0}, {0, 0, 0, 0, 0, 0.5}, NULL}, {ERASE, 0, {1, 2, 3, 0, 0, 1}, {0.02, 0.9, 0.3, 3.3, 0, 0.9}, NULL},
    {LINEAR, 0, {1, 3 * EDGE}, {0}, line}};
static struct autopipe_instruction floats[] = {
    {PAD, 0, {EDGE, EDGE + 2, 7, 4}, {0}, NULL}, {CROP, 0, {EDGE, EDGE, 1}, {0}, NULL}, {FLIP, 2, {1, 1}, {0}, NULL},
    {BRIGHTNESS, 0, {1, 1}, {0.5, 2}, NULL}, {ERASE, 0, {1, 2, 3, 0, 0, 4}, {0.02, 0.9, 0.3, 3.3, 0, 0.9}, NULL},
    {LINEAR, 0, {4, 1}, {0}, line}};
static const struct autopipe_program of_arrays[] = {
    {colours, COUNT(colours), EDGE, EDGE, 12}, {floats, COUNT(floats), EDGE, EDGE, 12},
    {colours, 3, EDGE, EDGE, 3}, {floats, 3, EDGE, EDGE, 12}, {floats, 3, EDGE, EDGE, 8}, {colours, 3, EDGE, EDGE, 1}};
static const int64_t shapes[][2] = {{1, 1}, {1, 9}, {9, 1}, {5, 7}, {8, 8}};

static int32_t count_of_codes(void) {
  int32_t count = 0;
  while (autopipe_name(count) != NULL) count++;
  return count;
}

/* Return the code in this file of a true one, which stays as it is if it has none: a new instruction, say. */
static int32_t ours(int32_t code) {
  for (int32_t each = 0; each < COUNT(names); each++)
    if (strcmp(names[each], autopipe_name(code)) == 0) return OURS + each;
  return code;
}

static void prepare(void) {
  struct autopipe_instruction *tables[] = {cropped, reduced, grey, mask, coloured, colours, floats, deep};
  const int64_t counts[] = {COUNT(cropped), COUNT(reduced), COUNT(grey), COUNT(mask), COUNT(coloured), COUNT(colours), COUNT(floats), COUNT(deep)};
  static int is_done;
  for (int64_t table = 0; !is_done && table < COUNT(tables); table++)
    for (int64_t at = 0; at < counts[table]; at++)
      for (int32_t code = 0; tables[table][at].code >= OURS && code < count_of_codes(); code++)
        if (strcmp(names[tables[table][at].code - OURS], autopipe_name(code)) == 0) tables[table][at].code = code;
  is_done = 1;
}

static uint64_t digest = 14695981039346656037u; /* FNV-1a, of words */
static int is_damaged;

static void note(const uint8_t *bytes, size_t size) {
  for (size_t at = 0; !is_damaged && at < size; at += sizeof digest) {
    uint64_t word = 0;
    memcpy(&word, bytes + at, size - at < sizeof word ? size - at : sizeof word);
    digest = (digest ^ word) * 1099511628211u;
    digest ^= digest >> 29;
  }
}

static struct autopipe_scratch *scratch_of(int simd) { /* 0: plain C, 1: SSSE3, 2: what the processor has */
  static struct autopipe_scratch *scratches[3];
  if (scratches[simd] == NULL) scratches[simd] = autopipe_scratch_new(simd);
  if (scratches[simd] == NULL) abort();
  return scratches[simd];
}

/* Run a program in each way; all have to give the same verdicts and the same rows. */
static void run_in_each_way(const struct autopipe_program *program, const struct autopipe_span *spans, int64_t rows,
                            const double *draws) {
  size_t row_bytes = (size_t)(program->height * program->width * program->channels);
  uint8_t verdicts[3][8], *out[3];
  for (int simd = 0; simd < 3; simd++) {
    out[simd] = malloc(row_bytes * (size_t)rows); /* of this very size, so that a write beyond it is seen */
    if (out[simd] == NULL) abort();
    autopipe_fill(program, spans, rows, draws, 0, out[simd], (int64_t)row_bytes, scratch_of(simd), verdicts[simd]);
  }
  for (int64_t row = 0; row < rows; row++) {
    const uint8_t *made = out[0] + (size_t)row * row_bytes;
    for (int simd = 1; simd < 3; simd++)
      if (verdicts[simd][row] != verdicts[0][row] ||
          (verdicts[0][row] == FINE && memcmp(out[simd] + (size_t)row * row_bytes, made, row_bytes) != 0)) {
        fprintf(stderr, "vector instructions make something else than plain C, from code %d on\n",
                program->count ? (int)program->instructions->code : -1);
        abort();
      }
    note(&verdicts[0][row], 1);
    if (verdicts[0][row] == FINE) note(made, row_bytes);
  }
  for (int simd = 0; simd < 3; simd++) free(out[simd]);
}

/* -------------------- encoded images and records, in memory and in files */

/* Return an open file of these bytes, which is in memory. */
static int file_of(const uint8_t *data, size_t size) {
  static int file = -1;
  if (file < 0) file = memfd_create("fuzz", 0);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size) abort();
  return file;
}

/* Fill arrays of all shapes with some bytes, again and again, and run the programs of arrays on them. */
static void run_arrays(const uint8_t *data, size_t size, const double *draws) {
  for (int64_t shape = 0; size > 0 && shape < COUNT(shapes); shape++)
    for (int64_t each = 0; each < COUNT(of_arrays); each++) {
      int64_t height = shapes[shape][0], width = shapes[shape][1];
      int64_t channels = each == 0 ? 3 : of_arrays[each].channels;
      size_t count = (size_t)(height * width * channels);
      uint8_t *pixels = malloc(count);
      if (pixels == NULL) abort();
      for (size_t at = 0; at < count; at++) pixels[at] = data[at % size];
      const struct autopipe_span span = {.data = pixels, .height = height, .width = width, .channels = channels};
      run_in_each_way(&of_arrays[each], &span, 1, draws);
      free(pixels);
    }
}

static void run_files(const uint8_t *data, size_t size) {
  static const double draws[2][6] = {{0.3, 0.7, 0.1, 0.9, 0.2, 0.8}, {0.999, 0.001, 0.999, 0.999, 0.6, 0.4}};
  run_arrays(data, size, draws[size % 2]);
  int64_t all = (int64_t)size, first = size ? data[0] : 0, last = size ? data[size - 1] : 0;
  char path[32];
  int file = file_of(data, size);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  struct autopipe_span whole = {.path = path}, records[2] = {{.data = data, .size = all}, {.file = file, .size = all}};
  struct autopipe_span part = {.file = file, .offset = first - 8, .size = all + 8 - last};
  struct autopipe_span spans[5] = {records[0]};
  autopipe_features(records, 2, features, 2, spans + 1, scratch_of(size % 3)); /* of both: the image, then the label */
  spans[3] = whole;
  spans[4] = part;
  for (int64_t each = 0; each < COUNT(programs); each++) /* how files are read does not hang on what follows */
    run_in_each_way(&programs[each], spans, each == all % COUNT(programs) ? 5 : 2, draws[size % 2]);
}

/* -------------------- pixels: the bytes of the input say what shape they have, and what is done to them */

struct input {
  const uint8_t *at, *end;
};

static int64_t next_of(struct input *from, int64_t limit) { return from->at < from->end ? *from->at++ % limit : 0; }

#define MOST_PIXELS (1 << 17)
static const int64_t sides[] = {1, 2, 3, 5, 8, 16, 17, 63, 65535};
static const double numbers[] = {0, 0.25, 0.5, 0.75, 1 - 1.0 / (1 << 30)};

static void next_size(struct input *from, int64_t *height, int64_t *width) {
  *height = sides[next_of(from, COUNT(sides))];
  *width = sides[next_of(from, COUNT(sides))];
  if (*height * *width > MOST_PIXELS) *width = 1 + *width % 2;
}

/* Make the next instruction for images of at most this size, which it may change; return 0 if it would make it large. */
static int next_instruction(struct input *from, struct autopipe_instruction *to, int64_t *height, int64_t *width,
                            int64_t channels) {
  static uint8_t colours[1 << 24]; /* the class of each colour */
  static float lines[3 * 4 * 65535];
  static const int64_t values[] = {1, 2, 4}; /* bytes of one */
  if (colours[0] == 0)
    for (size_t at = 0; at < sizeof colours; at++) colours[at] = (uint8_t)(at * 7 + at / 1000 + 1);
  for (size_t at = 0; lines[0] == 0 && at < sizeof lines / sizeof *lines; at++) lines[at] = (float)(at % 257) / 7 - 11;
  int32_t code = (int32_t)next_of(from, count_of_codes());
  int64_t down, across;
  if (code == DECODE) code = RESIZE;
  *to = (struct autopipe_instruction){.code = code, .draw = (int32_t)next_of(from, 3)};
  code = ours(code);
  if (code == CROP || code == RESIZE || code == FIT || code == PAD) {
    next_size(from, &down, &across);
    if (code == PAD && (down > *height ? down : *height) * (across > *width ? across : *width) > MOST_PIXELS) return 0;
    *height = code != PAD || down > *height ? down : *height;
    *width = code != PAD || across > *width ? across : *width;
    to->whole[0] = down;
    to->whole[1] = across;
    to->whole[2] = next_of(from, code == PAD ? 256 : 3) % (code == CROP ? 2 : 256);
    to->whole[3] = code == PAD ? 1 : values[next_of(from, COUNT(values))];
  } else if (code == FLIP) {
    to->whole[0] = next_of(from, 2);
    to->whole[1] = next_of(from, 2);
  } else if (code == CROP_RANDOM_SIZE || code == ERASE) {
    double least = 0.01 + 0.24 * (double)next_of(from, 5), ratio = 0.05 + 0.5 * (double)next_of(from, 5);
    memcpy(to->real, (double[]){least, least * 1.03, ratio, 1 / ratio, 0, 0.9}, sizeof to->real);
    for (int channel = 0; code == ERASE && channel < 4; channel++) to->whole[channel] = 50 * channel;
    to->whole[5] = code == ERASE;
  } else if (code == CLASSES) {
    to->whole[0] = next_of(from, 2) ? 254 : -1;
    to->table = colours;
  } else if (code == LINEAR) {
    to->whole[0] = 1 + (channels % 2 == 0 && next_of(from, 2));
    to->whole[1] = next_of(from, 2) ? *width * channels / to->whole[0] : 1;
    to->table = lines;
  } else { /* colours */
    to->whole[0] = next_of(from, 2);
    to->real[0] = 0.25 * (double)next_of(from, 5);
    to->real[1] = to->real[0] + 0.5 * (double)next_of(from, 5);
    to->real[5] = to->real[0];
    if (code == HUE) to->real[0] /= 2;
  }
  return 1;
}

static void run_pixels_of(struct input from) {
  static uint8_t noise[2 * MOST_PIXELS * 4];
  struct autopipe_instruction code[4];
  struct autopipe_span span = {.channels = next_of(&from, 4) + 1};
  double draws[8];
  for (size_t at = 1; noise[1] == 0 && at < sizeof noise; at++) noise[at] = (uint8_t)(noise[at - 1] * 181 + 1 + at / 77);
  next_size(&from, &span.height, &span.width);
  for (int each = 0; each < 8; each++) draws[each] = numbers[next_of(&from, COUNT(numbers))];
  int64_t height = span.height, width = span.width, channels = span.channels, count = 1 + next_of(&from, 4);
  for (int64_t each = 0; each < count; each++) {
    if (!next_instruction(&from, &code[each], &height, &width, channels)) return;
    if (ours(code[each].code) == CLASSES) channels = 1;
    if (ours(code[each].code) == LINEAR) { /* always the last one: it makes floats */
      channels = channels / code[each].whole[0] * (int64_t)sizeof(float);
      count = each + 1;
    }
  }
  struct autopipe_program program = {code, count, height, width, channels};
  size_t bytes = (size_t)(span.height * span.width * span.channels);
  uint8_t *pixels = malloc(bytes); /* of this very size, so that a read beyond it is seen */
  if (pixels == NULL) abort();
  memcpy(pixels, noise + 4 * next_of(&from, 64), bytes);
  for (size_t at = 3; span.channels == 4 && at < bytes; at += 4) pixels[at] &= 0xBF; /* finite, as floats */
  span.data = pixels;
  run_in_each_way(&program, &span, 1, draws);
  free(pixels);
}

/* Mix a batch of bytes and of floats, each part in memory of its very size. */
static void run_mixing(struct input from) {
  int64_t rows = 1 + next_of(&from, 5), height, width, order[5] = {0};
  double draws[5 * 6], alpha = 0.06 + 0.2 * (double)next_of(&from, 5);
  struct autopipe_part parts[3];
  next_size(&from, &height, &width);
  if (height * width > 1 << 12) width = 1 + width % 2;
  for (int64_t at = 0; at < rows; at++) order[at] = next_of(&from, rows + (at == 4)); /* of five, one that is not there */
  for (int64_t at = 0; at < 6 * rows; at++) draws[at] = numbers[next_of(&from, COUNT(numbers))];
  int cuts = (int)next_of(&from, 2);
  for (int64_t each = 0; each < 3; each++) {
    int64_t floats = each == 2, channels = floats ? 4 * (1 + next_of(&from, 9)) : 1 + next_of(&from, 4);
    parts[each] = (struct autopipe_part){NULL, floats ? 1 : height, floats ? 1 : width, channels, floats ? 4 : !cuts};
    size_t size = (size_t)(rows * parts[each].height * parts[each].width * channels);
    parts[each].values = calloc(1, size);
    if (parts[each].values == NULL) abort();
    for (size_t at = 0; at < size && !floats; at++) parts[each].values[at] = (uint8_t)(at * 7);
  }
  autopipe_mix(parts, 3, rows, draws, order, alpha, 0.9, cuts ? height : 0, cuts ? width : 0, scratch_of(2));
  for (int64_t each = 0; each < 3; each++) {
    note(parts[each].values, (size_t)(rows * parts[each].height * parts[each].width * parts[each].channels));
    free(parts[each].values);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *bytes = calloc(1, size ? size : 1); /* of this very size, so that a read beyond it is seen */
  if (bytes == NULL) return 0;
  if (size) memcpy(bytes, data, size);
  prepare();
  run_files(bytes, size);
  run_pixels_of((struct input){bytes + (size > 40 ? size - 40 : 0), bytes + size}); /* headers are much alike */
  run_mixing((struct input){bytes + (size > 60 ? size - 60 : 0), bytes + size});
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

/* Each instruction on images of each shape, with the smallest, a middle and the largest random numbers. */
static long run_shapes(void) {
  long done = 0;
  uint8_t bytes[24];
  for (int64_t at = 0; at < 4 * COUNT(sides) * COUNT(sides) * count_of_codes() * 3; at++, done++) {
    int64_t left = at;
    for (size_t each = 0; each < sizeof bytes; each++) bytes[each] = (uint8_t)below(256);
    bytes[0] = (uint8_t)(left % 4); /* channels */
    bytes[1] = (uint8_t)((left /= 4) % COUNT(sides));
    bytes[2] = (uint8_t)((left /= COUNT(sides)) % COUNT(sides));
    bytes[12] = (uint8_t)((left /= COUNT(sides)) % count_of_codes());
    left /= count_of_codes();
    memset(bytes + 3, (int)(2 * left), 8); /* random numbers */
    bytes[11] = left == 1; /* instructions, less one */
    run_pixels_of((struct input){bytes, bytes + sizeof bytes});
  }
  return done;
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
    is_damaged = round >= count - 2;
    LLVMFuzzerTestOneInput(bytes, is_damaged ? mutated(bytes, size) : size);
  }
  is_damaged = 0;
  long shapes = run_shapes();
  printf("%ld mutated files, %ld images: nothing to report, digest %016llx\n", rounds, shapes, (unsigned long long)digest);
  return 0;
}

#endif
