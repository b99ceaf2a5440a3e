"""`folkmoot federate`: serve a federation, join one, look at one, or try one out on one machine."""

import asyncio
import contextlib
import os
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from folkmoot.cli import tls
from folkmoot.cli.federate_simulate import Class, Config, simulate
from folkmoot.cli.group import add_group
from folkmoot.cli.interrupt import run_until_interrupted
from folkmoot.cli.key import key
from folkmoot.host.named_code import import_module

Address = Annotated[str, typer.Argument(help="host:port of the coordinator.")]


def register(app: typer.Typer) -> None:
    commands = (serve, join, aggregate, status, up, simulate, key)
    add_group(app, "federate", "Train together on data that stays at home.", *commands)


def serve(file: Config) -> None:
    """Coordinate a federation until its last round.

    Every step is journaled before it is acted on: killed and started again, it goes on with the
    same round.
    """
    from folkmoot.federated.coordinator.config import load_federation

    config = load_federation(file)
    run_until_interrupted(_serve(config))


def join(
    address: Address,
    participant: Class,
    run_id: Annotated[str, typer.Option(help="The federation to join.")],
    key: Annotated[Path, typer.Option(help="File with our key; made when it is not there.")] = Path(
        "participant.key"
    ),
    coordinator: Annotated[
        str, typer.Option(help="The coordinator's public key; if not set, the first is remembered.")
    ] = "",
    bucket: Annotated[
        str, typer.Option(help="Bucket to use, whatever the coordinator tells.")
    ] = "",
    allow_bucket: Annotated[
        list[str] | None,
        typer.Option(
            help="A bucket that we agree to if the coordinator tells it; may be repeated."
        ),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="participant.toml: what we ask of the federation.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Our event log; KEY.events.jsonl beside our key if not set.")
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option(help="TOML: name = public key of everybody we agree to be summed with."),
    ] = None,
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Take part in a federation until it has finished; reconnects for ever."""
    from folkmoot.federated.participant.loop import Settings, take_part
    from folkmoot.host.memory import keep_memory
    from folkmoot.host.tls import client_tls

    keep_memory()
    settings = Settings(
        address=address,
        run_id=run_id,
        identity=str(key),
        bucket=bucket,
        log=str(log or key.with_suffix(".events.jsonl")),
        tls=client_tls(tls_ca, tls_cert, tls_key),
        peers=tomllib.loads(peers.read_text()) if peers else {},
        policy=_policy(policy, coordinator, allow_bucket or []),
    )
    made = load_participant(participant)()
    if not run_until_interrupted(take_part(made, settings)):
        raise typer.Exit(130)
    typer.echo("the federation has finished")


def aggregate(
    file: Annotated[Path, typer.Argument(help="The region's configuration, region.toml.")],
) -> None:
    """Stand between a coordinator and participants: one for a region, or a hospital of its own.

    To the coordinator above it is one participant, to those below it is their coordinator, which
    they join with `federate join`. In a round it takes the model from above, has those below train
    it, and delivers the sum of their updates: the federation makes the model that it would make
    without it, and sees none of theirs alone. Killed and started again, it goes on in the same
    round. region.toml is a federation.toml with a table "above" that says where the coordinator is;
    its owner lists our key, of `federate key`, under security.participants and our name under
    security.aggregators. docs/federation.md has both files.
    """
    from folkmoot.federated.aggregator.aggregate import aggregate as run
    from folkmoot.federated.aggregator.config import load_region
    from folkmoot.host.memory import collect_seldom
    from folkmoot.host.signing import Identity

    collect_seldom()
    config = load_region(file)

    def tell(server: Any) -> None:
        above, own = config.above, Identity.load(config.above.identity)
        typer.echo(f"{config.below.run_id} at {server.address}; {_weights(server)}")
        typer.echo(f"sums go to {above.run_id} at {above.address}, signed with {own.public.hex()}")
        typer.echo(f"our key for those below is {server.coordinator.identity.public.hex()}")
        if config.below.secure.enabled:
            typer.echo("updates are masked: this aggregator sees only their sum")
        _narrate(server)

    if not run_until_interrupted(run(config, tell)):
        raise typer.Exit(130)
    typer.echo("the federation above has finished")


def _policy(file: Path | None, coordinator: str, buckets: list[str]) -> Any:
    """As the file says, and the options besides."""
    from msgspec.structs import replace

    from folkmoot.federated.participant.policy import Policy, load_policy

    told = load_policy(file) if file else Policy()
    return replace(
        told,
        coordinator=coordinator or told.coordinator,
        buckets=(*told.buckets, *buckets),
    )


def status(
    address: Address,
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Say how far a federation is."""
    from folkmoot.host.tls import client_tls

    typer.echo(asyncio.run(_status(address, client_tls(tls_ca, tls_cert, tls_key))))


def up(
    file: Config,
    participant: Class,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many participants.")] = 3,
    tls_ca: tls.Ca = None,
    tls_cert: tls.Cert = None,
    tls_key: tls.Key = None,
) -> None:
    """Try a federation out: a coordinator and COUNT participants, each a process, on this machine.

    Participant number i finds i in the environment variable FOLKMOOT_PARTICIPANT. With TLS they all
    show the same certificate, if the coordinator asks for one. When too many of them have ended for
    the federation to go on, it says so and ends.
    """
    from folkmoot.federated.coordinator.config import BESIDE_JOURNAL, load_federation

    config = load_federation(file, BESIDE_JOURNAL)
    load_participant(participant)
    given = (tls_ca or config.security.tls_certificate, tls_cert, tls_key)
    shown = zip(("--tls-ca", "--tls-cert", "--tls-key"), given, strict=True)
    join = [f"{option}={file}" for option, file in shown if file]
    if config.security.tls_client_authority and not tls_cert:
        raise ValueError(
            "the coordinator asks participants for certificates ([security] "
            "tls_client_authority): give one with --tls-cert and --tls-key"
        )
    run_until_interrupted(_up(config, [f"--participant={participant}", *join], count))


