"""What the coordinator's worker threads do with models: judge one, combine many, find lost ones."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from blake3 import blake3

from folkmoot.core.federation.state import Delivery, State
from folkmoot.exchange.bucket import BucketError, Missing, TooLarge
from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.checks import bad_update
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.model_file.layout import BadModel, Layout
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
    config: Federation, store: CoordinatorBucket, state: State, delivery: Delivery
) -> Judgement:
    """Take an update out of the bucket and check it, in one pass over its bytes."""
    with ExitStack() as stack:
        base = None
        limit = config.bucket.max_object
        try:
            if not state.initial_round:
                base = stack.enter_context(ModelFile(store.global_path(delivery.round)))
                limit = base.nbytes + HEADER_ROOM
                if config.secure.enabled:
                    limit = 8 * sum(meta.size for meta in base.layout.values()) + HEADER_ROOM
            path = store.take(delivery.key, limit)
        except Missing:
            return Judgement(f"there is no object {delivery.key} in the bucket", missing=True)
        except TooLarge:
            return Judgement(f"{delivery.key} is larger than {limit} bytes", strike=True)
        try:
            source = stack.enter_context(HashingModelFile(path))
        except BadModel as error:
            strike = digest_of(path) == delivery.digest
            return Judgement(f"{delivery.key} is not a model: {error}", damaged=True, strike=strike)
        update = _update(state, delivery, source, base)
        if base and config.secure.enabled:
            reason = bad_masked_update(update, base.layout, config.secure)
        else:
            reason = bad_update(update, base.layout if base else None)
        if source.digest() != delivery.digest:
            return Judgement(
                f"{delivery.key} in the bucket is not what was announced: its digest is "
                f"{source.digest()}, expected {delivery.digest}",
                damaged=True,
            )
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
        reference = None
        if not state.initial_round:
            reference = stack.enter_context(ModelFile(store.global_path(state.round)))
        updates = []
        for delivery in deliveries:
            source = stack.enter_context(ModelFile(store.taken(delivery.key)))
            base = reference
            if delivery.round != state.round:
                base = stack.enter_context(ModelFile(store.global_path(delivery.round)))
            updates.append(_update(state, delivery, source, base))
        if reference is not None and residue is not None:
            precision = config.secure.precision
            mean = UnmaskedMean(reference, updates, residue, precision)
            updates = [ModelUpdate("sum", mean.samples, mean, base=reference)]
        layout = reference.layout if reference else _majority(updates)
        if reference is None:
            updates = [u for u in updates if dict(u.source.layout) == dict(layout)]
        memory, memory_out = _memory(config, store, state, layout, stack)
        out = stack.enter_context(closing(store.new_global(state.round + 1, layout)))
        own = blake3(state.round.to_bytes(8, "little"), key=seed).digest()
        figures = config.aggregation.combine(
            Closing(reference, updates, memory, out, memory_out, own)
        )
        if memory_out is not None:
            memory_out.commit()
        return Made(store.publish_global(state.round + 1, out), figures)


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
    state: State, delivery: Delivery, source: ModelFile, base: ModelFile | None
) -> ModelUpdate:
    staleness = state.round - delivery.round
    return ModelUpdate(delivery.id, delivery.samples, source, staleness, base)


def _majority(updates: Sequence[ModelUpdate]) -> Layout:
    """The layout that most initial models have; the first by participant id among equals."""
    layouts = [dict(u.source.layout) for u in updates]
    return max(layouts, key=layouts.count)


def _recovered(store: CoordinatorBucket, delivery: Delivery) -> bool:
    try:
        path = store.taken(delivery.key)
        if path.exists() and digest_of(path) == delivery.digest:
            return True
        return digest_of(store.take(delivery.key, store.max_object)) == delivery.digest
    except (BucketError, OSError):
        return False
