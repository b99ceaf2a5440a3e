"""The substrate that a job's settings name."""

from pathlib import Path

from folkmoot.unified.substrate import Substrate, SubstrateError

ACTOR_MAIN = "folkmoot.unified.actor_main"
SUBSTRATES = ("local", "ray", "inprocess")


def open_substrate(
    name: str, job: str, run: Path, preload: tuple[str, ...], alone: float, ray_address: str
) -> Substrate:
    if name == "local":
        from folkmoot.unified.substrate.local import LocalSubstrate

        return LocalSubstrate(run, (ACTOR_MAIN, *preload), alone)
    if name == "inprocess":
        from folkmoot.unified.substrate.inprocess import InProcessSubstrate

        return InProcessSubstrate()
    if name == "ray":
        try:
            from folkmoot.unified.substrate.ray import RaySubstrate
        except ImportError:
            raise SubstrateError("Ray is not installed: pip install 'folkmoot[ray]'") from None
        return RaySubstrate(job, run, ray_address)
    raise unknown(name)


def warm_up(name: str, run: Path, preload: tuple[str, ...], alone: float) -> None:
    """Begin what takes long and does not need a master: the imports of the fork server."""
    if name == "local":
        from folkmoot.unified.substrate.local import start_fork_server

        start_fork_server(run, (ACTOR_MAIN, *preload), alone)


def unknown(name: str) -> SubstrateError:
    return SubstrateError(f"there is no substrate {name!r}: take one of {', '.join(SUBSTRATES)}")
