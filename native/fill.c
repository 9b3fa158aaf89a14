/* The loop over the rows of a batch and the instructions of a program; reading files; crops and flips.
 *
 * A crop moves a pointer, or, right behind a decode, says which part of a JPEG is decoded. A flip behind a resize is
 * done by it. Boxes are computed in double precision in the order of `autopipe/workload/ops/pixels.py`, to the bit. */
#define _GNU_SOURCE
#include "autopipe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define KEPT_BYTES ((size_t)64 << 20) /* of a room between two batches */
#define SLACK 64

uint8_t *room_of(struct room *room, size_t size) {
  if (size <= room->size) return room->bytes;
  free(room->bytes);
  room->size = size + size / 4;
  room->bytes = malloc(room->size + SLACK);
  if (room->bytes == NULL) room->size = 0;
  return room->bytes;
}

/* The one of both rooms that the image does not lie in. */
uint8_t *next_pixels(struct autopipe_scratch *scratch, size_t size) {
  scratch->used = !scratch->used;
  return room_of(&scratch->pixels[scratch->used], size ? size : 1);
}

static int is_row(const struct autopipe_program *program, int64_t height, int64_t width, int64_t channels) {
  return height == program->height && width == program->width && channels == program->channels;
}

uint8_t *room_for(struct autopipe_scratch *scratch, int64_t height, int64_t width, int64_t channels) {
  if (scratch->row != NULL && is_row(scratch->program, height, width, channels)) return scratch->row;
  return next_pixels(scratch, (size_t)height * (size_t)width * (size_t)channels);
}

void copy_rows(const struct image *image, uint8_t *to, size_t stride) {
  size_t count = (size_t)(image->width * image->channels), rows = (size_t)image->height;
  if (count == stride && image->stride == (ptrdiff_t)count) count *= rows, rows = 1; /* all as one */
  for (size_t row = 0; row < rows; row++)
    memcpy(to + row * stride, image->pixels + (ptrdiff_t)row * image->stride, count);
}

void drop_large(struct room *room) {
  if (room->size <= KEPT_BYTES) return;
  free(room->bytes);
  room->bytes = NULL;
  room->size = 0;
}

/* -------------------- reading */

