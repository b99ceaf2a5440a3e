"""Weights that the coordinator carries itself: `bucket = "coordinator"`.

A participant opens a line (TCP, with TLS where the coordinator has it) to the coordinator's host
and `weights_port`. On it go frames of `coordinator.proto` and bodies:

    fetch, offset      ->             store, size, token   ->
                       <- answer                           <- answer, offset
                       <- body        body                 ->
                       end     ->                          <- answer
                       <- answer

Every request is signed like one over gRPC. Nothing is kept of a line: when it breaks, the next one
goes on at the byte where it ended. Both sides hash bodies as they pass and hold one piece of them
in memory. TCP holds back who sends faster than the other writes.
"""
