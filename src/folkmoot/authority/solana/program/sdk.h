// What the virtual machine offers: numbers, system calls, the accounts of an instruction.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#include "layout.h"
#include "mutants.h"

typedef struct {
    const void *at;
    u64 len;
} Bytes;

extern u64 sol_memcpy_(void *to, const void *from, u64 len);
extern u64 sol_memmove_(void *to, const void *from, u64 len);
extern u64 sol_memset_(void *to, u64 value, u64 len);
extern u64 sol_sha256(const Bytes *parts, u64 count, u8 *digest);
extern u64 sol_get_clock_sysvar(void *clock);
extern u64 sol_try_find_program_address(const Bytes *seeds, u64 count, const u8 *program, u8 *address, u8 *bump);
extern u64 sol_invoke_signed_c(const void *instruction, const void *accounts, u64 count, const void *seeds, u64 signers);

#define HEAP 0x300000000ull
#define ACCOUNTS 4
#define KEY 32

// Leave the function with an error code when a condition does not hold.
#define NEED(condition, code)      \
    do {                           \
        if (!(condition)) return (code); \
    } while (0)

typedef struct {
    const u8 *flags;  // duplicate, signer, writable, executable
    u8 *key;
    u8 *owner;
    u64 *lamports;
    u64 *data_len;
    u8 *data;
} Account;

typedef struct {
    Account accounts[ACCOUNTS];
    u64 count;
    const u8 *data;
    u64 data_len;
    const u8 *program;
} Input;

static int signs(const Account *a) { return a->flags[1]; }
static int writable(const Account *a) { return a->flags[2]; }

// Records in the account and keys in the input lie at multiples of 8.
static int same32(const u8 *a, const u8 *b) {
    const u64 *x = (const u64 *)a, *y = (const u64 *)b;
    return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static void copy32(u8 *to, const u8 *from) {
    const u64 *x = (const u64 *)from;
    u64 *y = (u64 *)to;
    y[0] = x[0], y[1] = x[1], y[2] = x[2], y[3] = x[3];
}

// As bytes compare: -1, 0 or 1.
static int order32(const u8 *a, const u8 *b) {
    for (u64 i = 0; i < 4; i++) {
        u64 x = __builtin_bswap64(((const u64 *)a)[i]), y = __builtin_bswap64(((const u64 *)b)[i]);
        if (x != y) return x < y ? -1 : 1;
    }
    return 0;
}

static u64 read_input(u8 *in, Input *out) {
    u64 count = *(u64 *)in;
    in += 8;
    NEED(count <= ACCOUNTS, ERROR_TooManyAccounts);
    out->count = count;
    for (u64 i = 0; i < count; i++) {
        Account *a = &out->accounts[i];
        if (in[0] != 0xff) {
            *a = out->accounts[in[0]];
            in += 8;
            continue;
        }
        a->flags = in;
        a->key = in + 8;
        a->owner = in + 40;
        a->lamports = (u64 *)(in + 72);
        a->data_len = (u64 *)(in + 80);
        a->data = in + 88;
        u64 size = *a->data_len + GROWTH;
        in += 88 + ((size + 7) & ~7ull) + 8;
    }
    out->data_len = *(u64 *)in;
    out->data = in + 8;
    out->program = out->data + out->data_len;
    return 0;
}

// Milliseconds since 1970. A clock before that or far away is cut off, so that sums stay small.
static u64 clock_now(void) {
    u64 clock[5];
    sol_get_clock_sysvar(clock);
    u64 seconds = clock[4];
    if (seconds >> 63) return 0;
    return (seconds > (1ull << 40) ? 1ull << 40 : seconds) * 1000;
}
