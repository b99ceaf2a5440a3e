// What closing a phase settles, what entering one sets up, and when: coordinator/phases.py and machine.py.
#pragma once
#include "members.h"

static int timed_out(const Run *run, u64 now, u64 limit) { return now >= run->phase_start + limit; }
static int too_few(const Run *run) { return active(run) < run->config.min_clients; }
static int done(const Run *run) { return run->progress.step >= run->config.total_steps; }

static int agreed(Run *run) {
    const Epoch *epoch = &run->epoch;
    u64 height = epoch->round_count - 1ull;
    if (BROKEN(handed_on_undrained) || BROKEN(drain_forgotten))
        return epoch->round_count && epoch->has_agreed && epoch->agreed_height == height;
    if (!epoch->has_last || !epoch->has_agreed || !epoch->round_count) return 0;
    return (u64)epoch->last_height + run->config.delay + 1 <= height && epoch->agreed_height == height;
}

static int drained(Run *run) {
    const Epoch *epoch = &run->epoch;
    if (!epoch->has_last) return 0;
    if (BROKEN(drain_forgotten)) return 1;
    u64 closing = (u64)epoch->last_height + run->config.delay + 1, height = epoch->round_count - 1ull;
    return active(run) == 0 || height >= closing + CLOSING_TRIES || agreed(run);
}

static int nothing_to_store(Run *run) { return !run->config.root_len || !agreed(run) || active(run) == 0; }

// Whether every elected witness was heard; nobody waits for one that is about to leave.
static int all_heard(Run *run) {
    Round *round = newest(run);
    Election *e = &round->election;
    Epoch *epoch = &run->epoch;
    u64 heard = 0, unheard = e->elected_count - (u64)round->witness_count;
    if (!unheard) return 1;
    if (unheard > epoch->leaving_count) return 0;
    for (u64 i = 0; i < round->witness_count; i++) heard |= 1ull << round->witnesses[i].position;
    for (u64 i = 0; i < epoch->leaving_count; i++) {
        u64 index = roster_index(e, epoch->leaving[i].place);
        u64 position = index == CLIENTS ? WITNESSES : elected_position(e, index);
        if (position == WITNESSES || heard >> position & 1) continue;
        heard |= 1ull << position;
        unheard--;
    }
    return unheard == 0;
}

static int all_ready(const Run *run) {
    const Epoch *epoch = &run->epoch;
    for (u64 place = 0; place < epoch->client_count; place++)
        if (!epoch->left[place] && !has(epoch->ready, place)) return 0;
    return 1;
}

// How long Warmup may last: proven clients that are ready wait less for the others. newcomers.py.
static u64 warmup_limit(const Run *run) {
    const Epoch *epoch = &run->epoch;
    u64 limit = run->config.warmup_time, proven = 0, part = run->last_epoch / PART_OF_EPOCH;
    for (u64 place = 0; place < epoch->client_count; place++) {
        if (epoch->left[place] || !is_proven(run, place)) continue;
        if (!has(epoch->ready, place)) return limit;
        proven++;
    }
    if (proven < run->config.clients_to_begin) return limit;
    u64 patience = 2 * epoch->proven_ready + (part > NEWCOMERS_GRACE ? part : NEWCOMERS_GRACE);
    return patience < limit ? patience : limit;
}

// The seed of what begins next. Nothing in it is up to who sends this instruction.
static u64 next_seed(const Run *run) {
    u64 place[3] = {run->epoch_number, run->phase, run->epoch.round_count};
    u64 digest[4];
    hash2(run->mix, 32, place, sizeof(place), (u8 *)digest);
    return digest[0];
}

// The hash that a quorum of the newest round's witnesses reported, or none.
static const u8 *agreed_model(const Round *round) {
    u64 enough = BROKEN(first_reporter_is_right) ? 1 : quorum(&round->election);
    for (u64 i = 0; i < round->witness_count; i++) {
        u64 count = 0;
        for (u64 j = i; j < round->witness_count; j++)
            count += same32(round->witnesses[i].model_hash, round->witnesses[j].model_hash);
        if (count >= enough) return round->witnesses[i].model_hash;
    }
    return 0;
}

static void let_silent_go(Run *run, u64 now) {
    Epoch *epoch = &run->epoch;
    for (u64 place = 0; place < epoch->client_count; place++)
        if (is_silent(run, &run->slots[epoch->clients[place]], now)) remove(run, place, LEFT_Silent);
}

