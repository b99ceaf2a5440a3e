"""The process of a PrimeMaster: `python -m folkmoot.unified.master FOLDER`.

It ends with 0 when the job is over, however that went (`outcome.json` says); with `GIVE_UP` when
another try would fail the same way; with `REPLACED` when another master holds the job.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from folkmoot.core.job.messages import StopAsked
from folkmoot.host.journal import Fenced, JournalError
from folkmoot.unified.master.home import GIVE_UP, REPLACED, Home, HomeError
from folkmoot.unified.master.prime_master import PrimeMaster
from folkmoot.unified.master.standby import wait_for_turn
from folkmoot.unified.substrate import Substrate, SubstrateError, Superseded
from folkmoot.unified.substrate.open import open_substrate


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Holds one job.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--standby", action="store_true", help="wait until its master is gone")
    parser.add_argument("--take-over", action="store_true", help="its master hangs: replace it")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    home = Home(given.folder)
    try:
        take_over = wait_for_turn(home) if given.standby else given.take_over
        if home.outcome() is None:
            asyncio.run(hold(home, take_over))
    except (Fenced, Superseded) as error:
        return _say(error, REPLACED)
    except (JournalError, HomeError, SubstrateError) as error:
        return _say(error, GIVE_UP)
    return 0


async def hold(home: Home, take_over: bool = False) -> int:
    """Hold the job until it is over. Asked to end, the whole job is asked to stop."""
    master = PrimeMaster(home, substrate_of(home), take_over=take_over)
    loop = asyncio.get_running_loop()
    asked: set[asyncio.Task[object]] = set()

    def stop(number: signal.Signals) -> None:
        event = StopAsked(f"{number.name} was sent to its master", 128 + number)
        asked.add(loop.create_task(master.submit(event)))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    return await master.run()


def substrate_of(home: Home) -> Substrate:
    said = home.settings()
    job = home.spec().name
    return open_substrate(said.substrate, job, home.run, said.preload, said.alone, said.ray_address)


def _say(error: Exception, code: int) -> int:
    print(f"folkmoot: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
