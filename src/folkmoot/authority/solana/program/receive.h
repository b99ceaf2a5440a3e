// What each message of a client does, and when it is refused: coordinator/receive.py, in its order.
#pragma once
#include "phases.h"

#define PRIME 0x100000001b3ull
#define BLOOM_KEYS 7
#define SPEED_MAX (1ull << 31)
#define SEEN_MAX 0xffffffffull

static u64 join_run(Run *run, const JoinRun *said, const u8 *address, const u8 *sender, u64 now) {
    NEED(run->phase != PHASE_Finished, REFUSE_Finished);
    NEED(BROKEN(expelled_come_back) || !is_expelled(run, sender), REFUSE_Expelled);
    NEED(said->address_len <= ADDRESS, REFUSE_WrongAddress);
    NEED(member(run, sender) == NOBODY, REFUSE_AlreadyMember);
    u64 at = find_pending(run, sender);
    Slot *slot;
    if (at == NOBODY) {
        int proven = has_worked(run, sender);
        if (run->pending_count >= run->config.max_clients) {
            u64 crowded = proven ? gives_way(run) : NOBODY;
            NEED(crowded != NOBODY, REFUSE_RunFull);
            drop_pending(run, crowded);
        }
        u64 fresh = free_slot(run), digest[4];
        NEED(fresh != NOBODY, REFUSE_RunFull);
        at = first_not_below(run, run->pending, run->pending_count, sender);
        sol_memmove_(&run->pending[at + 1], &run->pending[at], (run->pending_count - at) * sizeof(u16));
        run->pending[at] = (u16)fresh;
        run->pending_count++;
        put(run->used, fresh);
        if (proven) put(run->proven, fresh);
        else take_out(run->proven, fresh);
        slot = &run->slots[fresh];
        sol_memset_(slot, 0, sizeof(Slot));
        copy32(slot->id, sender);
        hash2(sender, KEY, "", 0, (u8 *)digest);
        slot->item = digest[0];
    }
    slot = &run->slots[run->pending[at]];
    slot->seen = now;
    slot->salt = said->salt;
    copy32(slot->reveal, said->reveal);
    slot->has_model = said->has_model != 0;
    if (slot->has_model) copy32(slot->model_hash, said->model_hash);
    slot->address_len = (u16)said->address_len;
    sol_memset_(slot->address, 0, ADDRESS);
    sol_memcpy_(slot->address, address, said->address_len);
    return 0;
}

// Time since the epoch started, as far as a client's vital signs can tell.
static u64 since_start(const Run *run, u64 now) {
    u64 started = run->epoch.started, since = now > started ? now - started : 0;
    return since < SEEN_MAX ? since : SEEN_MAX;
}

static u64 warmup_ready(Run *run, const WarmupReady *said, const u8 *sender, u64 now) {
    NEED(run->phase == PHASE_Warmup, REFUSE_WrongState);
    NEED(said->epoch == run->epoch_number, REFUSE_WrongEpoch);
    u64 place = member(run, sender);
    NEED(place != NOBODY, REFUSE_NotAMember);
    NEED(!has(run->epoch.ready, place), REFUSE_Duplicate);
    spoke(run, place);
    put(run->epoch.ready, place);
    if (is_proven(run, place)) run->epoch.proven_ready = since_start(run, now);
    return 0;
}

static u64 bloom_bytes(u64 clients) {
    u64 words = (clients * 95851 + 639999) / 640000;
    return (words ? words : 1) * 8;
}

static int overfull(const u8 *filter, u64 len, u64 clients) {
    u64 set = 0;
    for (u64 i = 0; i < len; i += 8) set += ones(*(const u64 *)(filter + i));
    return set > clients * BLOOM_KEYS;
}

// Count, for every place, that this witness saw its result: at once, so that no tick has to.
static void count_seen(Run *run, const Round *round, const Witness *witness, u64 len) {
    u64 keys[BLOOM_KEYS], root[2] = {round->election.seed, witness->index}, digest[4];
    for (u64 k = 0; k < BLOOM_KEYS; k++) {
        u8 last = (u8)k;
        Bytes parts[3] = {{"bloom", 5}, {root, 16}, {&last, 1}};
        sol_sha256(parts, 3, (u8 *)digest);
        keys[k] = digest[0];
    }
    for (u64 place = 0; place < run->epoch.client_count; place++) {
        u64 item = run->slots[run->epoch.clients[place]].item, k = 0;
        for (; k < BLOOM_KEYS; k++) {
            u64 hash = keys[k];
            for (u64 rest = item, byte = 0; byte < 8; byte++, rest >>= 8) hash = (hash ^ (rest & 0xff)) * PRIME;
            u64 bit = hash % (len * 8);
            if (!has(witness->participant, bit)) break;
        }
        run->epoch.score[place] += k == BLOOM_KEYS;
    }
}

static u64 wrong_content(const Run *run, const WitnessSaid *said, const u8 *participant, const u8 *broadcast) {
    u64 clients = run->epoch.client_count, len = bloom_bytes(clients);
    NEED(said->participant_len == len, REFUSE_WrongBloom);
    NEED(!overfull(participant, len, clients), REFUSE_FullBloom);
    NEED(said->broadcast_len == len, REFUSE_WrongBloom);
    NEED(!overfull(broadcast, len, clients), REFUSE_FullBloom);
    return 0;
}

