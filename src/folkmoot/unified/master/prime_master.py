"""PrimeMaster: PrimeManager's machine on a journal, a substrate, and a line to every actor.

Everything that happens becomes an event of the machine; an event is on the disk before anything
follows from it (`host.durable`). So a master may be killed at any moment: the next one reads the
journal, asks the substrate who lives, hears from each of them where it stands, and goes on. What it
tells carries its epoch, and whoever has seen a higher one refuses it.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from folkmoot.core.job import JobSpec, Stage, State, machine, sub_master_id
from folkmoot.core.job import messages as m
from folkmoot.core.job.state import role_of
from folkmoot.host.durable import Durable, Step
from folkmoot.host.event_log import EventLog
from folkmoot.host.tasks import end_tasks
from folkmoot.unified.control import (
    MASTER,
    TELL,
    Beat,
    Begin,
    Examine,
    Leave,
    Membership,
    Status,
    Welcome,
    decode_told,
)
from folkmoot.unified.master import events
from folkmoot.unified.master.home import Home, JobOutcome
from folkmoot.unified.master.launches import Launches
from folkmoot.unified.master.line import Contacts
from folkmoot.unified.master.open_journal import open_journal
from folkmoot.unified.master.owner import OwnerCalls
from folkmoot.unified.master.silence import Quiet, look_every, quiet
from folkmoot.unified.rpc.call import STACKS
from folkmoot.unified.rpc.connection import RpcConnection, RpcPeer
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.server import Server
from folkmoot.unified.substrate import (
    Created,
    Ended,
    Found,
    Launch,
    Name,
    NodeLost,
    Substrate,
    SubstrateError,
    SubstrateEvent,
    SubstrateLost,
    Superseded,
)

logger = logging.getLogger(__name__)
# Seconds for an actor to say where it hangs.
EXPLAIN = 2.0


class PrimeMaster:
    """`await run()` gives the job's exit code. One process holds a job's journal at a time."""

    def __init__(self, home: Home, substrate: Substrate, *, take_over: bool = False) -> None:
        self.home, self._substrate = home, substrate
        self.spec: JobSpec = home.spec()
        journal = open_journal(home, take_over)
        self._durable: Durable[State] = Durable(
            machine, journal, self.spec.name, lambda: machine.create(self.spec), self._act
        )
        self._log = EventLog(home.events)
        self._contacts = Contacts()
        self._methods = RemoteMethods(MASTER)
        self._methods.export(TELL, self._told, inline=True)
        OwnerCalls(self).export(self._methods)
        self._finished: asyncio.Future[m.Finish] | None = None
        self._looked = asyncio.Event()  # whether the machine knows who lives
        self._told_membership: Membership | None = None

    @property
    def state(self) -> State:
        return self._durable.state

    @property
    def epoch(self) -> int:
        return self._durable.epoch

    async def run(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        found = await asyncio.to_thread(self._substrate.open, self.epoch, self._heard)
        server = self._open_line()
        tasks: list[asyncio.Task[Any]] = []
        try:
            tasks.append(asyncio.create_task(self._durable.serve()))
            await self._take_over(found)
            tasks.append(asyncio.create_task(self._watch_silence()))
            done = await self._until_finished(*tasks)
            await self._give_back(done)
        except BaseException as error:
            self._log.write(events.MasterStopped(self.epoch, str(error) or type(error).__name__))
            self._substrate.close()
            raise
        finally:
            await end_tasks(tasks)
            self._durable.close()
            server.close(grace=1.0)  # whoever asked for the end is told
        return done.exit_code

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def contacts(self) -> Contacts:
        return self._contacts

    async def submit(self, event: m.AnyEvent) -> m.Refused | None:
        """Take an event in; why it was refused, or None once it is on the disk."""
        await self._looked.wait()
        return await self._submit(event)

    async def _submit(self, event: m.AnyEvent) -> m.Refused | None:
        refused = await self._durable.submit(event)
        if refused:
            logger.debug("%s: %s", type(event).__name__, refused.reason)
        return refused

    # The beginning and the end.

    def _open_line(self) -> Server:
        server = Server(
            RpcPeer.me(MASTER, self.epoch),
            self._methods,
            self.home.secret(),
            on_open=lambda connection: self._soon(self._came, connection),
            on_closed=lambda connection: self._soon(self._left, connection),
        )
        server.listen(self.home.control_of(self.epoch))
        self.home.point_to(self.epoch)
        address, host = self.home.control, self._substrate.host
        if host:
            address = server.listen(f"tcp:{host}:0")
        self._launches = Launches(self.home, self.spec, address)
        self._substrate.announce(address)
        return server

    async def _take_over(self, found: Found) -> None:
        """Tell the machine who lives before anything else, so that nothing changes meanwhile."""
        living = tuple(m.Living(*created.name) for created in found.living)
        told = tuple(str(created.name) for created in found.living)
        resumed = self._durable.resumed
        self._log.write(events.MasterBegan(self.epoch, os.getpid(), resumed, told))
        self._write_ends(found)
        for created in found.living:  # to be heard from, from now on
            self._contacts[created.name].heard = time.monotonic()
        if resumed:
            await self._submit(m.MasterRestarted(living, self._durable.now()))
        self._looked.set()
        if not self.state.begun:
            await self.submit(m.StartAsked())

    def _write_ends(self, found: Found) -> None:
        """Ends that no master saw: the machine learns that they are gone, the log learns how."""
        for ended in found.ended:
            if self.state.process(*ended.name):
                self._log.write(events.ActorEnded(*ended.name, ended.how))

    async def _until_finished(self, *tasks: "asyncio.Task[Any]") -> m.Finish:
        assert self._finished
        await asyncio.wait([self._finished, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not self._finished.done():
                task.result()  # raises what ended it
        return await self._finished

    async def _give_back(self, done: m.Finish) -> None:
        await asyncio.to_thread(self._substrate.end)
        self.home.write_outcome(JobOutcome(done.exit_code, done.reason))
        self._log.write(events.MasterStopped(self.epoch, "the job is over"))
        self._log.close()
        self.home.tidy()

    # What happens, from other threads into the loop.

    def _soon(self, function: Any, *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _heard(self, event: SubstrateEvent) -> None:
        self._soon(self._substrate_told, event)

    def _told(self, message: bytes) -> None:
        self._soon(self._actor_told, decode_told(message))

    def _take(self, *happened: m.AnyEvent) -> None:
        """Hand events in, in this order, without waiting."""
        for event in happened:
            task = self._loop.create_task(self.submit(event))
            task.add_done_callback(_log_failure)

    # Actors.

    def _came(self, connection: RpcConnection) -> None:
        if name := _actor(connection):
            if not self.state.process(*name):
                connection.close("is not of this job any more")
                return
            self._contacts.connected(name, connection)

    def _left(self, connection: RpcConnection) -> None:
        """No death: the substrate tells of those. But nobody can call it for now."""
        if name := _actor(connection):
            self._contacts.broke(name, connection)

    def _actor_told(self, told: Status | Beat) -> None:
        if self.home.leads_elsewhere(self.epoch):
            # It hung, and is listened to instead of its successor, who would miss the actor.
            self._stop_here(Superseded("another master holds the job: end this one"))
            return
        contact, name = self._contacts.took(told), told.name
        if isinstance(told, Status):
            self._contacts.order(name, Welcome(self.epoch))
            self._take(*_events_of(told, self._durable.now()))
            if told.stage is Stage.FAILED:
                self._log.write(events.ActorRaised(*name, told.how, told.traceback))
            self._introduce()
        elif contact.progressed == contact.heard and told.numbers:
            self._log.write(events.Progressed(*name, told.numbers))

    def _introduce(self) -> None:
        """Tell all actors who is there, if that has changed."""
        addresses = {
            a.id: contact.status.address
            for a in self.state.living()
            if (contact := self._contacts.find(Name(a.id, a.incarnation)))
            and contact.status
            and contact.status.address
        }
        roles = {role: tuple(a.id for a in self.state.workers(role)) for role in self.state.roles}
        membership = Membership(self.epoch, roles, addresses)
        if membership != self._told_membership:
            self._told_membership = membership
            self._contacts.tell_all(membership)

    async def _watch_silence(self) -> None:
        every = look_every(self.state)
        while True:
            before = time.monotonic()
            await asyncio.sleep(every)
            if time.monotonic() - before > every + 1.0:
                self._contacts.excuse_all()  # it was us who did not listen
                continue
            for found in list(quiet(self.state, self._contacts)):
                await self._silent(found)

    async def _silent(self, found: Quiet) -> None:
        contact = self._contacts[found.name]
        contact.heard = contact.progressed = time.monotonic()  # said once
        if found.hangs and contact.connection:
            stacks = await _stacks(contact.connection)
            self._log.write(events.ActorHangs(*found.name, found.how, stacks))
        await self.submit(m.Silent(*found.name, found.how, self._durable.now()))

    # The substrate.

    def _substrate_told(self, event: SubstrateEvent) -> None:
        match event:
            case Created(actor, incarnation, node, pid):
                self._log.write(events.ActorCreated(actor, incarnation, node, pid))
            case Ended(how=how):
                self._contacts.forget(event.name)
                self._log.write(events.ActorEnded(*event.name, how))
                self._take(m.Died(*event.name, how, self._durable.now()))
            case NodeLost(node):
                self._log.write(events.NodeLost(node))
                self._take(m.NodeGone(node, self._durable.now()))
            case SubstrateLost(why, replaced):
                self._stop_here(Superseded(why) if replaced else SubstrateError(why))
            case _:
                self._take(event)

    def _stop_here(self, error: BaseException) -> None:
        if self._finished and not self._finished.done():
            self._finished.set_exception(error)

    # Effects, once what led to them is on the disk.

    def _act(self, step: Step) -> None:
        for effect in step.effects:
            if not isinstance(effect, m.Refused):
                self._log.write(_without_bundles(effect))
        try:
            self._carry_out(step.effects)
        except Superseded as error:
            self._stop_here(error)

    def _carry_out(self, effects: Iterable[m.Effect]) -> None:
        launches: list[Launch] = []
        self._introduce()
        for effect in effects:
            match effect:
                case m.Create():
                    launches.append(self._launches.of(effect))
                case m.Start(actor, incarnation, generation, world):
                    begin = Begin(self.epoch, generation, world)
                    self._contacts.order(Name(actor, incarnation), begin)
                case m.Check(role, incarnation, generation, world):
                    name = Name(sub_master_id(role), incarnation)
                    self._contacts.order(name, Examine(self.epoch, generation, world))
                case m.Stop(actor, incarnation):
                    self._contacts.order(Name(actor, incarnation), Leave(self.epoch))
                case m.Kill(actor, incarnation):
                    self._substrate.kill(Name(actor, incarnation))
                case m.Place():
                    self._substrate.place(effect)
                case m.Release(gang):
                    self._substrate.release(gang)
                case m.Finish():
                    if self._finished and not self._finished.done():
                        self._finished.set_result(effect)
        if launches:
            self._substrate.create(launches)


def _actor(connection: RpcConnection) -> Name | None:
    """Who is at the other end, if it is an actor and not the owner."""
    peer = connection.peer
    return Name(peer.name, peer.incarnation) if peer and peer.incarnation else None


def _events_of(status: Status, now: int) -> Iterable[m.AnyEvent]:
    """What a status means to the machine, which refuses what it knows already."""
    if status.stage is Stage.FAILED:
        yield m.Raised(*status.name, status.how, now, status.traceback, status.exit_code or 1)
        return
    if status.stage is not Stage.INIT:
        yield m.ActorReady(*status.name)
    if status.verdict:
        unfit = status.verdict.unfit
        yield m.ChildrenChecked(
            role_of(status.actor),
            status.incarnation,
            status.verdict.generation,
            tuple(unfit),
            "; ".join(f"{name}: {why}" for name, why in unfit.items()),
            now,
        )
    if status.stage in (Stage.RUNNING, Stage.FINISH):
        yield m.Report(*status.name, Stage.RUNNING, status.generation)
    if status.stage is Stage.FINISH:
        yield m.Report(*status.name, Stage.FINISH, status.generation, status.result)


async def _stacks(connection: RpcConnection) -> str:
    try:
        return str(await asyncio.to_thread(connection.call(STACKS, 0).result, EXPLAIN))
    except Exception as error:
        return f"nobody says: {error or type(error).__name__}"


def _without_bundles(effect: m.Effect) -> m.Effect:
    return msgspec.structs.replace(effect, bundles=()) if isinstance(effect, m.Place) else effect


def _log_failure(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.error("an event was not taken: %s", error)
