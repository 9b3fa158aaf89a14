/* The entropy-coded data of an ordinary JPEG (one scan, 8 bits, Huffman), in the place of libjpeg's code for it, which
 * takes half of the time that an image takes. libjpeg does all the rest, from the transform on.
 *
 * What is quicker: the zeros that are stuffed behind bytes of 0xFF are taken out first, so that eight bytes are taken at
 * a time without a look at them; one look into a table gives the length of a code together with that of the number behind
 * it; and tables that the last image had, too, are not made again.
 *
 * It reads sound data only. Where anything is unusual (a code that no table has, a marker at another place than the data
 * end at, bytes between the two, numbers beyond 8-bit images) it gives up the whole image, and libjpeg's code reads it
 * from the start: what is said of damage, and what is made of it, is libjpeg's alone.
 *
 * Tables: ITU-T T.81, annex C and F.2.2. */
#include "jpeg.h"

#include <stdlib.h>
#include <string.h>

#if defined __has_include
#if __has_include(<jpegint.h>)
#include <jpegint.h> /* where a decompressor keeps what reads the data; not everybody installs it */
#define CAN_TAKE_OVER
#endif
#endif

enum {
  LOOK = 10,          /* bits that are looked up at once */
  MOST_BITS = 11,     /* of a number, in images of 8 bits */
  MOST_LEVEL = 1 << 24,
  MOST_UNIT = 4096,   /* bytes; 10 blocks of 64 numbers of 16 + 11 bits are 2,160 */
  BEHIND_BLOCK = 128 /* a place */
};

struct table {
  JHUFF_TBL of;              /* what it was made from; all 0 at first, which is no table */
  uint32_t look[1 << LOOK];  /* by the next bits: see `entry_of`; 0: the code is longer, or there is none */
  int32_t most[17];          /* by length: the largest code, or -1 */
  int32_t values_before[17]; /* by length: to be added to a code for its place among the values */
  int32_t short_values;      /* how many have a code that is looked up */
};

struct bits {
  const uint8_t *at;
  uint64_t next; /* from the highest on */
  int count;     /* how many of `next` are taken from the bytes before `at`; those behind them are right as well */
};

struct huffman {
  struct table dc[NUM_HUFF_TBLS], ac[NUM_HUFF_TBLS];
  struct room clean; /* the data up to the next marker */
  const uint8_t *clean_end, *next, *end; /* `next`: that marker, in the file */
  struct bits bits;
  unsigned units_left, interval, units_to_restart, restarts;
  unsigned blocks; /* of a unit */
  struct {
    const struct table *dc, *ac;
    int part;
  } block[D_MAX_BLOCKS_IN_MCU];
  int32_t last[MAX_COMPS_IN_SCAN]; /* the first number of each part's last block */
};

struct huffman *huffman_new(void) { return calloc(1, sizeof(struct huffman)); }

void huffman_free(struct huffman *of) {
  free(of->clean.bytes);
  free(of);
}

#ifdef CAN_TAKE_OVER

