"""A coordinator that listens: the service, TLS, metrics, and an orderly end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio

from folkmoot.federated import eventlog
from folkmoot.federated.coordinator.config import Federation, Security
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.service import CoordinatorService

#: How long participants may take to hear FINISHED before the coordinator leaves.
FAREWELL = 5.0


class Server:
    """A running coordinator and where it can be reached."""

    def __init__(
        self,
        coordinator: Coordinator,
        service: CoordinatorService,
        port: int,
        metrics_port: int | None,
    ) -> None:
        self.coordinator, self.service = coordinator, service
        self.port, self.metrics_port = port, metrics_port

    @property
    def address(self) -> str:
        host = self.coordinator.config.server.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

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
) -> AsyncIterator[Server]:
    """Run a coordinator for as long as the block runs."""
    coordinator = make(config)
    server = grpc.aio.server(options=_options(config))
    stop_metrics: Callable[[], None] = lambda: None  # noqa: E731 - the no-op of what follows
    try:
        service = CoordinatorService(coordinator)
        server.add_generic_rpc_handlers((service.handler(),))
        port = _listen(server, config)
        metrics_port = None
        if config.metrics.enable:
            metrics_port, stop_metrics = coordinator.meters.serve(
                config.metrics.host, config.metrics.port
            )
        await coordinator.start()
        await server.start()
        running = Server(coordinator, service, port, metrics_port)
        state = coordinator.state
        coordinator.log.write(
            eventlog.Started(
                config.run_id, state.phase, state.round, coordinator.resumed, running.address
            )
        )
        yield running
    finally:
        await server.stop(grace=0.5)
        await coordinator.stop()
        await asyncio.to_thread(stop_metrics)


def _options(config: Federation) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.server.max_message),
        ("grpc.max_send_message_length", config.server.max_message),
        ("grpc.max_metadata_size", 8192),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]


def _listen(server: grpc.aio.Server, config: Federation) -> int:
    credentials = server_credentials(config.security)
    try:
        if credentials is None:
            return server.add_insecure_port(config.server.address)
        return server.add_secure_port(config.server.address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {config.server.address}: {error}") from None


def server_credentials(security: Security) -> grpc.ServerCredentials | None:
    """TLS as the config says; with a client authority, mutual."""
    if not security.tls_certificate:
        return None
    authority = security.tls_client_authority
    return grpc.ssl_server_credentials(
        [(Path(security.tls_key).read_bytes(), Path(security.tls_certificate).read_bytes())],
        root_certificates=Path(authority).read_bytes() if authority else None,
        require_client_auth=bool(authority),
    )
