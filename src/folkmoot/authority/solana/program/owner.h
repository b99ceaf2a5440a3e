// What the owner and the join authority do: make, configure, grant, close.
#pragma once
#include "receive.h"

#define SECONDS_MAX_MS 4000000000ull
#define SYSTEM_ASSIGN 1
#define SYSTEM_TRANSFER 2
#define SYSTEM_ALLOCATE 8

typedef struct {
    const u8 *key;
    u8 writable;
    u8 signer;
} Meta;

typedef struct {
    const u8 *program;
    const Meta *accounts;
    u64 account_count;
    const u8 *data;
    u64 data_len;
} Instruction;

typedef struct {
    u8 *key;
    u64 *lamports;
    u64 data_len;
    u8 *data;
    u8 *owner;
    u64 rent_epoch;
    u8 signer, writable, executable;
} Info;

static Info info(const Account *a) {
    Info made = {a->key, a->lamports, *a->data_len, a->data, a->owner, 0, a->flags[1], a->flags[2], a->flags[3]};
    return made;
}

// An account to be made: at the address that `seeds` give, for `payer` to pay.
typedef struct {
    const Account *payer, *made, *system;
    const Bytes *seeds;
    u64 seed_count, lamports, size;
    const u8 *program;
} Making;

// Ask the system program: to transfer as the payer, or else as the new account itself.
static u64 ask_system(const Making *m, const u8 *data, u64 len) {
    int transfer = data[0] == SYSTEM_TRANSFER;
    Meta metas[2] = {{m->payer->key, 1, 1}, {m->made->key, 1, !transfer}};
    Instruction instruction = {m->system->key, transfer ? metas : metas + 1, transfer ? 2 : 1, data, len};
    Info infos[3] = {info(m->payer), info(m->made), info(m->system)};
    Bytes signer = {m->seeds, m->seed_count};
    return sol_invoke_signed_c(&instruction, infos, 3, &signer, transfer ? 0 : 1);
}

// Also when somebody has sent lamports to the address before: so nobody can keep a name from its run.
static u64 make_account(const Making *m) {
    u64 data[5], had = *m->made->lamports, failed;
    u8 *bytes = (u8 *)data;
    if (had < m->lamports) {
        u64 missing = m->lamports - had;
        ((u32 *)data)[0] = SYSTEM_TRANSFER;
        sol_memcpy_(bytes + 4, &missing, 8);
        failed = ask_system(m, bytes, 12);
        NEED(!failed, failed);
    }
    ((u32 *)data)[0] = SYSTEM_ALLOCATE;
    sol_memcpy_(bytes + 4, &m->size, 8);
    failed = ask_system(m, bytes, 12);
    NEED(!failed, failed);
    ((u32 *)data)[0] = SYSTEM_ASSIGN;
    sol_memcpy_(bytes + 4, m->program, 32);
    return ask_system(m, bytes, 36);
}

static int is_zero32(const u8 *key) {
    const u64 *x = (const u64 *)key;
    return !(x[0] | x[1] | x[2] | x[3]);
}

