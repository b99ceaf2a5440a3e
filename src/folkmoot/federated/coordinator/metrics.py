"""What a coordinator shows to Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from folkmoot.core.federation import Phase, State


class Meters:
    """The meters of one coordinator, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"folkmoot_federation_{name}", text, registry=self.registry)

        phase = Gauge(
            "folkmoot_federation_state",
            "1 for the state the coordinator is in",
            ["state"],
            registry=self.registry,
        )
        self._phases = {name: phase.labels(name) for name in Phase}
        self._round = gauge("round", "The round in progress")
        self._connected = gauge("connected_participants", "Participants connected")
        self._selected = gauge("selected_participants", "Participants selected for the round")
        self._delivered = gauge("delivered_updates", "Good updates of the round so far")
        self._expelled = gauge("expelled_participants", "Participants expelled")
        self.requests = Counter(
            "folkmoot_federation_requests",
            "Requests by method and gRPC status",
            ["method", "status"],
            registry=self.registry,
        )
        self.aggregation = Histogram(
            "folkmoot_federation_aggregation_seconds",
            "Time to combine a round's updates",
            registry=self.registry,
        )

    def observe(self, state: State) -> None:
        for phase, shown in self._phases.items():
            shown.set(phase == state.phase)
        self._round.set(state.round)
        self._connected.set(len(state.members))
        self._selected.set(len(state.selected))
        self._delivered.set(len(state.deliveries))
        self._expelled.set(len(state.expelled))

    def serve(self, host: str, port: int) -> tuple[int, Callable[[], None]]:
        """Answer scrapes on a thread; the port, and a function that stops it."""
        server, thread = start_http_server(port, host, self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return server.server_port, stop
