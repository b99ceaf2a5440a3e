// Who is elected and in which order work is dealt: core/shuffle.py and core/coordinator/committee.py.
#pragma once
#include "sdk.h"

#define SHUFFLE_ROUNDS 90

// The heap: what one instruction computes with and nobody keeps.
typedef struct {
    u64 pivots[SHUFFLE_ROUNDS];
    u64 sources[SHUFFLE_ROUNDS][4];
    u64 keys[CLIENTS];
    u64 sizes[CLIENTS];
    u16 order[SLOTS];
    u8 roster[CLIENTS];
    u8 marked[SLOTS];
    Span spans[CLIENTS + 2 * SPANS];
    Span merged[CLIENTS + 3 * SPANS];
} Scratch;
_Static_assert(sizeof(Scratch) <= 32768, "");
#define SCRATCH ((Scratch *)HEAP)

static int has(const u8 *mask, u64 at) { return mask[at >> 3] >> (at & 7) & 1; }
static void put(u8 *mask, u64 at) { mask[at >> 3] |= (u8)(1 << (at & 7)); }
static void take_out(u8 *mask, u64 at) { mask[at >> 3] &= (u8)~(1 << (at & 7)); }

static u64 ones(u64 x) {
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return x * 0x0101010101010101ull >> 56;
}

// How many of the places below `at` are in the mask.
static u64 count_below(const u8 *mask, u64 at) {
    const u64 *words = (const u64 *)mask;
    u64 count = 0;
    for (u64 i = 0; i < at >> 6; i++) count += ones(words[i]);
    if (at & 63) count += ones(words[at >> 6] & ((1ull << (at & 63)) - 1));
    return count;
}

static void hash2(const void *a, u64 a_len, const void *b, u64 b_len, u8 *digest) {
    Bytes parts[2] = {{a, a_len}, {b, b_len}};
    sol_sha256(parts, 2, digest);
}

// Pivots and bits of swap-or-not over `total` (at most 256) under a salted seed.
static void prepare_swaps(const u8 *salted, u64 total) {
    Scratch *s = SCRATCH;
    u64 digest[4];
    u64 tail = 0;
    for (u64 r = 0; r < SHUFFLE_ROUNDS; r++) {
        tail = r;
        hash2(salted, 32, &tail, 1, (u8 *)digest);
        s->pivots[r] = digest[0] % total;
        hash2(salted, 32, &tail, 5, (u8 *)s->sources[r]);
    }
}

static u64 swap_once(u64 index, u64 r, u64 total) {
    const Scratch *s = SCRATCH;
    u64 pivot = s->pivots[r];
    u64 flip = pivot >= index ? pivot - index : pivot + total - index;
    u64 position = index > flip ? index : flip;
    return s->sources[r][position >> 6] >> (position & 63) & 1 ? flip : index;
}

static u64 position_of(u64 index, u64 total) {
    for (u64 r = 0; r < SHUFFLE_ROUNDS; r++) index = swap_once(index, r, total);
    return index;
}

// Each swap undoes itself, so the other way round finds who stands at a position.
static u64 index_at(u64 position, u64 total) {
    for (u64 r = SHUFFLE_ROUNDS; r-- > 0;) position = swap_once(position, r, total);
    return position;
}

static void witness_salt(u64 seed, u8 *salted) {
    u8 inner[32] __attribute__((aligned(8)));
    hash2(&seed, 8, "", 0, inner);
    hash2(inner, 32, "witness", 7, salted);
}

static void cooldown_salt(u64 seed, u8 *salted) {
    u8 inner[32] __attribute__((aligned(8)));
    hash2(&seed, 8, "", 0, inner);
    hash2(inner, 32, "", 0, salted);
    hash2(salted, 32, "cooldown", 8, inner);
    copy32(salted, inner);
}

// Who is there, and who of them witnesses.
static void elect(Run *run, Election *e, u64 height, u64 seed) {
    Epoch *epoch = &run->epoch;
    u64 nodes = run->config.witness_nodes ? run->config.witness_nodes : WITNESSES;
    u8 salted[32] __attribute__((aligned(8)));
    e->seed = seed;
    e->height = (u32)height;
    e->step = run->progress.step;
    copy32(e->absent, epoch->absent);
    e->size = epoch->client_count - epoch->absent_count;
    e->elected_count = (u32)(nodes < e->size ? nodes : e->size);
    if (!e->size) return;
    witness_salt(seed, salted);
    prepare_swaps(salted, e->size);
    for (u64 p = 0; p < e->elected_count; p++) e->elected[p] = (u16)index_at(p, e->size);
}

// The elected position of a roster index, or WITNESSES.
static u64 elected_position(const Election *e, u64 index) {
    for (u64 p = 0; p < e->elected_count; p++)
        if (e->elected[p] == index) return p;
    return WITNESSES;
}

static u64 quorum(const Election *e) {
    u64 n = e->elected_count, thirds = 2 * n / 3, majority = n / 2 + 1;
    if (BROKEN(quorum_of_one)) return 1;
    return thirds > majority ? thirds : majority;
}

// The roster index of a place, or CLIENTS when it was absent.
static u64 roster_index(const Election *e, u64 place) {
    if (has(e->absent, place)) return CLIENTS;
    return place - count_below(e->absent, place);
}

// The places of a roster, by index.
static void fill_roster(const Run *run, const Election *e) {
    u64 index = 0;
    for (u64 place = 0; place < run->epoch.client_count; place++)
        if (!has(e->absent, place)) SCRATCH->roster[index++] = (u8)place;
}

// Fisher-Yates with the linear congruential generator.
static void shuffle(u64 count, u64 seed) {
    u16 *order = SCRATCH->order;
    for (u64 i = 0; i < count; i++) order[i] = (u16)i;
    for (u64 i = count; i-- > 1;) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        u64 j = seed % (i + 1);
        u16 other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
}

// The k-th largest of the keys (k from 1), found bit by bit.
static u64 kth_largest(u64 count, u64 k, u64 bits) {
    const u64 *keys = SCRATCH->keys;
    u64 found = 0;
    while (bits-- > 0) {
        u64 guess = found | 1ull << bits, above = 0;
        for (u64 i = 0; i < count; i++) above += keys[i] >= guess;
        if (above >= k) found = guess;
    }
    return found;
}
