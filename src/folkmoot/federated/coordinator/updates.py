"""What the coordinator's worker threads do with models: judge one, combine many, find lost ones."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from folkmoot.core.federation.state import Delivery, State
from folkmoot.core.federation.weights import capped
from folkmoot.exchange.bucket import BucketError, Missing, TooLarge
from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.checks import bad_layout, bad_samples, bad_sum, bad_update
from folkmoot.federated.aggregate.linear import sum_layout
from folkmoot.federated.aggregate.spans import CombineFailed
from folkmoot.federated.compression.source import CompressedUpdate, bad_compressed
from folkmoot.federated.coordinator.bucket import (
    Arriving,
    CoordinatorBucket,
    NotAnnounced,
    no_reader,
)
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.model_file.layout import BadModel, Layout, ModelSource, encode_header
from folkmoot.federated.model_file.reader import HashingModelFile, ModelFile, digest_of
from folkmoot.federated.model_file.writer import ModelWriter
from folkmoot.federated.secure.masked_update import UnmaskedMean, bad_masked_update
from folkmoot.federated.secure.masks import Mask

HEADER_ROOM = 1 << 20


class Made(NamedTuple):
    """The next global model is in the bucket."""

    digest: str
    figures: Mapping[str, float]


class Judgement(NamedTuple):
    """What became of an update: good when `reason` is empty."""

    reason: str
    missing: bool = False
    damaged: bool = False
    strike: bool = False


def judge(
    config: Federation,
    store: CoordinatorBucket,
    state: State,
    delivery: Delivery,
    arriving: Arriving = no_reader,
) -> Judgement:
    """Take an update out of the bucket and check it, in one pass over its bytes."""
    with ExitStack() as stack:
        base, limit = None, config.bucket.max_object
        try:
            if not state.initial_round:
                base = stack.enter_context(ModelFile(store.global_path(delivery.round)))
                limit = most_bytes(config, base.layout, delivery.id)
            path = store.take(delivery, limit, arriving)
        except Missing:
            return Judgement(f"there is no object {delivery.key} in the bucket", missing=True)
        except TooLarge:
            return Judgement(f"{delivery.key} is larger than {limit} bytes", strike=True)
        except NotAnnounced as error:
            return Judgement(f"{delivery.key} {error.why}", damaged=True, strike=True)
        return _judge_file(config, store, state, delivery, path, base)


def most_bytes(config: Federation, base: Layout, id: str) -> int:
    """How long an update of a model may be: weights under masks and in sums have eight bytes."""
    if config.secure.enabled or id in config.security.aggregators:
        return 8 * sum(meta.size for meta in base.values()) + HEADER_ROOM
    size = len(encode_header(base)) + sum(meta.nbytes for meta in base.values())
    return size + HEADER_ROOM


def _judge_file(
    config: Federation,
    store: CoordinatorBucket,
    state: State,
    delivery: Delivery,
    path: Path,
    base: ModelFile | None,
) -> Judgement:
    with ExitStack() as stack:
        try:
            kind = ModelFile if store.hashes else HashingModelFile
            source = stack.enter_context(kind(path))
        except BadModel as error:
            return Judgement(f"{delivery.key} is not a model: {error}", damaged=True, strike=True)
        finite = store.finite_layout(delivery) is not None
        reason = _bad(config, state, delivery, source, base, finite=finite)
        if isinstance(source, HashingModelFile) and source.digest() != delivery.digest:
            return Judgement(
                f"{delivery.key} in the bucket is not what was announced: its digest is "
                f"{source.digest()}, expected {delivery.digest}",
                damaged=True,
                strike=True,
            )
        return Judgement(reason, strike=bool(reason))


def _bad(
    config: Federation,
    state: State,
    delivery: Delivery,
    source: ModelFile,
    base: ModelFile | None,
    *,
    finite: bool,
) -> str:
    """Why an update must not be counted, or nothing; `finite` is what is known of the file."""
    update = _update(config, state, delivery, source, base)
    if base and update.summed:
        return bad_sum(update, sum_layout(base.layout))
    if base and config.secure.enabled:
        reason = bad_masked_update(update, base.layout, config.secure)
        if config.private_sum and delivery.samples != 1:
            reason = reason or "number_samples must be 1: in a private sum all count the same"
        return reason
    if base and update.source is not source:
        odd = bad_compressed(source, base.layout, config.compression)
        return odd or bad_update(update, base.layout)
    return bad_update(update, base.layout if base else None, finite=finite)


def judged(
    config: Federation,
    store: CoordinatorBucket,
    state: State,
    delivery: Delivery,
    arriving: Arriving = no_reader,
) -> Judgement:
    """Judge an update; of one that is not good nothing stays behind."""
    found = judge(config, store, state, delivery, arriving)
    if found.reason:
        store.taken(delivery).unlink(missing_ok=True)
    return found


def judged_as_it_came(
    store: CoordinatorBucket, state: State, delivery: Delivery, layout: Layout
) -> Judgement:
    """Judge an update that is a model as it is, and was seen to be finite: no file is opened."""
    base = None if state.initial_round else store.global_layout(delivery.round)
    reason = bad_samples(delivery.samples, initial=base is None) or bad_layout(layout, base)
    if reason:
        store.taken(delivery).unlink(missing_ok=True)
    return Judgement(reason, strike=bool(reason))


def lost(store: CoordinatorBucket, deliveries: Sequence[Delivery]) -> list[str]:
    """The keys of accepted updates that can no longer be had with the same bytes."""
    return [d.key for d in deliveries if not _recovered(store, d)]


def combine(
    config: Federation,
    store: CoordinatorBucket,
    state: State,
    seed: bytes,
    deliveries: Sequence[Delivery],
    residue: Sequence[Mask] | None = None,
) -> Made:
    """Write `<round+1>/global` of the round's updates, which come in their one order.

    With `residue` they are masked, and only their sum can be read.
    """
    with ExitStack() as stack:
        reference, updates = opened(config, store, state, deliveries, stack)
        if residue is None:
            updates = weighed(updates, config.security.max_weight)
        if reference is not None and residue is not None:
            precision = config.secure.precision
            mean = UnmaskedMean(reference, updates, residue, precision)
            updates = [ModelUpdate("sum", mean.samples, mean, base=reference)]
        layout = reference.layout if reference else _majority(updates)
        if reference is None:
            updates = [u for u in updates if dict(u.source.layout) == dict(layout)]
        memory, memory_out = _memory(config, store, state, layout, stack)
        out = stack.enter_context(closing(store.new_global(state.round + 1, layout)))
        own = _own_seed(seed, state.round, deliveries)
        releases = 0
        if reference is not None and config.aggregation.adds_noise:
            releases = store.note_release(own)
        figures = config.aggregation.combine(
            Closing(reference, updates, memory, out, memory_out, own, releases, residue is not None)
        )
        if memory_out is not None:
            memory_out.commit()
        return Made(store.publish_global(state.round + 1, out), figures)


def opened(
    config: Federation,
    store: CoordinatorBucket,
    state: State,
    deliveries: Sequence[Delivery],
    stack: ExitStack,
) -> tuple[ModelFile | None, list[ModelUpdate]]:
    """The round's global model and its updates, open for as long as `stack` is."""
    reference = None
    if not state.initial_round:
        reference = stack.enter_context(ModelFile(store.global_path(state.round)))
    updates = []
    for delivery in deliveries:
        source = stack.enter_context(ModelFile(store.taken(delivery)))
        base = reference
        if delivery.round != state.round:
            base = stack.enter_context(ModelFile(store.global_path(delivery.round)))
        updates.append(_update(config, state, delivery, source, base))
    return reference, updates