static int read_bytes(int file, uint8_t *to, size_t size, int64_t offset, size_t *done) {
  for (*done = 0; *done < size;) {
    ssize_t got = pread(file, to + *done, size - *done, offset + (off_t)*done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return UNREADABLE;
    if (got == 0) break;
    *done += (size_t)got;
  }
  return FINE;
}

int read_span(struct room *room, size_t at, const struct autopipe_span *span, const uint8_t **data, size_t *size) {
  struct statx status; /* what is linked as fstat needs glibc 2.33 */
  int file = (int)span->file;
  if (span->path != NULL) file = open(span->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
  if (file < 0) return UNREADABLE;
  int is_known = statx(file, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &status) == 0;
  int verdict = is_known && S_ISREG(status.stx_mode) && span->offset >= 0 ? FINE : UNREADABLE;
  int64_t all = verdict == FINE ? (int64_t)status.stx_size : 0, left = span->offset < all ? all - span->offset : 0;
  if (span->size > 0 && span->size < left) left = span->size;
  uint8_t *bytes = verdict == FINE ? room_of(room, at + (size_t)left + 1) : NULL;
  if (verdict == FINE && bytes == NULL) verdict = NO_MEMORY;
  if (bytes != NULL) bytes += at;
  size_t done = 0;
  if (verdict == FINE) verdict = read_bytes(file, bytes, (size_t)left, span->offset, &done);
  if (span->path != NULL) close(file);
  if (verdict == FINE && done == 0) verdict = EMPTY;
  if (verdict == FINE && span->size > 0 && done < (size_t)span->size) verdict = DAMAGED;
  *data = bytes;
  *size = done;
  return verdict;
}

/* -------------------- boxes */

static int64_t side(int64_t most, double wanted) {
  int64_t rounded = (int64_t)(wanted + 0.5);
  rounded = rounded > 1 ? rounded : 1;
  return rounded < most ? rounded : most;
}

static int box_of_random_size(const double *real, int64_t height, int64_t width, const double *draws, struct box *box) {
  double share = real[0] + (real[1] - real[0]) * draws[0];
  double aspect = real[2] * pow(real[3] / real[2], draws[1]);
  double pixels = (double)(height * width) * share;
  box->height = side(height, pow(pixels / aspect, 0.5));
  box->width = side(width, pow(pixels * aspect, 0.5));
  box->top = (int64_t)(draws[2] * (double)(height - box->height + 1));
  box->left = (int64_t)(draws[3] * (double)(width - box->width + 1));
  return FINE;
}

/* CROP: whole = {height, width, is random}. CROP_RANDOM_SIZE: real = {area from, to, ratio from, to}. */
int box_of(const struct autopipe_instruction *crop, int64_t height, int64_t width, const double *draws,
           struct box *box) {
  draws += crop->draw;
  if (crop->code == CROP_RANDOM_SIZE) return box_of_random_size(crop->real, height, width, draws, box);
  box->height = crop->whole[0];
  box->width = crop->whole[1];
  if (height < box->height || width < box->width) return OTHER_SHAPE;
  box->top = (int64_t)((crop->whole[2] ? draws[0] : 0.5) * (double)(height - box->height + 1));
  box->left = (int64_t)((crop->whole[2] ? draws[1] : 0.5) * (double)(width - box->width + 1));
  return FINE;
}

static int cut(const struct autopipe_instruction *crop, const double *draws, struct image *image) {
  struct box box;
  int verdict = box_of(crop, image->height, image->width, draws, &box);
  if (verdict != FINE) return verdict;
  image->pixels += box.top * image->stride + box.left * image->channels;
  image->height = box.height;
  image->width = box.width;
  return FINE;
}

/* -------------------- one row */

static int is_crop(const struct autopipe_instruction *each) {
  return each->code == CROP || each->code == CROP_RANDOM_SIZE;
}

static int mirror(struct autopipe_scratch *scratch, int across, int down, struct image *image) {
  size_t count = (size_t)(image->width * image->channels);
  uint8_t *out = room_for(scratch, image->height, image->width, image->channels);
  if (out == NULL) return NO_MEMORY;
  if (down) { /* the rows from the last one on */
    image->pixels += (image->height - 1) * image->stride;
    image->stride = -image->stride;
  }
  if (!across) copy_rows(image, out, count);
  for (int64_t row = 0; across && row < image->height; row++)
    put_mirrored(image->pixels + row * image->stride, image->width, image->channels, out + (size_t)row * count);
  *image = (struct image){out, (ptrdiff_t)count, image->height, image->width, image->channels, 1};
  return FINE;
}

/* FLIP: whole = {horizontal, vertical}. */
static void flips(const struct autopipe_instruction *flip, const double *draws, int *across, int *down) {
  *across = flip->whole[0] && draws[flip->draw] < 0.5;
  *down = flip->whole[1] && draws[flip->draw + 1] < 0.5;
}

/* FIT: whole = {height, width, how, bytes of a value}: the largest size of the image's shape in it. */
static void fitted(const struct autopipe_instruction *fit, const struct image *image, int64_t *height, int64_t *width) {
  int64_t down = image->height, across = image->width;
  *height = fit->whole[0];
  *width = fit->whole[1];
  if (*height * across <= *width * down) {
    *width = (2 * across * *height + down) / (2 * down);
    if (*width < 1) *width = 1;
  } else {
    *height = (2 * down * *width + across) / (2 * across);
    if (*height < 1) *height = 1;
  }
}

static int decode(struct autopipe_scratch *scratch, const struct autopipe_span *span,
                  const struct autopipe_instruction *each, const struct autopipe_instruction *crop,
                  const double *draws, struct image *image) {
  const uint8_t *data = span->data;
  size_t size = (size_t)span->size;
  int verdict = data != NULL ? FINE : read_span(&scratch->file, 0, span, &data, &size);
  if (verdict != FINE) return verdict;
  if (size > 3 && data[0] == 0xFF && data[1] == 0xD8 && each->whole[5] == 2) return UNKNOWN;
  if (size > 3 && data[0] == 0xFF && data[1] == 0xD8)
    return decode_jpeg(scratch, data, size, each, crop, draws, image);
  verdict = decode_png(scratch, data, size, each, image);
  return verdict == FINE && crop != NULL ? cut(crop, draws, image) : verdict;
}

/* Whether the pixels of a span have the bytes that it says. */
static int is_whole(const struct autopipe_span *span) {
  int64_t line, all;
  return span->height > 0 && span->width > 0 && span->channels > 0 &&
         !__builtin_mul_overflow(span->width, span->channels, &line) &&
         !__builtin_mul_overflow(span->height, line, &all) && all == span->size;
}

/* Read the pixels of an image that lies in an open file, row behind row; of a crop only its rows. They come to `to` if
 * that is given, or to the scratch. */
static int read_pixels(struct autopipe_scratch *scratch, const struct autopipe_span *span,
                       const struct autopipe_instruction *crop, const double *draws, uint8_t *to, struct image *image) {
  struct box box = {0, 0, span->height, span->width};
  if (!is_whole(span) || span->offset < 0) return OTHER_SHAPE;
  int64_t line = span->width * span->channels;
  int verdict = crop == NULL ? FINE : box_of(crop, span->height, span->width, draws, &box);
  if (verdict != FINE) return verdict;
  size_t size = (size_t)(box.height * line), done;
  if (to == NULL) to = room_of(&scratch->file, size);
  if (to == NULL) return NO_MEMORY;
  verdict = read_bytes((int)span->file, to, size, span->offset + box.top * line, &done);
  *image = (struct image){to + box.left * span->channels, line, box.height, box.width, span->channels, 1};
  return verdict == FINE && done < size ? DAMAGED : verdict;
}

/* Run the instructions on a span. The image comes to lie in `out`, a row of the program's size, in the scratch or where
 * it was. */
static int make_image(const struct autopipe_program *program, const struct autopipe_span *span, const double *draws,
                      uint8_t *out, struct autopipe_scratch *scratch, struct image *made) {
  const struct autopipe_instruction *each = program->instructions, *end = each + program->count, *last = end;
  struct image image = {(uint8_t *)(uintptr_t)span->data, span->width * span->channels,
                        span->height, span->width, span->channels, 0};
  if (span->path == NULL && span->size == 0 && span->height == 0) return EMPTY; /* a row that is made elsewhere */
  while (last > each && stays(last - 1)) last--; /* what comes before `last` may write to `out` */
  if (span->path == NULL && span->data == NULL && span->height != 0) {
    const struct autopipe_instruction *crop = each < end && is_crop(each) ? each : NULL;
    int is_in_place = each == last && crop == NULL && is_row(program, span->height, span->width, span->channels);
    int verdict = read_pixels(scratch, span, crop, draws, is_in_place ? out : NULL, &image);
    if (verdict != FINE) return verdict;
    each += crop != NULL;
  }
  for (int verdict = FINE; each < end; each++) {
    int64_t height = each->whole[0], width = each->whole[1];
    int across = 0, down = 0;
    scratch->program = program;
    scratch->row = each + 1 >= last ? out : NULL;
    if (each->code == DECODE) {
      const struct autopipe_instruction *crop = each + 1 < end && is_crop(each + 1) ? each + 1 : NULL;
      verdict = decode(scratch, span, each, crop, draws, &image);
      if (crop != NULL) each++;
    } else if (is_crop(each)) {
      verdict = cut(each, draws, &image);
    } else if (each->code == RESIZE || each->code == FIT) {
      const struct autopipe_instruction *resize = each;
      if (each->code == FIT) fitted(each, &image, &height, &width);
      if (each + 1 < end && each[1].code == FLIP) flips(++each, draws, &across, &down);
      scratch->row = each + 1 >= last ? out : NULL;
      verdict = resize_image(scratch, resize, height, width, across, down, &image);
    } else if (each->code == FLIP) {
      flips(each, draws, &across, &down);
      if (across || down) verdict = mirror(scratch, across, down, &image);
    } else {
      verdict = run_pixels(scratch, each, draws, &image);
    }
    if (verdict != FINE) return verdict;
  }
  *made = image;
  return FINE;
}

static int fill_row(const struct autopipe_program *program, const struct autopipe_span *span, const double *draws,
                    uint8_t *out, struct autopipe_scratch *scratch) {
  struct image image;
  int verdict = make_image(program, span, draws, out, scratch, &image);
  if (verdict != FINE) return verdict;
  if (!is_row(program, image.height, image.width, image.channels)) return OTHER_SHAPE;
  if (image.pixels != out) copy_rows(&image, out, (size_t)(image.width * image.channels));
  return FINE;
}

/* -------------------- files that are mapped into memory
 *
 * Small rows are copied by the system to a file in memory, many by one call. It reports a page that the mapped file has no
 * longer; a process that touches such a page ends by SIGBUS. */

#define MOST_ROWS 256
#define MAPPED_BYTES ((size_t)1 << 18) /* of these rows */

static void close_mapped(struct mapped *mapped) {
  if (mapped->bytes == NULL) return;
  munmap(mapped->bytes, MAPPED_BYTES);
  close(mapped->file);
  mapped->bytes = NULL;
}

/* Have a file in memory that is no other process's; return 0 without one. */
static int open_mapped(struct mapped *mapped) {
  if (mapped->bytes != NULL && mapped->owner == getpid()) return 1;
  close_mapped(mapped);
  int file = memfd_create("autopipe", MFD_CLOEXEC);
  void *bytes = MAP_FAILED;
  if (file >= 0 && ftruncate(file, MAPPED_BYTES) == 0) bytes = mmap(NULL, MAPPED_BYTES, PROT_READ, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED && file >= 0) close(file);
  if (bytes == MAP_FAILED) return 0;
  *mapped = (struct mapped){bytes, file, getpid()};
  return 1;
}

static int is_mapped(const struct autopipe_span *span) {
  return span->path == NULL && span->data != NULL && span->height != 0 && span->size > 0;
}

/* Copy the next rows of a mapped file, all of one size. Return how many; those that are not there have a verdict. */
static int64_t copy_mapped(struct mapped *mapped, const struct autopipe_span *spans, int64_t rows, uint8_t *verdicts) {
  struct iovec parts[MOST_ROWS];
  size_t size = (size_t)spans->size;
  int64_t count = 0, done = 0, end = 0;
  struct statx status;
  for (; count < rows && count < MOST_ROWS && (size_t)(count + 1) * size <= MAPPED_BYTES; count++) {
    if (!is_mapped(spans + count) || spans[count].size != spans->size) break;
    parts[count] = (struct iovec){(void *)(uintptr_t)spans[count].data, size};
    for (size_t at = 0; at < size; at += 64) __builtin_prefetch(spans[count].data + at); /* which touches no page */
  }
  if (count == 0 || !open_mapped(mapped)) {
    verdicts[0] = UNREADABLE;
    return 1;
  }
  memset(verdicts, UNREADABLE, (size_t)count);
  while (done < count) {
    ssize_t got = pwritev(mapped->file, parts + done, (int)(count - done), (off_t)((size_t)done * size));
    if (got < 0 && errno == EINTR) continue;
    for (int64_t end = done + (got > 0 ? got / spans->size : 0); done < end; done++) verdicts[done] = FINE;
    done++; /* where it stopped */
  }
  /* Behind its end, the last page is there, and holds zeros. */
  if (statx((int)spans->file, "", AT_EMPTY_PATH, STATX_SIZE, &status) == 0) end = (int64_t)status.stx_size;
  for (done = 0; done < count; done++)
    if (spans[done].file != spans->file || spans[done].offset > end - spans->size) verdicts[done] = UNREADABLE;
  return count;
}

/* -------------------- called by Python */

/* Return the name of an instruction, by which an op asks for it; NULL behind the last. */
AUTOPIPE_API const char *autopipe_name(int32_t code) {
  static const char *const names[] = {"DECODE", "CROP", "CROP_RANDOM_SIZE", "RESIZE", "FIT", "FLIP"};
  return code >= 0 && code < PIXELS ? names[code] : name_of_pixels(code);
}

AUTOPIPE_API struct autopipe_scratch *autopipe_scratch_new(int simd) {
  struct autopipe_scratch *scratch = calloc(1, sizeof *scratch);
  if (scratch == NULL) return NULL;
  scratch->simd = simd;
  scratch->decoder = decoder_new();
  if (scratch->decoder != NULL) return scratch;
  free(scratch);
  return NULL;
}

AUTOPIPE_API void autopipe_scratch_free(struct autopipe_scratch *scratch) {
  if (scratch == NULL) return;
  decoder_free(scratch->decoder);
  close_mapped(&scratch->mapped);
  struct room *rooms[] = {&scratch->file, &scratch->records, &scratch->pixels[0], &scratch->pixels[1], &scratch->table, &scratch->line};
  for (size_t each = 0; each < sizeof rooms / sizeof *rooms; each++) free(rooms[each]->bytes);
  free(scratch);
}

static void drop_rooms(struct autopipe_scratch *scratch) {
  drop_large(&scratch->file);
  drop_large(&scratch->pixels[0]);
  drop_large(&scratch->pixels[1]);
}

/* Write `rows` rows, the next `row_bytes` behind the one before, from a span each; `draws` has `drawn` random numbers a
 * row. Return how many rows have a verdict other than FINE; what those rows hold is undefined. */
AUTOPIPE_API int64_t autopipe_fill(const struct autopipe_program *program, const struct autopipe_span *spans,
                                   int64_t rows, const double *draws, int64_t drawn, uint8_t *out, int64_t row_bytes,
                                   struct autopipe_scratch *scratch, uint8_t *verdicts) {
  int64_t left = 0;
  for (int64_t row = 0, copied = 0, first = 0; row < rows; row++) {
    struct autopipe_span span = spans[row];
    int verdict = FINE;
    if (is_mapped(&span) && !is_whole(&span)) {
      verdict = OTHER_SHAPE;
    } else if (is_mapped(&span)) {
      if (row >= first + copied) first = row, copied = copy_mapped(&scratch->mapped, spans + row, rows - row, verdicts + row);
      verdict = verdicts[row];
      span.data = scratch->mapped.bytes + (row - first) * span.size;
    }
    if (verdict == FINE) verdict = fill_row(program, &span, draws + row * drawn, out + row * row_bytes, scratch);
    verdicts[row] = (uint8_t)verdict;
    left += verdict != FINE;
  }
  drop_rooms(scratch);
  return left;
}

/* -------------------- samples of any shapes */

/* Take `size` bytes of those up to `end`, for this thread alone of all processes that share `first_free`; return where
 * they begin, or -1 if they are not left. */
AUTOPIPE_API int64_t autopipe_take(int64_t *first_free, int64_t size, int64_t end) {
  int64_t at = __atomic_load_n(first_free, __ATOMIC_RELAXED);
  do
    if (size < 0 || at > end || size > end - at) return -1;
  while (!__atomic_compare_exchange_n(first_free, &at, at + size, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return at;
}

/* Put an image of any size, made of each span without random numbers, into what is left of `heap`, and write to `places`
 * where it begins, its height, width and bytes of a pixel. Return how many have a verdict other than FINE. */
AUTOPIPE_API int64_t autopipe_keep(const struct autopipe_program *program, const struct autopipe_span *spans,
                                   int64_t rows, uint8_t *heap, int64_t *first_free, int64_t end, int64_t *places,
                                   struct autopipe_scratch *scratch, uint8_t *verdicts) {
  static const double none[1] = {0};
  int64_t left = 0;
  for (int64_t row = 0; row < rows; row++) {
    struct image image = {.height = 0};
    int verdict = is_mapped(spans + row) ? UNKNOWN : make_image(program, spans + row, none, NULL, scratch, &image);
    int64_t size = image.height * image.width * image.channels, at = -1;
    if (verdict == FINE) at = autopipe_take(first_free, (size + 63) / 64 * 64, end);
    if (verdict == FINE && at < 0) verdict = NO_MEMORY;
    if (verdict == FINE) copy_rows(&image, heap + at, (size_t)(image.width * image.channels));
    memcpy(places + 4 * row, (int64_t[]){at, image.height, image.width, image.channels}, 4 * sizeof *places);
    verdicts[row] = (uint8_t)verdict;
    left += verdict != FINE;
  }
  drop_rooms(scratch);
  return left;
}

/* -------------------- random numbers */

static uint64_t mixed(uint64_t z) { /* of SplitMix64 (Steele, Lea and Flood, 2014) */
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Write the random numbers of some samples, `count` a row, as `autopipe/workload/order.py` defines them: `columns` has
 * the hash state of each, then the mixed counter of each. */
AUTOPIPE_API void autopipe_uniforms(const uint64_t *columns, int64_t count, const int64_t *indices, int64_t rows,
                                    double *out) {
  const uint64_t gamma = 0x9E3779B97F4A7C15u;
  for (int64_t row = 0; row < rows; row++) {
    uint64_t sample = mixed((uint64_t)indices[row] + gamma);
    for (int64_t column = 0; column < count; column++) {
      uint64_t state = mixed((columns[column] ^ sample) + gamma);
      *out++ = (double)(mixed((state ^ columns[count + column]) + gamma) >> 11) * 0x1p-53;
    }
  }
}