// Without a quorum, the elected witnesses that said nothing leave; not when nobody said anything.
static void let_silent_witnesses_go(Run *run, const Round *round) {
    const Election *e = &round->election;
    u64 heard = 0;
    if (!round->witness_count || round->witness_count >= quorum(e)) return;
    for (u64 i = 0; i < round->witness_count; i++) heard |= 1ull << round->witnesses[i].position;
    fill_roster(run, e);
    for (u64 p = 0; p < e->elected_count; p++)
        if (!(heard >> p & 1)) remove(run, SCRATCH->roster[e->elected[p]], LEFT_SilentWitness);
}

// Too few were heard to attest anything; if nobody of them is proven, they are now. newcomers.py.
static void note_heard(Run *run, const Round *round) {
    u64 proven = 0;
    fill_roster(run, &round->election);
    for (u64 i = 0; i < round->witness_count; i++) proven += is_proven(run, SCRATCH->roster[round->witnesses[i].index]);
    for (u64 i = 0; i < round->witness_count && !proven; i++)
        put(run->proven, run->epoch.clients[SCRATCH->roster[round->witnesses[i].index]]);
}

static int must_end(Run *run, u64 now) {
    const Config *c = &run->config;
    int up = c->rounds_per_epoch ? run->epoch.round_count >= c->rounds_per_epoch
                                 : now >= run->epoch.started + c->epoch_time;
    return up || too_few(run) || done(run) || run->pause_wanted;
}

// Judge what the witnesses were asked about, then let go of those who left.
static void close_round(Run *run, u64 now) {
    Epoch *epoch = &run->epoch;
    Round *round = newest(run);
    u64 height = round->election.height, delay = run->config.delay;
    int enough = round->witness_count >= quorum(&round->election);
    if (run->expelled_count)
        for (u64 place = 0; place < epoch->client_count; place++)
            if (run->slots[epoch->clients[place]].expelled) put(round->void_places, place);
    if (height >= delay) {
        const Round *work = &epoch->rounds[(height - delay) % ROUNDS];
        if (work->span_count) judge(run, round, work);
    }
    const u8 *model = agreed_model(round);
    if (model) {
        copy32(run->model_hash, model);
        run->has_model = 1;
        epoch->has_agreed = 1;
        epoch->agreed_height = (u32)height;
    }
    if (!enough) note_heard(run, round);
    for (u64 i = 0; i < epoch->leaving_count; i++) remove(run, epoch->leaving[i].place, epoch->leaving[i].why);
    let_silent_go(run, now);
    let_silent_witnesses_go(run, round);
    epoch->leaving_count = 0;
    if (round->span_count) run->progress.step++;
    if (!epoch->has_last && (!enough || must_end(run, now))) {
        epoch->has_last = 1;
        epoch->last_height = (u32)height;
    }
}

static void clear_epoch(Epoch *epoch) {
    // The records of rounds stay as they are: counts say which of them mean something.
    sol_memset_(epoch, 0, __builtin_offsetof(Epoch, rounds));
}

// End the epoch: its clients wait for the next one, and slots of those who left are free.
static void release(Run *run, int trained) {
    Epoch *epoch = &run->epoch;
    Scratch *s = SCRATCH;
    int holding = run->has_model && run->checkpoint.source == SOURCE_P2P;
    u64 here = active(run), points = here ? run->config.points_per_epoch / here : 0;
    u64 i = 0, made = 0, heard = !trained || newest(run)->witness_count;
    for (u64 place = 0; place < epoch->client_count; place++) heard |= !epoch->left[place] && is_proven(run, place);
    for (u64 place = 0; place < epoch->client_count; place++) {
        u64 at = epoch->clients[place];
        Slot *slot = &run->slots[at];
        // Not a word of anybody: others may have their places, and who is there joins again.
        if (epoch->left[place] || !heard) {
            take_out(run->used, at);
            continue;
        }
        if (trained || has(epoch->ready, place)) {
            slot->has_model = (u8)holding;
            if (holding) copy32(slot->model_hash, run->model_hash);
        }
        if (trained) slot->points = points > ~slot->points ? ~0ull : slot->points + points;
        while (i < run->pending_count && order32(run->slots[run->pending[i]].id, slot->id) < 0)
            s->order[made++] = run->pending[i++];
        s->order[made++] = (u16)at;
    }
    while (i < run->pending_count) s->order[made++] = run->pending[i++];
    sol_memcpy_(run->pending, s->order, made * sizeof(u16));
    run->pending_count = (u32)made;
    run->epoch_number++;
    clear_epoch(epoch);
}

