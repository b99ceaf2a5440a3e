// Samples: which a round trains, who trains which, what is owed. core/coordinator/assignment.py.
#pragma once
#include "selection.h"

#define EVEN 256ull
#define SLOWEST (EVEN / 8)
#define FASTEST (EVEN * 8)

static u64 total(const Span *spans, u64 count) {
    u64 sum = 0;
    for (u64 i = 0; i < count; i++) sum += spans[i].stop - spans[i].start;
    return sum;
}

static u64 batch_size(const Run *run) {
    const Config *c = &run->config;
    u64 index = run->progress.data_index, limit = (1ull << 62) / c->max_seq_len;
    u64 tokens = index < limit ? index * c->max_seq_len : 1ull << 62;
    if (tokens >= c->warmup_tokens) return c->batch_end;
    u64 gain = 2 * (u64)(c->batch_end - c->batch_start) * tokens + c->warmup_tokens;
    return c->batch_start + gain / (2 * c->warmup_tokens);
}

// Give a round its samples: owed ones first, then fresh ones.
static void take_samples(Run *run, Round *round) {
    Progress *p = &run->progress;
    u64 need = batch_size(run), taken = 0, kept = 0;
    for (u64 i = 0; i < p->owed_count; i++) {
        Span owed = p->owed[i];
        u64 length = owed.stop - owed.start, part = need < length ? need : length;
        if (part) {
            round->spans[taken].start = owed.start;
            round->spans[taken++].stop = owed.start + part;
        }
        if (part < length) {
            p->owed[kept].start = owed.start + part;
            p->owed[kept++].stop = owed.stop;
        }
        need -= part;
    }
    p->owed_count = (u32)kept;
    if (need) {
        round->spans[taken].start = p->data_index;
        p->data_index += need;
        round->spans[taken++].stop = p->data_index;
    }
    round->span_count = (u32)taken;
}

// Work by speed, relative to the median; who did not deliver its last share gets the least.
static void weigh(Run *run, Round *round) {
    Scratch *s = SCRATCH;
    Epoch *epoch = &run->epoch;
    u64 count = round->election.size, known = 0, even = 1;
    fill_roster(run, &round->election);
    for (u64 i = 0; i < count; i++) {
        s->keys[i] = run->slots[epoch->clients[s->roster[i]]].speed;
        known += s->keys[i] > 0;
    }
    u64 median = known ? kth_largest(count, known - (known - 1) / 2, 32) : 1;
    for (u64 i = 0; i < count; i++) {
        u64 weight = EVEN;
        if (s->keys[i]) {
            weight = (s->keys[i] * EVEN + median / 2) / median;
            weight = weight < SLOWEST ? SLOWEST : weight > FASTEST ? FASTEST : weight;
        }
        if (BROKEN(speed_ignored)) weight = EVEN;
        if (epoch->has_judged && has(epoch->unhealthy, s->roster[i])) weight = SLOWEST;
        even = even && weight == EVEN;
        round->weights[i] = (u16)weight;
    }
    round->weighted = !even;
}

// SCRATCH->order and sizes: the shares of a round, in the order of its samples.
static void assign(const Round *round) {
    Scratch *s = SCRATCH;
    u64 count = round->election.size, samples = total(round->spans, round->span_count);
    u64 rest = samples > count ? samples - count : 0, sum = 0, left = rest;
    shuffle(count, round->election.seed);
    if (!round->weighted) {
        u64 whole = rest / count, more = rest % count;
        for (u64 k = 0; k < count; k++) s->sizes[k] = (k < samples) + whole + (k < more);
        return;
    }
    for (u64 k = 0; k < count; k++) sum += round->weights[k];
    for (u64 k = 0; k < count; k++) {
        u64 product = rest * round->weights[s->order[k]], whole = product / sum;
        s->sizes[k] = (k < samples) + whole;
        // Largest remainder first; equal ones keep the shuffled order.
        s->keys[k] = (product - whole * sum) << 8 | (255 - k);
        left -= whole;
    }
    if (!left) return;
    u64 least = kth_largest(count, left, 28);
    for (u64 k = 0; k < count; k++) s->sizes[k] += s->keys[k] >= least;
}

static u64 append(Span *list, u64 count, u64 start, u64 stop) {
    if (count && list[count - 1].stop >= start) {
        if (list[count - 1].stop < stop) list[count - 1].stop = stop;
        return count;
    }
    list[count].start = start;
    list[count].stop = stop;
    return count + 1;
}

// Owe `count` sorted spans of `more` besides. Beyond OWED spans, what lies between is owed too.
static void owe(Progress *p, const Span *more, u64 count) {
    Span *merged = SCRATCH->merged;
    u64 i = 0, j = 0, made = 0;
    while (i < p->owed_count || j < count) {
        const Span *next;
        if (j == count || (i < p->owed_count && p->owed[i].start < more[j].start)) next = &p->owed[i++];
        else next = &more[j++];
        made = append(merged, made, next->start, next->stop);
    }
    if (made > OWED) {
        merged[OWED - 1].stop = merged[made - 1].stop;
        made = OWED;
    }
    if (BROKEN(owed_dropped)) made = 0;
    sol_memcpy_(p->owed, merged, made * sizeof(Span));
    p->owed_count = (u32)made;
}

// Judge the work of one round by the witnesses of the newest: coordinator/health.py.
static void judge(Run *run, const Round *by, const Round *work) {
    Scratch *s = SCRATCH;
    Epoch *epoch = &run->epoch;
    u64 heard = by->witness_count, enough = quorum(&by->election), owed = 0, span = 0, offset = 0;
    u64 samples = total(work->spans, work->span_count);
    sol_memset_(epoch->unhealthy, 0, MASK);
    epoch->has_judged = 1;
    epoch->judged_height = work->election.height;
    if (heard < enough) {
        owe(&run->progress, work->spans, work->span_count);
        return;
    }
    assign(work);
    fill_roster(run, &work->election);
    for (u64 k = 0; k < work->election.size; k++) {
        u64 place = s->roster[s->order[k]], size = s->sizes[k], score = epoch->score[place];
        u64 needed = BROKEN(one_witness_is_enough) ? 1 : enough;
        u64 learnt = score >= needed && !has(by->void_places, place);
        if (size && learnt) put(run->proven, epoch->clients[place]);
        if (size && heard - score >= enough) put(epoch->unhealthy, place);
        while (size) {
            const Span *at = &work->spans[span];
            u64 there = at->stop - at->start - offset, part = size < there ? size : there;
            u64 start = at->start + offset;
            if (!learnt) owed = append(s->spans, owed, start, start + part);
            size -= part;
            offset += part;
            if (offset == at->stop - at->start) span++, offset = 0;
        }
    }
    run->progress.tokens += (samples - total(s->spans, owed)) * run->config.max_seq_len;
    owe(&run->progress, s->spans, owed);
}
