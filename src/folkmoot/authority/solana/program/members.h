// Clients: those who wait, those of the epoch, and how they leave. core/coordinator/absence.py.
#pragma once
#include "work.h"

#define NOBODY SLOTS

static int in_epoch(const Run *run) {
    u64 p = run->phase;
    return p == PHASE_Warmup || p == PHASE_RoundTrain || p == PHASE_RoundWitness || p == PHASE_Cooldown;
}
static int in_round(const Run *run) { return run->phase == PHASE_RoundTrain || run->phase == PHASE_RoundWitness; }
static int halted(const Run *run) { return run->phase == PHASE_Paused || run->phase == PHASE_Finished; }
static u64 active(const Run *run) { return run->epoch.client_count - run->epoch.absent_count; }
static Round *newest(Run *run) { return &run->epoch.rounds[(run->epoch.round_count - 1) % ROUNDS]; }

// The first at `list` of slots, sorted by id, whose id is not below `id`.
static u64 first_not_below(const Run *run, const u16 *list, u64 count, const u8 *id) {
    u64 low = 0, high = count;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (order32(run->slots[list[middle]].id, id) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static u64 find(const Run *run, const u16 *list, u64 count, const u8 *id) {
    u64 at = first_not_below(run, list, count, id);
    return at < count && same32(run->slots[list[at]].id, id) ? at : NOBODY;
}

static u64 find_pending(const Run *run, const u8 *id) { return find(run, run->pending, run->pending_count, id); }

// The place of a client that is in this epoch and has not left, or NOBODY.
static u64 member(const Run *run, const u8 *id) {
    if (!in_epoch(run)) return NOBODY;
    u64 place = find(run, run->epoch.clients, run->epoch.client_count, id);
    return place == NOBODY || run->epoch.left[place] ? NOBODY : place;
}

static int is_proven(const Run *run, u64 place) { return has(run->proven, run->epoch.clients[place]); }

// Whether a client that joins has worked in this epoch, and left for no idleness: newcomers.py.
static int has_worked(const Run *run, const u8 *id) {
    u64 place = find(run, run->epoch.clients, run->epoch.client_count, id);
    if (place == NOBODY || !is_proven(run, place)) return 0;
    u64 left = run->epoch.left[place];
    return left != LEFT_NotReady && left != LEFT_Unhealthy && left != LEFT_SilentWitness;
}

// Of those who wait, the first whose place a proven client may have.
static u64 gives_way(const Run *run) {
    for (u64 at = 0; at < run->pending_count; at++)
        if (!has(run->proven, run->pending[at])) return at;
    return NOBODY;
}

static u64 free_slot(const Run *run) {
    for (u64 at = 0; at < SLOTS; at += 8) {
        if (run->used[at >> 3] == 0xff) continue;
        while (has(run->used, at)) at++;
        return at;
    }
    return NOBODY;
}

static void drop_pending(Run *run, u64 at) {
    take_out(run->used, run->pending[at]);
    run->pending_count--;
    sol_memmove_(&run->pending[at], &run->pending[at + 1], (run->pending_count - at) * sizeof(u16));
}

// Out of the epoch now; the first reason given counts.
static void remove(Run *run, u64 place, u64 why) {
    Epoch *epoch = &run->epoch;
    if (epoch->left[place]) return;
    epoch->left[place] = (u8)why;
    put(epoch->absent, place);
    epoch->absent_count++;
    if (BROKEN(removal_moves_up)) {
        epoch->client_count--;
        epoch->absent_count--;
        take_out(epoch->absent, place);
        sol_memmove_(&epoch->clients[place], &epoch->clients[place + 1], (epoch->client_count - place) * sizeof(u16));
        epoch->left[place] = 0;
    }
}

static int is_leaving(const Epoch *epoch, u64 place, u64 why) {
    for (u64 i = 0; i < epoch->leaving_count; i++)
        if (epoch->leaving[i].place == place && (!why || epoch->leaving[i].why == why)) return 1;
    return 0;
}

// At once; or, as a round goes on with the roster it began with, when it ends.
static void leave(Run *run, u64 place, u64 why) {
    Epoch *epoch = &run->epoch;
    if (!in_round(run)) {
        remove(run, place, why);
        return;
    }
    if (epoch->leaving_count == LEAVING) return;
    epoch->leaving[epoch->leaving_count].place = (u8)place;
    epoch->leaving[epoch->leaving_count++].why = (u8)why;
}

static void forget_calls(Epoch *epoch) {
    if (!epoch->callers) return;
    epoch->callers = 0;
    sol_memset_(epoch->gone, 0, sizeof(epoch->gone));
    sol_memset_(epoch->equivocated, 0, sizeof(epoch->equivocated));
}

// The client at `place` is there: whatever was said of it is void.
static void spoke(Run *run, u64 place) {
    Epoch *epoch = &run->epoch;
    u64 kept = 0;
    if (!epoch->callers) return;
    for (u64 p = 0; p < WITNESSES; p++) take_out(&epoch->gone[p * MASK], place);
    for (u64 i = 0; i < epoch->leaving_count; i++) {
        Mark mark = epoch->leaving[i];
        if (mark.place == place && mark.why == LEFT_Gone) continue;
        epoch->leaving[kept++] = mark;
    }
    epoch->leaving_count = (u32)kept;
}

// SCRATCH->marked: the places that a quorum of callers who are still there names.
static void called_by_quorum(const Run *run, const Election *e, const u8 *said) {
    const Epoch *epoch = &run->epoch;
    Scratch *s = SCRATCH;
    u64 enough = BROKEN(one_calls_gone) ? 1 : quorum(e);
    sol_memset_(s->marked, 0, CLIENTS);
    fill_roster(run, e);
    for (u64 p = 0; p < e->elected_count; p++) {
        if (!(epoch->callers >> p & 1) || epoch->left[s->roster[e->elected[p]]]) continue;
        for (u64 byte = 0; byte < MASK; byte++) {
            u64 bits = said[p * MASK + byte];
            for (u64 place = byte * 8; bits; bits >>= 1, place++) s->marked[place] += bits & 1;
        }
    }
    for (u64 place = 0; place < CLIENTS; place++) s->marked[place] = s->marked[place] >= enough;
}

static int is_expelled(const Run *run, const u8 *id) {
    for (u64 i = 0; i < run->expelled_count; i++)
        if (same32(&run->expelled[i * KEY], id)) return 1;
    return 0;
}

// Let nobody come back who, by the word of a quorum, told of two results for one share.
static void expel(Run *run, u64 place) {
    Slot *slot = &run->slots[run->epoch.clients[place]];
    if (slot->expelled) return;
    slot->expelled = 1;
    u64 waiting = find_pending(run, slot->id);
    if (waiting != NOBODY) run->slots[run->pending[waiting]].expelled = 1;
    if (run->expelled_count == EXPELLED) {
        run->expelled_count--;
        sol_memmove_(run->expelled, run->expelled + KEY, (EXPELLED - 1) * KEY);
    }
    copy32(&run->expelled[run->expelled_count++ * KEY], slot->id);
    if (!run->epoch.left[place]) leave(run, place, LEFT_Equivocated);
}

static int is_silent(const Run *run, const Slot *slot, u64 now) {
    if (BROKEN(silent_stay)) return 0;
    return slot->seen + run->config.health_timeout < now;
}
