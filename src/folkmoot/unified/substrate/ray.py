"""Actors as detached actors of a Ray cluster: on many machines, and on nobody's lifetime but ours.

What a job has on Ray is found by names: `<job>/<actor>/<incarnation>` in the namespace `folkmoot`,
and placement groups (`ray_places`). So several jobs share a cluster, and a new master finds all.
A master that was replaced gives no orders: it decides nothing that its journal does not take, and
the journal takes nothing from it (`host.journal`). An order that it gave before may still arrive;
it names an incarnation, and is either carried out already or for a process that nobody hears.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from folkmoot.core.job.messages import Place
from folkmoot.host.processes import how_it_ended
from folkmoot.unified.substrate import (
    Created,
    Ended,
    Found,
    Launch,
    Name,
    NodeLost,
    SubstrateError,
    Tell,
)
from folkmoot.unified.substrate.ray_host import (
    NAMESPACE,
    NodePid,
    RayHost,
    end_process,
    name_in,
    name_of,
)
from folkmoot.unified.substrate.ray_places import RayPlaces, amounts

# Seconds for actors of a cluster that is well to answer.
ANSWER = 30.0
# Seconds until an actor that did not answer is watched again.
AGAIN = 0.5
# Calls that may wait in a host at once: every master that ever watched has one.
WATCHERS = 1000


class RaySubstrate:
    """`folder` is where actors keep what is not to outlive the job, on every node."""

    def __init__(self, job: str, folder: Path, address: str = "") -> None:
        self._job, self._folder = job, folder
        self._address = address or os.environ.get("RAY_ADDRESS", "")
        self._lock = threading.Lock()
        self._handles: dict[Name, Any] = {}
        self._seats: dict[Name, NodePid] = {}
        self._ordered: set[Name] = set()
        self._killed: set[Name] = set()
        self._told: set[Name] = set()  # whose end was told
        self._lost: set[str] = set()
        self._master = self.host = ""

    def open(self, epoch: int, tell: Tell) -> Found:
        self._tell = tell
        connect(self._address)
        self.host = ray.util.get_node_ip_address()
        self._places = RayPlaces(self._job, tell)
        names = [name for told in ray.util.list_named_actors() if (name := self._name(told))]
        asked = {}
        for name in names:
            with contextlib.suppress(ValueError):  # it ended just now
                self._handles[name] = ray.get_actor(name_of(self._job, name), NAMESPACE)
                asked[name] = self._handles[name].seat.remote()
        living = []
        for name, ref in asked.items():
            try:
                self._seats[name] = seat = NodePid(*ray.get(ref, timeout=ANSWER))
            except RayError:
                self._handles.pop(name)
                continue
            living.append(Created(*name, *seat))
            self._watch(name)
        return Found(tuple(living), ())

    def announce(self, address: str) -> None:
        self._master = address
        for handle in list(self._handles.values()):
            handle.announce.remote(address)

    def place(self, order: Place) -> None:
        self._places.place(order)

    def release(self, gang: str) -> None:
        self._places.release(gang)

    def create(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            with self._lock:
                if launch.name in self._handles or launch.name in self._ordered:
                    continue
                self._ordered.add(launch.name)
            threading.Thread(target=self._create, args=(launch,), daemon=True).start()

    def kill(self, name: Name) -> None:
        self._killed.add(name)
        threading.Thread(target=self._kill, args=(name,), daemon=True).start()

    def end(self) -> None:
        for told in ray.util.list_named_actors():
            if name := self._name(told):
                self._kill(name)
        self._places.release()
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        self._on_nodes(nodes, 0, f"{self._job}/", str(self._folder))
        self.close()

    def close(self) -> None:
        ray.shutdown()

    # One actor.

    def _create(self, launch: Launch) -> None:
        name = launch.name
        try:
            handle = self._made(launch)
            with self._lock:
                self._handles[name] = handle
            began = handle.begin.remote(self._job, launch, sys.path, self._master)
            self._watch(name)
            seat = NodePid(*ray.get(began))
        except (RayError, ValueError) as error:
            if name not in self._killed:
                self._look_at_node(launch.node)
                self._gone(name, f"could not be made: {error}")
            return
        self._seats[name] = seat
        self._tell(Created(*name, *seat))

    def _made(self, launch: Launch) -> Any:
        needs = amounts(launch.needs)
        options = {
            "name": name_of(self._job, launch.name),
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": 0,
            "max_concurrency": WATCHERS,
            "num_cpus": needs.pop("CPU", 0),
            "num_gpus": needs.pop("GPU", 0),
            "memory": int(needs.pop("memory", 0)) or None,
            "resources": needs or None,
            "scheduling_strategy": self._places.strategy_of(launch.actor, launch.node),
        }
        return ray.remote(RayHost).options(**options).remote()

    def _watch(self, name: Name) -> None:
        future: Future[int] = self._handles[name].watch.remote().future()
        future.add_done_callback(lambda done: self._over(name, done))

    def _over(self, name: Name, done: "Future[int]") -> None:
        if name in self._killed:
            return  # told when its process is gone
        error = done.exception()
        if error is None:
            code = done.result()
            self._gone(name, how_it_ended(code), clean=code == 0)
        elif isinstance(error, ActorUnavailableError):
            # It does not answer; whether it is dead, Ray will say.
            threading.Timer(AGAIN, self._watch_again, (name,)).start()
        else:
            if seat := self._seats.get(name):
                self._look_at_node(seat.node)
            self._gone(name, _how(error))

    def _watch_again(self, name: Name) -> None:
        if name in self._handles and ray.is_initialized():
            self._watch(name)

    def _gone(self, name: Name, how: str, clean: bool = False) -> None:
        with self._lock:
            if name in self._told:
                return
            self._told.add(name)
            self._handles.pop(name, None)
            self._seats.pop(name, None)
        self._tell(Ended(*name, how, clean))

    def _kill(self, name: Name) -> None:
        """Ray says at once that a stopped process is dead; we say so when it is."""
        handle, seat = self._handles.get(name), self._seats.get(name)
        try:
            handle = handle or ray.get_actor(name_of(self._job, name), NAMESPACE)
            seat = seat or NodePid(*ray.get(handle.seat.remote(), timeout=ANSWER))
        except (ValueError, RayError):
            pass  # it is gone already, or does not answer
        if handle is not None:
            ray.kill(handle, no_restart=True)
        if seat is not None:
            self._on_nodes([seat.node], seat.pid, name_of(self._job, name))
        self._gone(name, "was killed")

    def _on_nodes(self, nodes: Sequence[str], pid: int, mark: str, folder: str = "") -> None:
        """See to it, there, that a process is gone and what was started under this mark."""
        here = {node["NodeID"] for node in ray.nodes() if node["NodeManagerAddress"] == self.host}
        work: Any = ray.remote(end_process)
        refs = [
            work.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
            ).remote(pid, mark, folder)
            for node in nodes
            if node not in here
        ]
        if here & set(nodes):
            end_process(pid, mark, folder)  # a task would need a process of its own
        for ref in refs:
            with contextlib.suppress(RayError):  # the node is gone with all on it
                ray.get(ref, timeout=ANSWER)

    def _look_at_node(self, node: str) -> None:
        """An actor ended: perhaps with all of its node."""
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        if node and node not in alive and node not in self._lost:
            self._lost.add(node)
            self._tell(NodeLost(node))

    def _name(self, told: str) -> Name | None:
        return name_in(self._job, told)


def connect(address: str) -> None:
    """To a cluster that outlives us."""
    if ray.is_initialized():
        return
    if not address or address == "local":
        raise SubstrateError(
            "a job on Ray needs a cluster that outlives its master: start one with `ray start"
            " --head`, and name it with --ray-address or RAY_ADDRESS (auto for this machine's)"
        )
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SubstrateError(f"there is no Ray cluster at {address}: {error}") from None


def _how(error: BaseException) -> str:
    """The one sentence of what Ray says."""
    lines = [line for line in str(error).splitlines() if line.startswith("The actor")]
    last = (lines or [str(error)])[-1].partition(". ")[0]
    return f"died: {last[:300]}" if isinstance(error, RayActorError) else f"failed: {last[:300]}"
