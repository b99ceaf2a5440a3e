"""Placement groups of a job: one for each gang, detached, found again by their names.

A group's name says which actors each bundle is for, so a new master needs nothing but Ray to know
who belongs where. An elastic gang that is content with fewer has one group for those, and one for
each further bundle, which comes when there is room.
"""

import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from folkmoot.core.job.messages import Place, Placed
from folkmoot.core.job.placement import Amounts, Bundle
from folkmoot.unified.substrate import Tell

logger = logging.getLogger(__name__)
PREFIX = "folkmoot|"
# Seconds of one wait for room; it is repeated until the place was given up.
WAIT = 30
NAMES = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}


class RayPlaces:
    def __init__(self, job: str, tell: Tell) -> None:
        self._job, self._tell = job, tell
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._places: dict[str, tuple[PlacementGroup, int]] = {}  # of actors: group and bundle
        self._asked: dict[str, int] = {}  # the newest Place of each gang
        for name, group in self._ours():
            for actor, index in _actors_in(name):
                self._places[actor] = (group, index)

    def place(self, order: Place) -> None:
        with self._lock:
            number = self._asked[order.gang] = next(self._numbers)
        least = max(1, min(order.least, len(order.bundles)))
        first, rest = order.bundles[:least], order.bundles[least:]
        for bundles in (first, *((bundle,) for bundle in rest)):
            args = (order, bundles, number)
            threading.Thread(target=self._find, args=args, name="place", daemon=True).start()

    def strategy_of(self, actor: str, node: str) -> Any:
        """How Ray puts an actor where its worker was placed."""
        with self._lock:
            found = self._places.get(actor)
        if not node or not found:
            return "DEFAULT"
        return PlacementGroupSchedulingStrategy(*found)

    def release(self, gang: str | None = None) -> None:
        """Give back what a gang has, or everything of the job."""
        with self._lock:
            self._asked = {g: n for g, n in self._asked.items() if gang not in (None, g)}
        for name, group in self._ours():
            if gang is None or name.split("|")[2] == gang:
                remove_placement_group(group)

    def _find(self, order: Place, bundles: tuple[Bundle, ...], number: int) -> None:
        group, indexes = self._left_of(bundles)
        if group is None:
            group, indexes = self._group(order, bundles, number), list(range(len(bundles)))
        try:
            while not group.wait(WAIT):
                if self._asked.get(order.gang) != number:
                    remove_placement_group(group)
                    return
        except Exception as error:  # of no type of its own
            logger.info("a placement group was removed while it waited for room: %s", error)
            return
        nodes = placement_group_table(group)["bundles_to_node_id"]
        placed = {}
        with self._lock:
            for index, bundle in zip(indexes, bundles, strict=True):
                for actor in bundle.actors:
                    self._places[actor] = (group, index)
                    placed[actor] = nodes[index]
        self._tell(Placed(order.gang, placed))

    def _left_of(self, bundles: tuple[Bundle, ...]) -> tuple[PlacementGroup | None, list[int]]:
        """The group of workers that lost their node: Ray finds another for its lost bundles."""
        with self._lock:
            had = [self._places.get(bundle.actors[0]) for bundle in bundles]
        groups = {place[0].id.hex() if place else "" for place in had}
        table = placement_group_table()
        if len(groups) != 1 or table.get(*groups, {}).get("state") != "RESCHEDULING":
            return None, []
        places = [place for place in had if place]
        return places[0][0], [index for _, index in places]

    def _group(self, order: Place, bundles: tuple[Bundle, ...], number: int) -> PlacementGroup:
        told = ";".join(",".join(bundle.actors) for bundle in bundles)
        options: dict[str, Any] = {}
        if order.avoid:
            avoided = {"ray.io/node-id": f"!in({','.join(order.avoid)})"}
            options["bundle_label_selector"] = [avoided for _ in bundles]
        return placement_group(
            [amounts(bundle.needs) or {"CPU": 0.001} for bundle in bundles],
            strategy=order.strategy,
            name=f"{PREFIX}{self._job}|{order.gang}|{number}|{told}",
            lifetime="detached",
            **options,
        )

    def _ours(self) -> Iterator[tuple[str, PlacementGroup]]:
        for id_, told in placement_group_table().items():
            ours = told["name"].startswith(f"{PREFIX}{self._job}|")
            if ours and told["state"] != "REMOVED":
                yield told["name"], PlacementGroup(ray.PlacementGroupID.from_hex(id_))


def amounts(needs: Amounts) -> dict[str, float]:
    """As Ray names resources."""
    return {NAMES.get(name, name): amount for name, amount in needs.items()}


def _actors_in(name: str) -> Iterator[tuple[str, int]]:
    for index, bundle in enumerate(name.split("|")[4].split(";")):
        for actor in bundle.split(","):
            yield actor, index
