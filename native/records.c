/* TFRecords: a batch of records, their checksums, and the features of the tf.train.Example in each, by one call.
 *
 * What is taken: a record whose checksum is right, and whose message is written as every library writes it: each key
 * once, in ASCII, each feature of one kind. All of the message is looked at, as Python does. What is not: any other
 * message. It is left empty, and Python reads that record again, and says what is wrong. */
#include "autopipe.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* -------------------- CRC-32C */

struct crc {
  uint32_t tables[8][256]; /* of eight bytes at a time */
  int simd;
};

#if defined(__x86_64__)
static int has_crc(void) { return __builtin_cpu_supports("sse4.2"); }

__attribute__((target("sse4.2"))) static uint32_t crc_by_processor(const uint8_t *bytes, size_t size) {
  uint64_t crc = 0xFFFFFFFF, word;
  for (; size >= sizeof word; size -= sizeof word, bytes += sizeof word) {
    memcpy(&word, bytes, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  for (; size > 0; size--, bytes++) crc = _mm_crc32_u8((uint32_t)crc, *bytes);
  return ~(uint32_t)crc;
}
#else
static int has_crc(void) { return 0; }
#endif

static void make_tables(struct crc *crc) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    crc->tables[0][byte] = value;
  }
  for (int at = 1; at < 8; at++)
    for (int byte = 0; byte < 256; byte++) {
      uint32_t before = crc->tables[at - 1][byte];
      crc->tables[at][byte] = before >> 8 ^ crc->tables[0][before & 255];
    }
}

static uint32_t word_of(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static uint32_t crc_of(const struct crc *crc, const uint8_t *bytes, size_t size) {
#if defined(__x86_64__)
  if (crc->simd) return crc_by_processor(bytes, size);
#endif
  uint32_t value = 0xFFFFFFFF;
  for (; size >= 8; size -= 8, bytes += 8) {
    uint32_t low = value ^ word_of(bytes), high = word_of(bytes + 4);
    value = 0;
    for (int at = 0; at < 4; at++) {
      value ^= crc->tables[7 - at][low >> 8 * at & 255];
      value ^= crc->tables[3 - at][high >> 8 * at & 255];
    }
  }
  for (; size > 0; size--, bytes++) value = value >> 8 ^ crc->tables[0][(value ^ *bytes) & 255];
  return ~value;
}

/* -------------------- tf.train.Example */

#define MOST_BYTES (INT64_C(1) << 40) /* of a batch's records */

enum { BYTES = 0x0A, FLOATS = 0x12, NUMBERS = 0x1A }; /* the tags of a feature's kinds */

struct part {
  const uint8_t *at, *end;
};

static int take_varint(struct part *from, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64 && from->at < from->end; shift += 7) {
    uint64_t byte = *from->at++;
    *value |= (byte & 127) << shift;
    if (byte < 128) return shift < 63 || byte == 1;
  }
  return 0;
}

/* Take a field that has the given tag, and its length in front of it; return 0 if another comes, or it is cut short. */
static int take(struct part *from, uint8_t tag, struct part *to) {
  uint64_t size;
  if (from->at == from->end || *from->at != tag) return 0;
  const uint8_t *begin = ++from->at;
  if (!take_varint(from, &size) || from->at - begin > 5 || size > (uint64_t)(from->end - from->at)) return 0;
  *to = (struct part){from->at, from->at + size};
  from->at += size;
  return 1;
}

/* Read a list of values of a kind; return how many, or -1 if it is damaged. `last` gets the last string of bytes, and
 * `number` the last number. */
static int64_t listed(struct part list, int kind, struct part *last, uint64_t *number) {
  int64_t count = 0;
  while (list.at < list.end) {
    struct part several = {list.at, list.at};
    if (kind == BYTES) {
      if (!take(&list, 0x0A, last)) return -1;
      count++;
    } else if (kind == FLOATS) { /* which nobody asks for */
      int alone = *list.at == 0x0D && list.end - list.at >= 5;
      if (alone) list.at += 5;
      if (!alone && (!take(&list, 0x0A, &several) || (several.end - several.at) % 4 != 0)) return -1;
    } else {
      if (*list.at == 0x08) {
        list.at++;
        if (!take_varint(&list, number)) return -1;
        count++;
      } else if (!take(&list, 0x0A, &several)) {
        return -1;
      }
      for (; several.at < several.end; count++)
        if (!take_varint(&several, number)) return -1;
    }
  }
  return count;
}

