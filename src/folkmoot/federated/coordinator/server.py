"""A coordinator that listens: the service, TLS, metrics, and an orderly end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from folkmoot.federated.coordinator import events
from folkmoot.federated.coordinator.config import Federation, SecurityConfig
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.service import CoordinatorService
from folkmoot.federated.transfer.listener import WeightsListener
from folkmoot.host.rpc import listen, new_server
from folkmoot.host.tls import ServerTls, server_tls
from folkmoot.host.tls_socket import server_context

#: How long participants may take to hear FINISHED before the coordinator leaves.
FAREWELL = 5.0


class RunningServer(NamedTuple):
    """A running coordinator and where it can be reached."""

    coordinator: Coordinator
    service: CoordinatorService
    port: int
    metrics_port: int | None

    @property
    def address(self) -> str:
        return replace(self.coordinator.config.server, port=self.port).address

    async def finished(self) -> None:
        """Wait for the last round; raises what kept the coordinator from going on."""
        await self.coordinator.finished.wait()
        if self.coordinator.failure:
            raise self.coordinator.failure

    async def farewell(self, patience: float = FAREWELL) -> None:
        """Stay until everybody who is connected has heard that the federation has finished."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.service.all_told.wait(), patience)


@contextlib.asynccontextmanager
async def serving(
    config: Federation, make: Callable[[Federation], Coordinator] = Coordinator
) -> AsyncIterator[RunningServer]:
    """Run a coordinator for as long as the block runs."""
    coordinator = make(config)
    server = new_server(_options(config))
    service: CoordinatorService | None = None
    weights: WeightsListener | None = None
    stop_metrics: Callable[[], None] = lambda: None  # noqa: E731 - the no-op of what follows
    try:
        service = CoordinatorService(coordinator)
        server.add_generic_rpc_handlers((service.handler(),))
        tls = _tls(config.security)
        port = listen(server, config.server.address, tls)
        if config.bucket.carried:
            weights = _listen_for_weights(config, port, tls, service)
        metrics_port = None
        if config.metrics.enable:
            metrics_port, stop_metrics = coordinator.meters.serve(
                config.metrics.host, config.metrics.port
            )
        await coordinator.start()
        await server.start()
        if weights is not None:
            weights.start()
        running = RunningServer(coordinator, service, port, metrics_port)
        state = coordinator.state
        coordinator.log.write(
            events.Started(
                config.run_id, state.phase, state.round, coordinator.resumed, running.address
            )
        )
        yield running
    finally:
        await server.stop(grace=0.5)
        if weights is not None:
            await asyncio.to_thread(weights.close)
        await coordinator.stop()
        if service is not None:
            service.close()
        await asyncio.to_thread(stop_metrics)


def _listen_for_weights(
    config: Federation, port: int, tls: ServerTls | None, service: CoordinatorService
) -> WeightsListener:
    """Beside the port of gRPC: the one after it, unless the owner or the system chose."""
    chosen = config.server.weights_port or (config.server.port and port + 1)
    context = server_context(tls) if tls is not None else None
    try:
        listener = WeightsListener(config.server.host, chosen, context, service.grant)
    except OSError as error:
        where = f"port {chosen} of {config.server.host}"
        raise OSError(f"cannot carry weights at {where}: {error}; set weights_port") from None
    service.weights_port = listener.port
    return listener


def _options(config: Federation) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.server.max_message),
        ("grpc.max_send_message_length", config.server.max_message),
        ("grpc.max_metadata_size", 8192),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # Sockets that say nothing must not keep others out. A heartbeat is not silence.
        ("grpc.server_handshake_timeout_ms", round(config.server.handshake_timeout * 1000)),
        ("grpc.max_connection_idle_ms", round(config.server.idle_timeout * 1000)),
    ]


def _tls(security: SecurityConfig) -> ServerTls | None:
    files = (security.tls_certificate, security.tls_key, security.tls_client_authority)
    return server_tls(*(Path(file) if file else None for file in files))
