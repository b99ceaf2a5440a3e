"""Weights that the coordinator carries itself: `bucket = "coordinator"`.

A participant opens a line (TCP, with TLS where the coordinator has it) to the coordinator's host
and `weights_port`. On it go frames of `coordinator.proto` and bodies:

    call               ->             store, size, token   ->
                       <- answer      body                 ->
                       <- body        end                  ->
                                                           <- answer, answer

A `call` is a heartbeat: it is held until there is something to hear, and when that is a round, the
round's model comes with it; or before it, while the disk gets it (`ahead`), and then the answer
says that this is it. So a round is one trip down and one up. After a cut, `fetch` asks for
the rest of a model, and `store` asks first how much of an update has come.

Every request is signed like one over gRPC. Nothing is kept of a line: when it breaks, the next one
goes on at the byte where it ended. Both sides hash bodies as they pass and hold one piece of them
in memory. TCP holds back who sends faster than the other writes.
"""
