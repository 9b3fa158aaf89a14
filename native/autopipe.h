/* A batch by one call: the structures that Python fills, and what the files beside this one share.
 *
 * A program is a flat list of instructions. `autopipe_fill` runs it on one span of bytes after the other (a file, a part
 * of one, encoded bytes or pixels in memory) and writes a row of a batch for each. It formats no error: a row that
 * cannot be made gets a verdict, and Python makes that row again, which raises the message or replaces the sample.
 *
 * Who owns what: the caller owns program, spans, numbers, rows and verdicts. A scratch belongs to one thread at a time
 * and keeps its memory from image to image. Nothing here keeps a pointer of the caller's after the call. No function
 * aborts or prints: whatever fails gives a verdict, and the scratch stays usable. */
#ifndef AUTOPIPE_H
#define AUTOPIPE_H

#include <stddef.h>
#include <stdint.h>

#define AUTOPIPE_API __attribute__((visibility("default")))

enum { /* verdicts */
  FINE,
  UNREADABLE, /* missing, no regular file, an error of the system */
  EMPTY,
  UNKNOWN, /* another format, or a kind of this one that Python decodes */
  DAMAGED,
  TOO_LARGE,
  NO_MEMORY,
  OTHER_SHAPE /* a crop that does not fit in the image, or a result that does not fit in the row */
};

enum { /* codes of the instructions that the loop itself runs; those from PIXELS on are in the table of pixels.c */
  DECODE,
  CROP,
  CROP_RANDOM_SIZE,
  RESIZE,
  FIT,
  FLIP,
  PIXELS
};

enum { BILINEAR, NEAREST, AREA };

struct autopipe_instruction {
  int32_t code; /* what the numbers mean stands at its function */
  int32_t draw; /* the number of its first random number in a row of `draws` */
  int64_t whole[6];
  double real[6];
  const void *table;
};

struct autopipe_span {
  const char *path;    /* NULL: the bytes are at `data`, or in the open file `file` */
  const uint8_t *data; /* encoded bytes, or pixels if `height` is not 0, row behind row; so are those in `file` */
  int64_t file;
  int64_t offset;      /* of the first byte in the file */
  int64_t size;        /* bytes; of a file, 0 is all of it; of pixels at `data`, 0, unless `file` is mapped there */
  int64_t height, width, channels;
};

struct autopipe_feature { /* one of a tf.train.Example's */
  const char *key;
  int64_t key_bytes;
  int64_t is_number; /* an int64; else bytes */
};

struct autopipe_program {
  const struct autopipe_instruction *instructions;
  int64_t count;
  int64_t height, width, channels; /* of a row */
};

struct autopipe_part { /* of all samples of a batch, one behind the other */
  uint8_t *values;
  int64_t height, width, channels;
  int64_t value_bytes;
};

/* `channels` are the bytes of a pixel, here and below: three of 8 bits, or twelve of three floats. */

/* -------------------- shared by the files; the rest is of no use outside */

struct room { /* memory that grows, and is used again */
  uint8_t *bytes;
  size_t size;
};

struct image { /* a row follows the other after `stride` bytes */
  uint8_t *pixels;
  ptrdiff_t stride;
  int64_t height, width, channels;
  int is_own; /* in a room or row of ours, so that it may be written to */
};

struct box {
  int64_t top, left, height, width;
};

struct mapped { /* a file in memory, and what it holds; one that is forked shares it with the process that has made it */
  uint8_t *bytes;
  int file, owner;
};

struct decoder;

struct autopipe_scratch {
  struct room file, records, pixels[2], table, line;
  int used; /* which of `pixels` the image lies in */
  const struct autopipe_program *program;
  uint8_t *row; /* of the batch, if what the instruction makes may lie there; else NULL */
  int simd; /* 0: plain C, 1: SSSE3 at most, 2: what the processor has; so that a test can compare */
  struct decoder *decoder;
  struct mapped mapped;
};

static inline uint64_t from_bytes(const uint8_t *bytes, int count, int little) {
  uint64_t value = 0;
  for (int at = 0; at < count; at++) value = value << 8 | bytes[little ? count - 1 - at : at];
  return value;
}

static inline uint8_t level_of(float value) { /* rounded half to even, and kept in the range of a byte */
  value = value > 255 ? 255 : value > 0 ? value : 0;
  return (uint8_t)(int)((value + 12582912.0f) - 12582912.0f); /* to whole numbers, which alone are floats there */
}

#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pow, pow@GLIBC_2.2.5"); /* the same bits as of the newest one, which manylinux_2_28 has not */
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* changed bytes get past the checksums */
#define CHECKS 0
#else
#define CHECKS 1
#endif

uint8_t *room_of(struct room *room, size_t size); /* NULL without memory; what it held is lost */
void drop_large(struct room *room);
/* Read a span of a file to a room, `at` bytes from its start on. */
int read_span(struct room *room, size_t at, const struct autopipe_span *span, const uint8_t **data, size_t *size);
uint8_t *next_pixels(struct autopipe_scratch *scratch, size_t size);
/* Return where an image of this size is to be made: in the row, or in the room that the present one does not lie in. */
uint8_t *room_for(struct autopipe_scratch *scratch, int64_t height, int64_t width, int64_t channels);
void copy_rows(const struct image *image, uint8_t *to, size_t stride);
int box_of(const struct autopipe_instruction *crop, int64_t height, int64_t width, const double *draws, struct box *box);

struct decoder *decoder_new(void); /* NULL without memory */
void decoder_free(struct decoder *decoder);
int decode_jpeg(struct autopipe_scratch *scratch, const uint8_t *data, size_t size,
                const struct autopipe_instruction *decode, const struct autopipe_instruction *crop, const double *draws,
                struct image *image);
int decode_png(struct autopipe_scratch *scratch, const uint8_t *data, size_t size,
               const struct autopipe_instruction *decode, struct image *image);
int turned_pixels(struct autopipe_scratch *scratch, int orientation, struct image *image);
int orientation_in(const uint8_t *tiff, size_t size);

int resize_image(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, int64_t height, int64_t width,
                 int mirrored, int upside_down, struct image *image);
int run_pixels(struct autopipe_scratch *scratch, const struct autopipe_instruction *each, const double *draws,
               struct image *image);
const char *name_of_pixels(int32_t code); /* NULL if there is no such instruction */
int stays(const struct autopipe_instruction *each);
void put_mirrored(const uint8_t *from, int64_t width, int64_t channels, uint8_t *to);

#endif