static void rewind_run(Run *run) {
    Checkpoint *kept = &run->checkpoint;
    kept->source = kept->location_len ? SOURCE_Stored : SOURCE_Ephemeral;
    if (!BROKEN(rewind_keeps_progress)) sol_memcpy_(&run->progress, &kept->progress, sizeof(Progress));
    run->has_model = kept->has_model;
    copy32(run->model_hash, kept->model_hash);
}

static int holds_newest(const Run *run, const Slot *slot) {
    if (!slot->has_model || !run->has_model) return !slot->has_model && !run->has_model;
    return same32(slot->model_hash, run->model_hash);
}

// How many clients of those who wait an epoch may have: newcomers as far as proven ones bear them.
static u64 places_for(const Run *run) {
    const Config *c = &run->config;
    u64 proven = 0, places = c->max_clients;
    for (u64 at = 0; at < run->pending_count; at++) proven += has(run->proven, run->pending[at]);
    if (proven > places) proven = places;
    if (!proven || !c->newcomers_percent || BROKEN(newcomers_crowd)) return places;
    u64 beside = proven * c->newcomers_percent / 100;
    if (c->clients_to_begin > proven + beside) beside = c->clients_to_begin - proven;
    if (!beside) beside = 1;
    return places < proven + beside ? places : proven + beside;
}

// SCRATCH->marked: who is chosen of those who wait; proven ones, then holders of the newest model, first.
static void choose(Run *run, u64 seed) {
    Scratch *s = SCRATCH;
    u64 waiting = run->pending_count, places = places_for(run), chosen = 0;
    if (waiting <= places) {
        sol_memset_(s->marked, 1, waiting);
        return;
    }
    sol_memset_(s->marked, 0, waiting);
    shuffle(waiting, seed);
    for (int rank = 3; rank >= 0; rank--)
        for (u64 k = 0; k < waiting && chosen < places; k++) {
            u64 at = s->order[k], slot = run->pending[at];
            if (2 * has(run->proven, slot) + holds_newest(run, &run->slots[slot]) != rank) continue;
            s->marked[at] = 1;
            chosen++;
        }
}

static void enter_warmup(Run *run, u64 now, u64 seed) {
    Epoch *epoch = &run->epoch;
    u64 waiting = run->pending_count, kept = 0, holders = 0;
    choose(run, seed);
    clear_epoch(epoch);
    for (u64 at = 0; at < waiting; at++) {
        u16 slot = run->pending[at];
        if (!SCRATCH->marked[at]) {
            run->pending[kept++] = slot;
            continue;
        }
        holders += holds_newest(run, &run->slots[slot]);
        run->slots[slot].seen = now;
        epoch->clients[epoch->client_count++] = slot;
    }
    run->pending_count = (u32)kept;
    if (run->checkpoint.source == SOURCE_P2P && !holders) rewind_run(run);
    epoch->started = now;
    elect(run, &epoch->warmup, BEFORE_ROUNDS, seed);
}

// The rounds begin with those who are ready, if they are enough.
static void let_unready_go(Run *run) {
    Epoch *epoch = &run->epoch;
    u64 ready = 0;
    for (u64 place = 0; place < epoch->client_count; place++)
        ready += !epoch->left[place] && has(epoch->ready, place);
    if (ready < run->config.min_clients || BROKEN(unready_stay)) return;
    for (u64 place = 0; place < epoch->client_count; place++)
        if (!has(epoch->ready, place)) remove(run, place, LEFT_NotReady);
}

static void enter_train(Run *run, u64 seed) {
    Epoch *epoch = &run->epoch;
    if (!epoch->round_count) let_unready_go(run);
    u64 height = epoch->round_count++;
    Round *round = newest(run);
    round->span_count = 0;
    round->weighted = 0;
    round->witness_count = 0;
    sol_memset_(round->void_places, 0, MASK);
    sol_memset_(epoch->score, 0, CLIENTS);
    elect(run, &round->election, height, seed);
    if (!epoch->has_last) {
        take_samples(run, round);
        if (run->config.work_by_speed) weigh(run, round);
    } else if (BROKEN(drain_uses_data)) run->progress.data_index++;
    forget_calls(epoch);
}

