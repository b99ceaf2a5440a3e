// The coordinator of a run as a program on Solana. Everything an instruction brings is checked here, then the
// rules are asked: owner.h for the owner, receive.h for clients, phases.h for what follows.
#include "owner.h"

// What the instruction says, whole: its record and then `more` bytes.
static int fits(const Input *in, u64 record, u64 more) { return in->data_len == record + more; }

static u64 load(const Input *in, Run **run) {
    NEED(in->count >= 2, ERROR_TooFewAccounts);
    const Account *account = &in->accounts[1];
    NEED(signs(&in->accounts[0]), ERROR_NotSigned);
    NEED(writable(account), ERROR_NotWritable);
    NEED(same32(account->owner, in->program), ERROR_WrongOwner);
    NEED(*account->data_len >= GROWTH, ERROR_WrongSize);
    *run = (Run *)account->data;
    NEED((*run)->magic == RUN_MAGIC && (*run)->version == VERSION, ERROR_WrongVersion);
    return 0;
}

static u64 grants(Input *in, Run *run, u64 tag) {
    NEED(same32(in->accounts[0].key, run->join_authority), ERROR_NotTheJoinAuthority);
    if (tag == TAG_Authorize) {
        NEED(fits(in, sizeof(Authorize), 0), ERROR_BadInstruction);
        // Enough that the little account need not pay rent: (128 + its size) times two years of rent.
        return authorize(in, (const Authorize *)in->data, (128 + sizeof(Grant)) * 6960);
    }
    NEED(fits(in, sizeof(Revoke), 0), ERROR_BadInstruction);
    NEED(in->count >= 3, ERROR_TooFewAccounts);
    NEED(writable(&in->accounts[2]), ERROR_NotWritable);
    u64 wrong = check_grant(in, &in->accounts[2]);
    NEED(!wrong, wrong);
    close_account(&in->accounts[2], &in->accounts[0]);
    return 0;
}

static u64 free_coordinator(Input *in, Run *run) {
    NEED(fits(in, sizeof(FreeCoordinator), 0), ERROR_BadInstruction);
    int empty = run->phase == PHASE_WaitingForMembers && !run->pending_count;
    NEED(run->phase == PHASE_Unconfigured || halted(run) || empty, ERROR_StillRunning);
    close_account(&in->accounts[1], &in->accounts[0]);
    return 0;
}

// Of the owner, on an account that may still be growing.
static u64 make(Input *in, Run *run, u64 tag) {
    NEED(same32(in->accounts[0].key, run->authority), ERROR_NotTheOwner);
    if (tag == TAG_Grow) {
        NEED(fits(in, sizeof(Grow), 0), ERROR_BadInstruction);
        return grow(&in->accounts[1]);
    }
    return free_coordinator(in, run);
}

// Of the owner, on an account that is whole.
static u64 own(Input *in, Run *run, u64 tag, u64 now) {
    NEED(same32(in->accounts[0].key, run->authority), ERROR_NotTheOwner);
    if (tag == TAG_Draft) {
        NEED(in->data_len > sizeof(Draft), ERROR_BadInstruction);
        u64 len = in->data_len - sizeof(Draft), offset = ((const Draft *)in->data)->offset;
        NEED(offset <= RUN_FILE && len <= RUN_FILE - offset, ERROR_BadInstruction);
        sol_memcpy_(run->draft + offset, in->data + sizeof(Draft), len);
        return 0;
    }
    if (tag == TAG_Update) {
        NEED(fits(in, sizeof(Update), 0), ERROR_BadInstruction);
        return update(run, &((const Update *)in->data)->config, now);
    }
    NEED(fits(in, sizeof(SetPaused), 0), ERROR_BadInstruction);
    NEED(run->phase != PHASE_Unconfigured, ERROR_NotConfigured);
    u64 wrong = set_paused(run, ((const SetPaused *)in->data)->paused);
    NEED(!wrong, wrong);
    go_on(run, now);
    return 0;
}

static u64 join(Input *in, Run *run, u64 now) {
    const JoinRun *said = (const JoinRun *)in->data;
    const u8 *sender = in->accounts[0].key;
    NEED(in->data_len >= sizeof(JoinRun) && fits(in, sizeof(JoinRun), said->address_len), ERROR_BadInstruction);
    if (!run->open) {
        NEED(in->count >= 3, ERROR_NotGranted);
        u64 wrong = check_grant(in, &in->accounts[2]);
        NEED(!wrong, wrong);
        NEED(same32(((const Grant *)in->accounts[2].data)->grantee, sender), ERROR_WrongGrant);
    }
    return join_run(run, said, in->data + sizeof(JoinRun), sender, now);
}