def load_participant(name: str) -> Any:
    """The class that `module:Class` names; modules of the working folder count."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"{name!r} does not name a participant: expected module:Class")
    try:
        return getattr(import_module(module), attribute)
    except AttributeError:
        raise ValueError(f"module {module!r} has no class {attribute!r}") from None


async def _serve(config: Any) -> None:
    from folkmoot.federated.aggregate.private import Private
    from folkmoot.federated.coordinator.server import serving
    from folkmoot.host.memory import collect_seldom

    collect_seldom()
    async with serving(config) as server:
        state = server.coordinator.state
        again = f", resumed in round {state.round}" if server.coordinator.resumed else ""
        typer.echo(f"{config.run_id} at {server.address}{again}; {_weights(server)}")
        _narrate(server)
        typer.echo(f"our key is {server.coordinator.identity.public.hex()}")
        if config.secure.enabled:
            typer.echo("updates are masked: this coordinator sees only their sum")
        if isinstance(config.aggregation, Private):
            masked = config.secure.enabled
            typer.echo(config.aggregation.promise(config.rounds.rounds, masked=masked))
        if server.metrics_port is not None:
            typer.echo(f"metrics at http://{config.metrics.host}:{server.metrics_port}/metrics")
        await server.finished()
        await server.farewell()
        typer.echo(f"finished; the model is {_last_model(server)}")


def _weights(server: Any) -> str:
    if server.coordinator.config.bucket.carried:
        return f"it carries weights at port {server.service.weights_port}"
    return f"weights in {server.coordinator.config.bucket.url}"


def _last_model(server: Any) -> str:
    return f"{server.coordinator.store.bucket.url}/{server.coordinator.state.round}/global"


def _narrate(server: Any) -> None:
    """Tell on the terminal what happens."""
    from folkmoot.federated.coordinator.console import sentence

    def tell(record: Any) -> None:
        if said := sentence(record):
            typer.echo(f"  {said}")

    server.coordinator.log.listener = tell


async def _status(address: str, tls: Any) -> str:
    import grpc

    from folkmoot.federated import wire
    from folkmoot.host.rpc import open_channel

    async with open_channel(address, tls, [("grpc.max_receive_message_length", 65_536)]) as channel:
        try:
            answer = await wire.calls(channel)["Status"](wire.StatusRequest(), timeout=10)
        except grpc.aio.AioRpcError as error:
            raise OSError(f"no coordinator answers at {address}: {error.details()}") from None
    state = wire.STATE_NAME[answer.state]
    return (
        f"{answer.run_id}: {state}, round {answer.round} of {answer.rounds}\n"
        f"connected {answer.connected} (a round begins with {answer.needed}), "
        f"selected {answer.selected}, delivered {answer.delivered} of {answer.goal}, "
        f"bad {answer.quarantined}"
    )


async def _up(config: Any, join: list[str], count: int) -> None:
    from folkmoot.federated.coordinator.server import serving
    from folkmoot.host.memory import collect_seldom

    collect_seldom()
    async with serving(config) as server:
        typer.echo(f"{config.run_id} at {server.address} with {count} participants")
        _narrate(server)
        people = [await _spawn(server, join, i) for i in range(count)]
        ends = [asyncio.create_task(process.wait()) for process in people]
        try:
            await _finished_or_too_few(server, ends)
            await asyncio.wait(ends, timeout=30)
            typer.echo(f"finished; the model is {_last_model(server)}")
        finally:
            for process in people:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
            await asyncio.gather(*ends)


async def _finished_or_too_few(server: Any, ends: list[asyncio.Task[int]]) -> None:
    """Until the last round; ValueError when too few participants are left to get there."""
    needed = server.coordinator.state.rules.min_connected
    finished = asyncio.create_task(server.finished())
    try:
        while not finished.done():
            living = [end for end in ends if not end.done()]
            if len(living) < needed:
                codes = ", ".join(str(end.result()) for end in ends if end.done())
                raise ValueError(
                    f"{len(ends) - len(living)} of {len(ends)} participants have ended (exit codes "
                    f"{codes}), and a round needs {needed}: the federation stays in round "
                    f"{server.coordinator.state.round}. Look above for what they said; the same "
                    "command goes on from there"
                )
            await asyncio.wait([finished, *living], return_when=asyncio.FIRST_COMPLETED)
        await finished
    finally:
        finished.cancel()


async def _spawn(server: Any, join: list[str], number: int) -> Any:
    config = server.coordinator.config
    own = Path(config.server.state) / f"participant-{number}.key"
    words = ["federate", "join", server.address, *join, f"--run-id={config.run_id}"]
    # Whoever starts it all is the owner of all.
    words += ["--allow-bucket=all", f"--coordinator={server.coordinator.identity.public.hex()}"]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "folkmoot", *words, f"--key={own}"),
        env={**os.environ, "FOLKMOOT_PARTICIPANT": str(number)},
    )