static const uint8_t natural[64] = {
  0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
  41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
  30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

/* An entry: bits 0 to 5 are the length of the code and of the number behind it, 6 to 9 that of the number alone, and from
 * 10 on how many places it lies behind the last one. 0: no such number. */
static uint32_t entry_of(int length, int value) {
  int bits = value & 15, zeros = value >> 4;
  int behind = bits == 0 && zeros < 15 ? BEHIND_BLOCK : zeros + 1;
  return bits > MOST_BITS ? 0 : (uint32_t)(length + bits) | (uint32_t)bits << 6 | (uint32_t)behind << 10;
}

/* Make a table, unless it is the last image's. libjpeg has looked through it: no length has more codes than there are. */
static void make(struct table *table, const JHUFF_TBL *of) {
  if (memcmp(table->of.bits, of->bits, sizeof of->bits) == 0 && memcmp(table->of.huffval, of->huffval, 256) == 0) return;
  table->of = *of;
  memset(table->look, 0, sizeof table->look);
  int32_t code = 0, place = 0;
  for (int length = 1; length <= 16; length++, code <<= 1) {
    table->values_before[length] = place - code;
    for (int each = 0; each < of->bits[length] && place < 256; each++, code++, place++)
      for (int rest = 0; length <= LOOK && rest < 1 << (LOOK - length); rest++)
        table->look[((code << (LOOK - length)) + rest) & ((1 << LOOK) - 1)] =
            entry_of(length, of->huffval[place]);
    table->most[length] = of->bits[length] ? code - 1 : -1;
    if (length == LOOK) table->short_values = place;
  }
}

_Noreturn static void give_up(j_decompress_ptr info) {
  struct decoder *decoder = info->client_data;
  decoder->gave_up = 1;
  longjmp(decoder->back, 1);
}

/* Copy what lies before the next marker, without the zeros behind bytes of 0xFF, and zeros for a whole unit behind it, so
 * that within a unit nobody has to ask how much is left. */
static void next_data(j_decompress_ptr info, struct huffman *of) {
  uint8_t *to = of->clean.bytes;
  const uint8_t *at = of->next, *found;
  while ((found = memchr(at, 0xFF, (size_t)(of->end - at))) != NULL && of->end - found > 1 && found[1] == 0) {
    memcpy(to, at, (size_t)(found + 1 - at));
    to += found + 1 - at;
    at = found + 2;
  }
  if (found == NULL || of->end - found < 2 || found[1] == 0xFF) give_up(info);
  memcpy(to, at, (size_t)(found - at));
  to += found - at;
  memset(to, 0, MOST_UNIT);
  of->next = found;
  of->clean_end = to;
  of->bits = (struct bits){of->clean.bytes, 0, 0};
  memset(of->last, 0, sizeof of->last);
  of->units_to_restart = of->interval;
}

static ptrdiff_t bits_left(const struct huffman *of) { return (of->clean_end - of->bits.at) * 8 + of->bits.count; }

/* Have at least 56 bits. Bits behind the counted ones are the file's as well. */
static inline void refill(struct bits *bits) {
  uint64_t bytes;
  memcpy(&bytes, bits->at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  bytes = __builtin_bswap64(bytes);
#endif
  bits->next |= bytes >> bits->count;
  bits->at += (63 - bits->count) >> 3;
  bits->count |= 56;
}

/* The entry of a code that is longer than LOOK; 0 if there is none, or if the bits begin with a shorter one. */
static uint32_t long_code(const struct table *table, uint64_t bits) {
  int length = LOOK + 1;
  while (length <= 16 && (int32_t)(bits >> (64 - length)) > table->most[length]) length++;
  if (length > 16) return 0;
  int32_t place = (int32_t)(bits >> (64 - length)) + table->values_before[length];
  return place < table->short_values || place > 255 ? 0 : entry_of(length, table->of.huffval[place]);
}

/* The number of an entry, negative if its first bit is 0; 0 of no bits. */
static inline int32_t number_of(const struct bits *bits, uint32_t entry) {
  int size = (int)(entry >> 6 & 15);
  uint64_t rest = bits->next << ((int)(entry & 63) - size);
  int32_t number = (int32_t)(rest >> 32 >> (32 - size)), is_negative = (int32_t)(~rest >> 63);
  return number - (is_negative << size) + is_negative;
}

static inline uint32_t next_entry(j_decompress_ptr info, const struct bits *bits, const struct table *table) {
  uint32_t entry = table->look[bits->next >> (64 - LOOK)];
  if (__builtin_expect(entry == 0, 0)) {
    entry = long_code(table, bits->next);
    if (entry == 0) give_up(info);
  }
  return entry;
}

static inline void pass(struct bits *bits, uint32_t entry) {
  bits->next <<= entry & 63;
  bits->count -= (int)(entry & 63);
}

/* Read a number to its place behind `at`, and return the place; past 63 behind the last one. Nothing is written to a
 * block that is NULL. */
static inline __attribute__((always_inline)) uint32_t read_number(j_decompress_ptr info, struct bits *bits,
                                                                  const struct table *table, uint32_t at,
                                                                  JCOEF *block) {
  uint32_t entry = next_entry(info, bits, table);
  at += entry >> 10;
  if (at < 64 && block != NULL) block[natural[at]] = (JCOEF)number_of(bits, entry);
  pass(bits, entry);
  return at;
}

static inline __attribute__((always_inline)) void read_block(j_decompress_ptr info, struct huffman *of, unsigned number,
                                                             JCOEF *block) {
  struct bits bits = of->bits; /* for the compiler to keep in registers */
  const struct table *ac = of->block[number].ac;
  int32_t *level = &of->last[of->block[number].part];
  refill(&bits);
  uint32_t entry = next_entry(info, &bits, of->block[number].dc);
  *level += number_of(&bits, entry);
  if (*level > MOST_LEVEL || *level < -MOST_LEVEL) give_up(info);
  if (block != NULL) block[0] = (JCOEF)*level;
  pass(&bits, entry);
  uint32_t at = read_number(info, &bits, ac, 0, block);
  while (at < 63) { /* two numbers are 54 bits at most */
    refill(&bits);
    at = read_number(info, &bits, ac, at, block);
    if (at < 63) at = read_number(info, &bits, ac, at, block);
  }
  if (at > 63 && at < BEHIND_BLOCK) give_up(info);
  of->bits = bits;
}

/* Give up unless the data ended where the marker is, but for the bits that fill the last byte. */
static void check_end(j_decompress_ptr info, const struct huffman *of) {
  if (bits_left(of) < 0 || bits_left(of) > 7) give_up(info);
}

static inline __attribute__((always_inline)) boolean read_unit(j_decompress_ptr info, JBLOCKROW *blocks) {
  struct huffman *of = ((struct decoder *)info->client_data)->huffman;
  if (of->units_left == 0) give_up(info);
  if (of->interval && of->units_to_restart == 0) {
    check_end(info, of);
    if (of->next[1] != 0xD0 + (of->restarts++ & 7)) give_up(info);
    of->next += 2;
    next_data(info, of);
  }
  for (unsigned each = 0; each < of->blocks; each++)
    if (blocks == NULL)
      read_block(info, of, each, NULL);
    else
      read_block(info, of, each, *blocks[each]);
  if (bits_left(of) < 0) give_up(info);
  of->units_to_restart--;
  if (--of->units_left == 0) {
    check_end(info, of);
    info->src->next_input_byte = of->next;
    info->src->bytes_in_buffer = (size_t)(of->end - of->next);
  }
  return TRUE;
}

static boolean read_plainly(j_decompress_ptr info, JBLOCKROW *blocks) { return read_unit(info, blocks); }

#ifdef __x86_64__
/* Shifts by a register take one step there, and three without. */
static __attribute__((target("bmi2"))) boolean read_by_bmi2(j_decompress_ptr info, JBLOCKROW *blocks) {
  return read_unit(info, blocks);
}
#endif

void huffman_begin(struct decoder *decoder) {
  j_decompress_ptr info = &decoder->info;
  struct huffman *of = decoder->huffman;
  if (info->progressive_mode || info->arith_code || info->data_precision != 8 || info->unread_marker != 0 ||
      info->comps_in_scan != info->num_components || jpeg_has_multiple_scans(info))
    return;
  if (room_of(&of->clean, info->src->bytes_in_buffer + MOST_UNIT) == NULL) return;
  of->blocks = (unsigned)info->blocks_in_MCU;
  for (unsigned each = 0; each < of->blocks; each++) {
    int part = info->MCU_membership[each], dc = info->cur_comp_info[part]->dc_tbl_no;
    int ac = info->cur_comp_info[part]->ac_tbl_no;
    make(&of->dc[dc], info->dc_huff_tbl_ptrs[dc]);
    make(&of->ac[ac], info->ac_huff_tbl_ptrs[ac]);
    of->block[each].dc = &of->dc[dc];
    of->block[each].ac = &of->ac[ac];
    of->block[each].part = part;
  }
  of->next = info->src->next_input_byte;
  of->end = of->next + info->src->bytes_in_buffer;
  of->units_left = info->MCUs_per_row * info->MCU_rows_in_scan;
  of->interval = info->restart_interval;
  of->restarts = 0;
  next_data(info, of);
  info->entropy->decode_mcu = read_plainly;
#ifdef __x86_64__
  if (__builtin_cpu_supports("bmi2")) info->entropy->decode_mcu = read_by_bmi2;
#endif
}

#else

void huffman_begin(struct decoder *decoder) { (void)decoder; }

#endif