// Of a client that takes part or waits.
static u64 hear(Input *in, Run *run, u64 tag, u64 now) {
    const u8 *sender = in->accounts[0].key, *data = in->data;
    u64 len = in->data_len;
    switch (tag) {
        case TAG_JoinRun: return join(in, run, now);
        case TAG_WarmupReady:
            NEED(fits(in, sizeof(WarmupReady), 0), ERROR_BadInstruction);
            return warmup_ready(run, (const WarmupReady *)data, sender, now);
        case TAG_Witness: {
            const WitnessSaid *said = (const WitnessSaid *)data;
            NEED(len >= sizeof(WitnessSaid), ERROR_BadInstruction);
            u64 more = (u64)said->participant_len + said->broadcast_len;
            NEED(fits(in, sizeof(WitnessSaid), more), ERROR_BadInstruction);
            return witness(run, said, data + sizeof(WitnessSaid), sender);
        }
        case TAG_HealthCheck: {
            const HealthCheck *said = (const HealthCheck *)data;
            NEED(len >= sizeof(HealthCheck) && said->count <= NAMED, ERROR_BadInstruction);
            NEED(fits(in, sizeof(HealthCheck), said->count * 2ull), ERROR_BadInstruction);
            return health_check(run, said, (const u16 *)(data + sizeof(HealthCheck)), sender, now);
        }
        case TAG_Checkpoint: {
            const CheckpointSaid *said = (const CheckpointSaid *)data;
            NEED(len >= sizeof(CheckpointSaid), ERROR_BadInstruction);
            NEED(fits(in, sizeof(CheckpointSaid), said->location_len), ERROR_BadInstruction);
            return checkpoint(run, said, data + sizeof(CheckpointSaid), sender);
        }
        case TAG_CallGone: {
            const CallGone *said = (const CallGone *)data;
            NEED(len >= sizeof(CallGone), ERROR_BadInstruction);
            NEED(said->gone_count <= NAMED && said->equivocated_count <= NAMED, ERROR_BadInstruction);
            u64 more = 2ull * (said->gone_count + said->equivocated_count);
            NEED(fits(in, sizeof(CallGone), more), ERROR_BadInstruction);
            return call_gone(run, said, (const u16 *)(data + sizeof(CallGone)), sender);
        }
        case TAG_Withdraw: NEED(fits(in, sizeof(Withdraw), 0), ERROR_BadInstruction); return withdraw(run, sender);
        default: return ERROR_BadInstruction;
    }
}

static u64 tick(Input *in, Run *run, u64 now) {
    NEED(fits(in, sizeof(Tick), 0), ERROR_BadInstruction);
    int left = let_go(run, now), went_on = go_on(run, now);
    NEED(left || went_on, ERROR_NothingDue);
    return 0;
}

static u64 process(Input *in) {
    NEED(in->data_len >= 8, ERROR_BadInstruction);
    u64 tag = *(const u64 *)in->data, now = clock_now();
    Run *run;
    if (tag == TAG_InitCoordinator) {
        NEED(in->data_len > sizeof(InitCoordinator), ERROR_BadInstruction);
        const u8 *run_id = in->data + sizeof(InitCoordinator);
        return init_coordinator(in, (const InitCoordinator *)in->data, run_id, in->data_len - sizeof(InitCoordinator));
    }
    u64 wrong = load(in, &run);
    NEED(!wrong, wrong);
    if (tag == TAG_Grow || tag == TAG_FreeCoordinator) return make(in, run, tag);
    NEED(*in->accounts[1].data_len == sizeof(Run), ERROR_WrongSize);
    if (tag == TAG_Authorize || tag == TAG_Revoke) return grants(in, run, tag);
    run->sequence++;
    if (tag >= TAG_Draft && tag <= TAG_SetPaused) return own(in, run, tag, now);
    NEED(run->phase != PHASE_Unconfigured, ERROR_NotConfigured);
    if (tag == TAG_Tick) return tick(in, run, now);
    wrong = hear(in, run, tag, now);
    NEED(!wrong, wrong);
    go_on(run, now);
    return 0;
}

u64 entrypoint(u8 *input) {
    Input in;
    u64 wrong = read_input(input, &in);
    return wrong ? wrong : process(&in);
}