static void enter_cooldown(Run *run, u64 now, u64 seed) {
    Epoch *epoch = &run->epoch;
    run->last_epoch = now > epoch->started ? now - epoch->started : 0;
    elect(run, &epoch->cooldown, epoch->round_count, seed);
    if (agreed(run)) run->checkpoint.source = SOURCE_P2P;
    else rewind_run(run);
    epoch->has_cooldown = 1;
    forget_calls(epoch);
}

static void enter(Run *run, u64 phase, u64 now) {
    u64 seed = next_seed(run);
    switch (phase) {
        case PHASE_Paused:
        case PHASE_WaitingForMembers:
            if (run->epoch.client_count) release(run, 0);
            // Clients end with their run: it goes on with who comes, not with who was there.
            while (run->phase == PHASE_Finished && run->pending_count) drop_pending(run, run->pending_count - 1);
            break;
        case PHASE_Warmup: enter_warmup(run, now, seed); break;
        case PHASE_RoundTrain: enter_train(run, seed); break;
        case PHASE_Cooldown: enter_cooldown(run, now, seed); break;
        case PHASE_Finished:
            if (run->epoch.client_count) {
                run->checkpoint.source = SOURCE_P2P;
                release(run, 1);
            }
            break;
        default: break;
    }
    run->phase = (u32)phase;
    run->phase_start = now;
}

// Whether the present phase has served its purpose, or had its time.
static int over(Run *run, u64 now) {
    const Config *c = &run->config;
    switch (run->phase) {
        case PHASE_WaitingForMembers:
            return timed_out(run, now, c->waiting_time) && run->pending_count >= c->clients_to_begin;
        case PHASE_Warmup: return timed_out(run, now, warmup_limit(run)) || all_ready(run);
        case PHASE_RoundTrain:
            return timed_out(run, now, c->train_time) ||
                   newest(run)->witness_count >= quorum(&newest(run)->election) || all_heard(run);
        case PHASE_RoundWitness: return timed_out(run, now, c->witness_time) || all_heard(run);
        case PHASE_Cooldown:
            return timed_out(run, now, c->cooldown_time) || run->epoch.checkpointed || nothing_to_store(run);
        default: return 0;
    }
}

static u64 after_round(Run *run, u64 now) {
    close_round(run, now);
    if (!drained(run)) return PHASE_RoundTrain;
    return done(run) && agreed(run) && !run->config.root_len ? PHASE_Finished : PHASE_Cooldown;
}

static u64 after_cooldown(Run *run) {
    release(run, 1);
    if (done(run)) return PHASE_Finished;
    return run->pause_wanted ? PHASE_Paused : PHASE_WaitingForMembers;
}

// The phase that follows, if an edge of the core's table is due; else the present one.
static u64 due(Run *run, u64 now) {
    switch (run->phase) {
        case PHASE_WaitingForMembers:
            if (run->pause_wanted) return PHASE_Paused;
            return over(run, now) ? PHASE_Warmup : run->phase;
        case PHASE_Warmup:
            if (run->pause_wanted) return PHASE_Paused;
            if (too_few(run)) return PHASE_WaitingForMembers;
            return over(run, now) ? PHASE_RoundTrain : run->phase;
        case PHASE_RoundTrain: return over(run, now) ? PHASE_RoundWitness : run->phase;
        case PHASE_RoundWitness: return over(run, now) ? after_round(run, now) : run->phase;
        case PHASE_Cooldown: return over(run, now) ? after_cooldown(run) : run->phase;
        case PHASE_Paused:
            if (run->pause_wanted) return run->phase;
            return done(run) ? PHASE_Finished : PHASE_WaitingForMembers;
        case PHASE_Finished: return done(run) ? run->phase : PHASE_Paused;
        default: return run->phase;
    }
}

// Ask the table once; whether the run went on.
static int go_on(Run *run, u64 now) {
    u64 before = run->phase;
    u64 phase = due(run, now);
    if (phase == before) return 0;
    enter(run, phase, now);
    return 1;
}
