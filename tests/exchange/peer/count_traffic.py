"""Two peers alone in a network namespace: what they count beside what the kernel counts.

Run by test_traffic.py under `unshare -rn`; prints both numbers.
"""

import asyncio
import os
from pathlib import Path

from support.peers import heard, members


def loopback_bytes() -> int:
    line = next(x for x in Path("/proc/net/dev").read_text().splitlines() if "lo:" in x)
    return int(line.split(":")[1].split()[0])


async def main() -> None:
    async with members(2) as (one, two):
        for round_ in range(20):
            one.publish(round_, b"", os.urandom(6000))
            two.publish(round_, b"", os.urandom(200_000))
            await heard(two, 1)
            (message,) = await heard(one, 1)
            await one.body(message, 200_000)
        counted = one.traffic()[two.id].sent + two.traffic()[one.id].sent
        print(counted, loopback_bytes(), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