/* Find features in a record, each in a span of its own, `apart` spans from the one before; return 0 if one is not there
 * or the message is of another form. */
static int found_in(struct part record, const struct autopipe_feature *features, int64_t count,
                    struct autopipe_span *spans, int64_t apart) {
  struct part all, entry, key, value, list, last = {NULL, NULL};
  int64_t found = 0;
  if (!take(&record, 0x0A, &all) || record.at != record.end) return 0;
  while (all.at < all.end) {
    if (!take(&all, 0x0A, &entry) || !take(&entry, 0x0A, &key) || !take(&entry, 0x12, &value)) return 0;
    if (entry.at != entry.end) return 0;
    for (const uint8_t *letter = key.at; letter < key.end; letter++)
      if (*letter > 127) return 0;
    int kind = value.at < value.end ? *value.at : BYTES;
    uint64_t number = 0;
    if (kind != BYTES && kind != FLOATS && kind != NUMBERS) return 0;
    list = value;
    if (value.at < value.end && (!take(&value, (uint8_t)kind, &list) || value.at != value.end)) return 0;
    int64_t values = listed(list, kind, &last, &number);
    if (values < 0) return 0;
    for (int64_t each = 0; each < count; each++) {
      const struct autopipe_feature *wanted = features + each;
      struct autopipe_span *span = spans + each * apart;
      if (key.end - key.at != wanted->key_bytes || memcmp(key.at, wanted->key, (size_t)wanted->key_bytes) != 0) continue;
      if (span->data != NULL || values != 1 || kind != (wanted->is_number ? NUMBERS : BYTES)) return 0;
      span->data = wanted->is_number ? key.at : last.at;
      span->size = wanted->is_number ? 1 : last.end - last.at;
      span->offset = (int64_t)number;
      found++;
    }
  }
  return found == count;
}

/* Read records, which are spans of files or memory: the data of each, and its checksum of 4 bytes. Write `count` times `rows`
 * spans to `found`: the bytes of the first feature in each record, then those of the second; of a number, `offset` is
 * its value. All spans of a record that is left are empty. The bytes of files
 * belong to the scratch, until the next call. */
AUTOPIPE_API void autopipe_features(const struct autopipe_span *records, int64_t rows,
                                    const struct autopipe_feature *features, int64_t count,
                                    struct autopipe_span *found, struct autopipe_scratch *scratch) {
  struct crc crc = {.simd = scratch->simd && has_crc()};
  int64_t all = 0;
  memset(found, 0, (size_t)(rows * count) * sizeof *found);
  for (int64_t row = 0; row < rows; row++) {
    if (records[row].size < 4 || records[row].size > MOST_BYTES - all) return;
    all += records[row].size;
  }
  drop_large(&scratch->records);
  if (!crc.simd) make_tables(&crc);
  if (room_of(&scratch->records, (size_t)all + 1) == NULL) return;
  for (int64_t row = 0, at = 0; row < rows; at += records[row++].size) {
    const uint8_t *data = records[row].data;
    size_t size = (size_t)records[row].size;
    if (data == NULL && read_span(&scratch->records, (size_t)at, records + row, &data, &size) != FINE) continue;
    uint32_t sum = crc_of(&crc, data, size - 4);
    if (CHECKS && (sum >> 15 | sum << 17) + 0xA282EAD8u != word_of(data + size - 4)) continue;
    if (found_in((struct part){data, data + size - 4}, features, count, found + row, rows)) continue;
    for (int64_t each = 0; each < count; each++) memset(found + each * rows + row, 0, sizeof *found);
  }
}