static u64 witness(Run *run, const WitnessSaid *said, const u8 *participant, const u8 *sender) {
    const u8 *broadcast = participant + said->participant_len;
    NEED(in_round(run), REFUSE_WrongState);
    NEED(said->epoch == run->epoch_number, REFUSE_WrongEpoch);
    Round *round = newest(run);
    Election *e = &round->election;
    NEED(said->height == e->height, REFUSE_WrongRound);
    u64 place = member(run, sender);
    NEED(place != NOBODY, REFUSE_NotAMember);
    u64 index = roster_index(e, place);
    if (BROKEN(any_index) && said->index < e->size) index = said->index;
    NEED(index != CLIENTS && said->index == index, REFUSE_WrongIndex);
    NEED(said->elected == 1, REFUSE_NotAWitness);
    for (u64 i = 0; i < round->witness_count; i++)
        NEED(round->witnesses[i].index != index || BROKEN(proof_counts_twice), REFUSE_Duplicate);
    u64 wrong = wrong_content(run, said, participant, broadcast);
    NEED(!wrong, wrong);
    u64 position = elected_position(e, index);
    NEED(position != WITNESSES, REFUSE_NotAWitness);
    NEED(said->position == position, REFUSE_WrongProof);
    NEED(round->witness_count < WITNESSES, REFUSE_Duplicate);
    Slot *slot = &run->slots[run->epoch.clients[place]];
    u8 digest[32] __attribute__((aligned(8)));
    hash2(said->reveal, 32, "", 0, digest);
    NEED(same32(digest, slot->reveal) || BROKEN(reveal_unchecked), ERROR_WrongReveal);
    copy32(slot->reveal, said->reveal);
    // In any order the same: who puts transactions in order gains nothing.
    for (u64 i = 0; i < 4; i++) ((u64 *)run->mix)[i] ^= ((const u64 *)said->reveal)[i];
    spoke(run, place);
    Witness *heard = &round->witnesses[round->witness_count++];
    u64 len = said->participant_len;
    sol_memset_(heard, 0, sizeof(Witness));
    sol_memcpy_(heard->participant, participant, len);
    sol_memcpy_(heard->broadcast, broadcast, len);
    copy32(heard->merkle, said->merkle);
    copy32(heard->model_hash, said->model_hash);
    heard->index = (u32)index;
    heard->position = (u32)position;
    count_seen(run, round, heard, len);
    return 0;
}

// A name: a letter or digit, then up to 63 letters, digits, '.', '-' and '_'.
static int is_name(const u8 *text, u64 len) {
    if (len < 1 || len > 64) return 0;
    for (u64 i = 0; i < len; i++) {
        u8 c = text[i];
        int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && (i == 0 || (c != '.' && c != '-' && c != '_'))) return 0;
    }
    return 1;
}

static int is_stored_there(const Config *c, const u8 *location, u64 len) {
    u64 slash = len, root = c->root_len, folder;
    while (slash > 0 && location[slash - 1] != '/') slash--;
    folder = slash ? slash - 1 : 0;
    while (root > 0 && c->root[root - 1] == '/') root--;
    if (!c->root_len || folder != root) return 0;
    for (u64 i = 0; i < root; i++)
        if (location[i] != c->root[i]) return 0;
    return is_name(location + slash, len - slash);
}

// Whether the place is among the first of the seed's order who are still here.
static int stores(Run *run, u64 place) {
    const Epoch *epoch = &run->epoch;
    const Election *e = &epoch->cooldown;
    u64 wanted = e->size / 3 ? e->size / 3 : 1, index = roster_index(e, place);
    u8 salted[32] __attribute__((aligned(8)));
    if (index == CLIENTS) return 0;
    cooldown_salt(e->seed, salted);
    prepare_swaps(salted, e->size);
    u64 before = position_of(index, e->size), left = before;
    for (u64 other = 0; other < epoch->client_count; other++)
        if (epoch->left[other] && !has(e->absent, other))
            left -= position_of(roster_index(e, other), e->size) < before;
    return left < wanted;
}

static u64 checkpoint(Run *run, const CheckpointSaid *said, const u8 *location, const u8 *sender) {
    Checkpoint *kept = &run->checkpoint;
    NEED(run->phase == PHASE_Cooldown, REFUSE_WrongState);
    NEED(said->epoch == run->epoch_number, REFUSE_WrongEpoch);
    u64 place = member(run, sender);
    NEED(place != NOBODY, REFUSE_NotAMember);
    NEED(stores(run, place), REFUSE_NotACheckpointer);
    NEED(!run->epoch.checkpointed, REFUSE_Duplicate);
    NEED(kept->source == SOURCE_P2P, REFUSE_WrongModel);
    int same = said->has_model && run->has_model ? same32(said->model_hash, run->model_hash)
                                                 : !said->has_model && !run->has_model;
    NEED(same || BROKEN(any_checkpoint), REFUSE_WrongModel);
    NEED(said->location_len <= LOCATION, REFUSE_WrongLocation);
    NEED(is_stored_there(&run->config, location, said->location_len), REFUSE_WrongLocation);
    kept->location_len = said->location_len;
    sol_memset_(kept->location, 0, LOCATION);
    sol_memcpy_(kept->location, location, said->location_len);
    kept->has_model = (u16)run->has_model;
    copy32(kept->model_hash, run->model_hash);
    sol_memcpy_(&kept->progress, &run->progress, sizeof(Progress));
    run->epoch.checkpointed = 1;
    return 0;
}