static u64 init_coordinator(Input *in, const InitCoordinator *said, const u8 *run_id, u64 len) {
    NEED(in->count >= 3, ERROR_TooFewAccounts);
    Account *payer = &in->accounts[0], *made = &in->accounts[1], *system = &in->accounts[2];
    NEED(signs(payer), ERROR_NotSigned);
    NEED(writable(made), ERROR_NotWritable);
    NEED(is_zero32(system->key), ERROR_NoSystemProgram);
    NEED(is_name(run_id, len), REFUSE_WrongRun);
    u8 digest[32] __attribute__((aligned(8))), address[32] __attribute__((aligned(8))), bump = 0;
    hash2(run_id, len, "", 0, digest);
    Bytes seeds[3] = {{"coordinator", 11}, {digest, 32}, {&bump, 1}};
    NEED(!sol_try_find_program_address(seeds, 2, in->program, address, &bump), ERROR_WrongAddressOfAccount);
    NEED(same32(address, made->key), ERROR_WrongAddressOfAccount);
    NEED(is_zero32(made->owner) && *made->data_len == 0, ERROR_AlreadyThere);
    Making making = {payer, made, system, seeds, 3, said->lamports, GROWTH, in->program};
    u64 failed = make_account(&making);
    NEED(!failed, failed);
    Run *run = (Run *)made->data;
    run->magic = RUN_MAGIC;
    run->version = VERSION;
    copy32(run->authority, payer->key);
    copy32(run->join_authority, said->join_authority);
    run->open = said->open != 0;
    run->run_id_len = (u32)len;
    sol_memcpy_(run->run_id, run_id, len);
    // The first seed: of nobody's choosing but whoever chose the name.
    copy32(run->mix, digest);
    return 0;
}

static u64 grow(Account *account) {
    u64 size = *account->data_len, full = sizeof(Run);
    NEED(size < full && size % GROWTH == 0, ERROR_WrongSize);
    u64 more = full - size < GROWTH ? full - size : GROWTH;
    *account->data_len = size + more;
    sol_memset_(account->data + size, 0, more);
    return 0;
}

static int good_time(u64 ms, u64 least) { return ms >= least && ms < SECONDS_MAX_MS; }

static int good_times(const Config *c) {
    if (!good_time(c->epoch_time, 1) || !good_time(c->train_time, 1) || !good_time(c->witness_time, 1)) return 0;
    if (!good_time(c->cooldown_time, 1) || !good_time(c->health_timeout, 1)) return 0;
    if (!good_time(c->warmup_time, 0) || !good_time(c->waiting_time, 0)) return 0;
    if (!c->rounds_per_epoch) return c->warmup_time < c->epoch_time && c->train_time < c->epoch_time;
    return c->rounds_per_epoch < (SECONDS_MAX_MS - c->warmup_time) / (c->train_time + c->witness_time) + 1;
}

static int good_members(const Config *c) {
    if (c->min_clients < 1 || c->max_clients < 1 || c->max_clients > CLIENTS) return 0;
    if (c->clients_to_begin < c->min_clients || c->clients_to_begin > c->max_clients) return 0;
    if (c->newcomers_percent > 10000) return 0;
    return c->witness_nodes <= WITNESSES && c->witness_nodes <= c->min_clients;
}

static int good_work(const Config *c) {
    if (c->total_steps < 1 || c->delay > ROUNDS - 2 || c->work_by_speed > 1) return 0;
    if (c->batch_start < 1 || c->batch_end < c->batch_start || c->batch_end >> 31) return 0;
    if (c->max_seq_len < 1 || c->max_seq_len >> 31) return 0;
    if ((u64)c->batch_end * c->max_seq_len > (1ull << 60) / c->total_steps) return 0;
    u64 ramp = c->batch_end - c->batch_start;
    return c->warmup_tokens < 1ull << 53 && (!ramp || c->warmup_tokens <= (1ull << 61) / ramp);
}

static int good_config(const Config *c) {
    if (c->root_len > ROOT || c->start_len > LOCATION || c->run_len > RUN_FILE || !c->run_len) return 0;
    return good_times(c) && good_members(c) && good_work(c);
}

