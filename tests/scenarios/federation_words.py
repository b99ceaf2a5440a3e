"""The words of a federation's transcripts.

> federation rounds=2 min_participants=2      a new federation with these rules
> 0 rendezvous a                              at 0 s, participant `a` registers
> 5 deliver a samples=10 contents=x round=0   `a` delivers a good update; loss=2: and its evaluation
> 5 bad a                                     `a` delivers a bad one
> 5 drop a,b     > 5 tick     > 5 written     > 5 lost 0/a     > 5 excuse a,b
> federation region=yes                       that of an aggregator
> 5 call 3 epochs=2 base=6     > 5 end        the coordinator above is in round 3; it has finished
> 5 spoiled 0/a                               the update of `a` cannot be combined
> heartbeat a    > start a    > show          questions change nothing
"""

from typing import ClassVar

from folkmoot.core import federation
from folkmoot.core.federation import Rules, State
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Evaluation, UpperRound
from folkmoot.core.machine import Effect
from scenarios.transcript import Words, read_value


class FederationWords(Words):
    machine = federation
    codes = tuple(m.Reason)
    silence: ClassVar = ["nothing"]

    def create_federation(self, initial: str = "no", region: str = "no", **named: str) -> State:
        rules = Rules(**{key: read_value(text) for key, text in named.items()})
        return federation.create(rules, initial=initial == "yes", region=region == "yes")

    def say_rendezvous(self, who: str, gpu: str = "") -> m.Rendezvous:
        return m.Rendezvous(who, {"gpu": True} if gpu == "yes" else {})

    def say_drop(self, who: str) -> m.Dropped:
        return m.Dropped(tuple(who.split(",")))

    def say_deliver(
        self,
        who: str,
        samples: str = "10",
        contents: str = "x",
        round: str = "",
        loss: str = "",
    ) -> m.Delivered:
        found = Evaluation(float(loss), int(samples)) if loss else None
        return m.Delivered(who, int(round or self.state.round), contents, int(samples), found)

    def say_bad(self, who: str) -> m.Quarantined:
        return m.Quarantined(who, self.state.round, "not finite")

    def say_lost(self, key: str) -> m.Lost:
        return m.Lost((key,))

    def say_spoiled(self, key: str) -> m.Spoiled:
        return m.Spoiled((key,))

    def say_excuse(self, who: str) -> m.Excused:
        return m.Excused(tuple(who.split(",")), self.state.round)

    def say_written(self, round: str = "", loss: str = "") -> m.Written:
        number = int(round or self.state.round)
        return m.Written(number, f"model {number + 1}", float(loss) if loss else None)

    def say_call(self, round: str, epochs: str = "1", base: str = "0") -> m.Called:
        above = UpperRound(int(round), f"model {round}", int(epochs), int(base))
        return m.Called(above)

    def say_end(self) -> m.Ended:
        return m.Ended()

    def ask_heartbeat(self, who: str) -> list[str]:
        answer = federation.advert(self.state, who)
        if isinstance(answer, m.Refused):
            return [self.line(answer)]
        expected = ", your update is expected" if answer.expected else ""
        return [f"{answer.phase} {answer.round}{expected}"]

    def ask_start(self, who: str) -> list[str]:
        task = federation.task(self.state, who)
        if isinstance(task, m.Refused):
            return [self.line(task)]
        made = "make the first weights" if task.initial else f"weights: {task.global_digest!r}"
        return [f"round {task.round}: {task.epochs} epochs after {task.epoch_base}; {made}"]

    def ask_show(self) -> list[str]:
        s = self.state
        lines = [
            f"{s.phase} {s.round}, epoch_base {s.epoch_base}",
            f"connected: {', '.join(s.members) or 'nobody'} (room for {s.rules.capacity})",
            f"selected: {', '.join(s.selected) or 'nobody'}; delivered: "
            f"{', '.join(d.key for d in s.ordered()) or 'nothing'}; goal {s.goal}",
        ]
        if (at := federation.next_tick(s, 0)) is not None:
            lines.append(f"deadline at {at / 1000:g} s")
        return lines

    def describe(self, effect: Effect) -> str:
        match effect:
            case m.Reply(reply):
                return reply
            case m.Counted(key, again):
                return f"{key} counts" + (" (known already)" if again else "")
            case m.Joined(id):
                return f"{id} joined"
            case m.Left(id, reason):
                return f"{id} left: {reason}"
            case m.Selected(round, ids):
                return f"selected for round {round}: {', '.join(ids)}"
            case m.LeftOut(round, ids):
                return f"round {round} goes on without {', '.join(ids)}"
            case m.Evaluated(round, loss, best):
                return f"model {round}: loss {loss:g}" + (", the best" if best else "")
            case m.Aggregate(round, keys):
                return f"aggregate round {round}: {', '.join(keys)}"
        return super().describe(effect)