// The marks that an accusation leaves, or why it does not count.
static u64 accuse(Run *run, const u16 *places, u64 count) {
    Epoch *epoch = &run->epoch;
    NEED(in_round(run), REFUSE_WrongState);
    for (u64 i = 0; i < count; i++) {
        NEED(places[i] < epoch->client_count, REFUSE_UnknownClient);
        int judged = epoch->has_judged && has(epoch->unhealthy, places[i]);
        NEED(judged || BROKEN(accusations_believed), REFUSE_HealthyClient);
        if (!is_leaving(epoch, places[i], 0) && !epoch->left[places[i]]) leave(run, places[i], LEFT_Unhealthy);
    }
    return 0;
}

static u64 health_check(Run *run, const HealthCheck *said, const u16 *places, const u8 *sender, u64 now) {
    u64 speed = said->speed < SPEED_MAX ? said->speed : SPEED_MAX;
    u64 place = member(run, sender);
    Slot *slot;
    if (place == NOBODY) {
        u64 at = find_pending(run, sender);
        NEED(at != NOBODY && !said->count, REFUSE_NotAMember);
        slot = &run->slots[run->pending[at]];
        slot->seen = now;
    } else {
        u64 wrong = said->count ? accuse(run, places, said->count) : 0;
        NEED(!wrong, wrong);
        slot = &run->slots[run->epoch.clients[place]];
        slot->seen = run->epoch.started + since_start(run, now);
    }
    if (speed) slot->speed = (u32)speed;
    return 0;
}

static u64 call_gone(Run *run, const CallGone *said, const u16 *places, const u8 *sender) {
    Epoch *epoch = &run->epoch;
    Scratch *s = SCRATCH;
    u64 count = (u64)said->gone_count + said->equivocated_count;
    const Election *e = run->phase == PHASE_Warmup     ? &epoch->warmup
                        : run->phase == PHASE_Cooldown ? &epoch->cooldown
                        : in_round(run)                ? &newest(run)->election
                                                       : 0;
    NEED(e, REFUSE_WrongState);
    NEED(said->epoch == run->epoch_number, REFUSE_WrongEpoch);
    NEED(said->height == e->height, REFUSE_WrongRound);
    u64 place = member(run, sender);
    NEED(place != NOBODY, REFUSE_NotAMember);
    for (u64 i = 0; i < count; i++)
        NEED(places[i] < epoch->client_count && places[i] != place, REFUSE_UnknownClient);
    u64 index = roster_index(e, place);
    u64 position = index == CLIENTS ? WITNESSES : elected_position(e, index);
    NEED(position != WITNESSES, REFUSE_NotAWitness);
    epoch->callers |= 1u << position;
    u8 *gone = &epoch->gone[position * MASK], *equivocated = &epoch->equivocated[position * MASK];
    sol_memset_(gone, 0, MASK);
    sol_memset_(equivocated, 0, MASK);
    for (u64 i = 0; i < count; i++) put(i < said->gone_count ? gone : equivocated, places[i]);
    called_by_quorum(run, e, epoch->equivocated);
    for (u64 p = 0; p < epoch->client_count; p++)
        if (s->marked[p]) expel(run, p);
    called_by_quorum(run, e, epoch->gone);
    for (u64 p = 0; p < epoch->client_count; p++)
        if (s->marked[p] && !is_leaving(epoch, p, 0) && !epoch->left[p]) leave(run, p, LEFT_Gone);
    return 0;
}

static u64 withdraw(Run *run, const u8 *sender) {
    u64 place = member(run, sender);
    if (place == NOBODY) {
        u64 at = find_pending(run, sender);
        NEED(at != NOBODY, REFUSE_NotAMember);
        drop_pending(run, at);
        return 0;
    }
    NEED(!is_leaving(&run->epoch, place, LEFT_Withdrew), REFUSE_Duplicate);
    leave(run, place, LEFT_Withdrew);
    return 0;
}

// Nobody waits for the silent: they leave those who wait, and a phase without rounds. Whether any did.
static int let_go(Run *run, u64 now) {
    u64 waiting = run->pending_count, here = active(run), kept = 0;
    for (u64 at = 0; at < waiting; at++) {
        u16 slot = run->pending[at];
        if (is_silent(run, &run->slots[slot], now)) take_out(run->used, slot);
        else run->pending[kept++] = slot;
    }
    run->pending_count = (u32)kept;
    if (run->phase == PHASE_Warmup || run->phase == PHASE_Cooldown) let_silent_go(run, now);
    return kept != waiting || active(run) != here;
}
