/* The text of rows: times, fields of plain ASCII, and copies of short text. */
#ifndef RP_ROWTEXT_H
#define RP_ROWTEXT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

enum {
    RP_TICKS = 10000000, /* per second: the resolution of a time in a row */
    RP_DECIMALS = 7,
    RP_STAMP_SIZE = 32, /* bytes, whole blocks: enough for all times of a clock */
    RP_BLOCK = 16 /* bytes that the processor copies at once */
};

static const uint64_t RP_ONES = 0x0101010101010101; /* a one in each byte */

typedef struct {
    char text[RP_STAMP_SIZE];
    ssize_t size; /* 0 before the first time */
    uint64_t second;
} rp_stamp;

static inline uint64_t rp_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * RP_TICKS + (uint64_t)now.tv_nsec / 100;
}

static inline void rp_set_time(rp_stamp *stamp, uint64_t ticks) {
    uint64_t second = ticks / RP_TICKS;
    uint32_t decimals = (uint32_t)(ticks - second * RP_TICKS);
    if (stamp->size == 0 || second != stamp->second) {
        stamp->size = snprintf(stamp->text, sizeof stamp->text, "%" PRIu64 ".0000000", second);
        stamp->second = second;
    }
    char *digit = stamp->text + stamp->size;
    for (int place = 0; place < RP_DECIMALS; place++, decimals /= 10) {
        *--digit = (char)('0' + decimals % 10);
    }
}

/* Whether one of eight ASCII characters is a control character, a comma or a quote. Only such a character gets its
 * highest bit set by these sums, and only from there do they carry over. */
static inline bool rp_is_odd(uint64_t word) {
    return (((word - 0x20 * RP_ONES) | ((word ^ ',' * RP_ONES) - RP_ONES) | ((word ^ '"' * RP_ONES) - RP_ONES)
             | (word + RP_ONES)) & (0x80 * RP_ONES)) != 0;
}

/* Whether a field may contain this ASCII text unchanged. */
static inline bool rp_is_plain(const char *start, ssize_t size) {
    uint64_t word;
    for (; size >= 8; start += 8, size -= 8) {
        memcpy(&word, start, 8);
        if (rp_is_odd(word)) {
            return false;
        }
    }
    word = ' ' * RP_ONES;
    memcpy(&word, start, (size_t)size);
    return !rp_is_odd(word);
}

/* Copies to `end`, and returns the new end. */
static inline char *rp_put(char *end, const char *start, ssize_t size) {
    memcpy(end, start, (size_t)size);
    return end + size;
}

/* Copies in whole blocks, for which both sides must have room: several times as fast. */
static inline char *rp_put_blocks(char *end, const char *start, ssize_t size) {
    for (ssize_t place = 0; place < size; place += RP_BLOCK) {
        memcpy(end + place, start + place, RP_BLOCK);
    }
    return end + size;
}

#endif