def _own_seed(secret: bytes, round_: int, deliveries: Sequence[Delivery]) -> bytes:
    """32 secret bytes of this very sum: the same after a crash, fresh when it has other terms.

    The same noise on two sums would cancel in their difference; two noises on one sum would average
    out.
    """
    seed = blake3(round_.to_bytes(8, "little"), key=secret)
    for delivery in deliveries:
        seed.update(f"{delivery.key} {delivery.digest}\n".encode())
    return bytes(seed.digest())


def weighed(updates: list[ModelUpdate], most: float) -> list[ModelUpdate]:
    """The updates with the samples that they count for.

    First weights count all the same: nobody has trained yet, so samples are only claimed. After
    that nobody counts for more than `most` times the lower median, which an honest half decides.
    """
    if all(update.base is None for update in updates):
        return [replace(update, samples=0) for update in updates]
    if not most:
        return updates
    told = [update.samples for update in updates]
    counts = capped(told, [max(1, update.participants) for update in updates], most)
    return [replace(update, samples=n) for update, n in zip(updates, counts, strict=True)]


def culprits(
    config: Federation,
    store: CoordinatorBucket,
    state: State,
    deliveries: Sequence[Delivery],
    failed: CombineFailed,
) -> list[str]:
    """The key of the update that moved furthest where the combination failed."""
    with ExitStack() as stack:
        reference = None
        if not state.initial_round:
            reference = stack.enter_context(ModelFile(store.global_path(state.round)))
        moved = {}
        for delivery in deliveries:
            source = stack.enter_context(ModelFile(store.taken(delivery)))
            update = _update(config, state, delivery, source, reference)
            value = _value_at(update.source, failed) / max(1, update.summed)
            base = _value_at(reference, failed) if reference else 0.0
            # Halves, because the distance itself may be more than a float holds.
            moved[delivery.key] = abs(value / 2 - base / 2)
        return [max(moved, key=lambda key: (moved[key], key))] if moved else []


