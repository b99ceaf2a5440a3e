"""A trainer that drives the job: step by step it calls the other roles, whoever dies meanwhile.

    class PPO(Trainer):
        def step(self, number):
            played = answered(self.group("rollout").call(Rollout.play))    # of those who lived
            loss = self.group("actor").call_rank0(Actor.learn, played).result()
            return {"loss": loss} if number < 100 else None                # None: done

Of a role whose workers do the same, some are enough: `answered` leaves out those who died on a
call; the next call finds them where they are by then, or fails again. Of a role that cannot be done
without, a death breaks the step: the trainer waits until that worker is back and takes the step
once more. What a dead worker had done already is not known, so a step must bear being taken twice:
with fresh samples it does.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from folkmoot.unified.rpc.errors import WorkerDied
from folkmoot.unified.rpc.group import FutureSequence
from folkmoot.unified.worker import Worker

T = TypeVar("T")


class Trainer(Worker):
    #: For how many seconds it waits for a worker that died.
    patience: float = 120.0

    def step(self, number: int) -> Mapping[str, Any] | None:
        """One step: numbers to tell the job, or None when it is done."""
        raise NotImplementedError(f"{type(self).__name__} drives the job: give it step(number)")

    def first_step(self) -> int:
        """Where it begins. One that can be started anew says how far it was."""
        return 0

    def result(self) -> Any:
        """What the job gives in the end."""

    def start(self) -> Any:
        number = self.first_step()
        while not self.stopping:
            try:
                numbers = self.step(number)
            except WorkerDied as died:
                self.log.warning("step %d is taken once more: %s", number, died)
                self._wait_for(died.actor)
                continue
            if numbers is None:
                break
            number += 1
            self.progress(step=number, **numbers)
        return self.result()

    def _wait_for(self, worker: str) -> None:
        """Until it is ready; one that is not in time is an error of this trainer."""
        self.current.worker(worker, patience=self.patience).call("status").result()


def answered(calls: FutureSequence[T]) -> list[T]:
    """The results of a group's call without those who died on it; WorkerDied if nobody lived."""
    results, deaths = [], []
    for call in calls.calls:
        try:
            results.append(call.result())
        except WorkerDied as died:
            deaths.append(died)
    if deaths and not results:
        raise deaths[0]
    return results