static int same_text(const u8 *a, u64 a_len, const u8 *b, u64 b_len) {
    if (a_len != b_len) return 0;
    for (u64 i = 0; i < a_len; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}

static void begin_with(Run *run, const Config *c) {
    Checkpoint *kept = &run->checkpoint;
    sol_memset_(kept, 0, sizeof(Checkpoint));
    kept->source = c->start_len ? SOURCE_Stored : SOURCE_Ephemeral;
    kept->location_len = c->start_len;
    sol_memcpy_(kept->location, c->start, c->start_len);
}

static u64 update(Run *run, const Config *c, u64 now) {
    const Config *old = &run->config;
    u8 digest[32] __attribute__((aligned(8)));
    NEED(good_config(c), REFUSE_BadConfig);
    hash2(run->draft, c->run_len, "", 0, digest);
    NEED(same32(digest, c->run_hash), ERROR_DraftDiffers);
    int first = run->phase == PHASE_Unconfigured;
    int made = c->max_seq_len != old->max_seq_len || !same32(c->made_of, old->made_of) ||
               !same_text(c->start, c->start_len, old->start, old->start_len);
    int computed = c->delay != old->delay || c->witness_nodes != old->witness_nodes ||
                   !same32(c->computed_with, old->computed_with) ||
                   !same_text(c->root, c->root_len, old->root, old->root_len);
    NEED(first || !in_epoch(run) || !(made || computed), REFUSE_NotHalted);
    int trained = run->progress.step > 0 || run->checkpoint.source == SOURCE_P2P;
    NEED(first || !made || !trained, REFUSE_Trained);
    if (first || made) begin_with(run, c);
    sol_memcpy_(&run->config, c, sizeof(Config));
    sol_memset_(run->run, 0, RUN_FILE);
    sol_memcpy_(run->run, run->draft, c->run_len);
    if (first) {
        run->phase = PHASE_WaitingForMembers;
        run->phase_start = now;
        return 0;
    }
    // A finished run that is given more steps waits for the owner, like a paused one.
    if (halted(run)) run->pause_wanted = 1;
    go_on(run, now);
    return 0;
}

static u64 set_paused(Run *run, u64 paused) {
    if (!paused) {
        NEED(run->pause_wanted, REFUSE_NotPausing);
        run->pause_wanted = 0;
        return 0;
    }
    NEED(run->phase != PHASE_Finished, REFUSE_Finished);
    NEED(!run->pause_wanted, REFUSE_AlreadyPausing);
    run->pause_wanted = 1;
    return 0;
}

static void close_account(Account *account, Account *to) {
    *to->lamports += *account->lamports;
    *account->lamports = 0;
    *account->data_len = 0;
}

static u64 authorize(Input *in, const Authorize *said, u64 lamports) {
    NEED(in->count >= 4, ERROR_TooFewAccounts);
    Account *payer = &in->accounts[0], *made = &in->accounts[2], *system = &in->accounts[3];
    u8 address[32] __attribute__((aligned(8))), bump = 0;
    Bytes seeds[4] = {{"grant", 5}, {in->accounts[1].key, 32}, {said->grantee, 32}, {&bump, 1}};
    NEED(is_zero32(system->key), ERROR_NoSystemProgram);
    NEED(writable(made), ERROR_NotWritable);
    NEED(!sol_try_find_program_address(seeds, 3, in->program, address, &bump), ERROR_WrongAddressOfAccount);
    NEED(same32(address, made->key), ERROR_WrongAddressOfAccount);
    NEED(is_zero32(made->owner) && *made->data_len == 0, ERROR_AlreadyThere);
    Making making = {payer, made, system, seeds, 4, lamports, sizeof(Grant), in->program};
    u64 failed = make_account(&making);
    NEED(!failed, failed);
    Grant *grant = (Grant *)made->data;
    grant->magic = GRANT_MAGIC;
    grant->version = VERSION;
    copy32(grant->coordinator, in->accounts[1].key);
    copy32(grant->grantee, said->grantee);
    return 0;
}

static u64 check_grant(const Input *in, const Account *account) {
    NEED(same32(account->owner, in->program) && *account->data_len == sizeof(Grant), ERROR_NotGranted);
    const Grant *grant = (const Grant *)account->data;
    NEED(grant->magic == GRANT_MAGIC && grant->version == VERSION, ERROR_NotGranted);
    NEED(same32(grant->coordinator, in->accounts[1].key), ERROR_WrongGrant);
    return 0;
}