def _value_at(source: ModelSource, failed: CombineFailed) -> float:
    # What a strategy remembers of an array has the array's name, behind a prefix.
    name = failed.array if failed.array in source.layout else failed.array.partition("/")[2]
    if name not in source.layout:
        return 0.0
    value = np.empty(1, source.layout[name].numpy)
    source.read(name, failed.position, value)
    return float(value[0])


def _memory(
    config: Federation, store: CoordinatorBucket, state: State, layout: Layout, stack: ExitStack
) -> tuple[ModelFile | None, ModelWriter | None]:
    """What the strategy remembers of the last round, and where it writes it for the next."""
    remembered = config.aggregation.memory_layout(layout)
    if not remembered:
        return None, None
    before = store.memory_path(state.round)
    memory = stack.enter_context(ModelFile(before)) if before.exists() else None
    memory_out = ModelWriter(store.memory_path(state.round + 1), remembered)
    return memory, stack.enter_context(closing(memory_out))


def _update(
    config: Federation, state: State, delivery: Delivery, file: ModelFile, base: ModelFile | None
) -> ModelUpdate:
    """An update as strategies see it: a model, also where a step travelled in fewer bytes."""
    if heads := delivery.participants:
        samples = delivery.samples
        return ModelUpdate(
            delivery.id, samples, file, base=base, participants=heads, summed=samples
        )
    staleness, source = state.round - delivery.round, _model(config, file, base)
    return ModelUpdate(delivery.id, delivery.samples, source, staleness, base)


def _model(config: Federation, file: ModelFile, base: ModelFile | None) -> ModelSource:
    if base is None or config.compression.method == "none":
        return file
    return CompressedUpdate(file, base, config.compression)


def _majority(updates: Sequence[ModelUpdate]) -> Layout:
    """The layout that most initial models have; the first by participant id among equals."""
    layouts = [dict(u.source.layout) for u in updates]
    return max(layouts, key=layouts.count)


def _recovered(store: CoordinatorBucket, delivery: Delivery) -> bool:
    try:
        path = store.taken(delivery)
        if path.exists() and digest_of(path) == delivery.digest:
            return True
        return digest_of(store.take(delivery, store.max_object)) == delivery.digest
    except (BucketError, OSError):
        return False
