"""A rank under torchft: a replica group of one process. Arguments: rank, lighthouse, heartbeat."""

import sys
from datetime import timedelta

from loop import Loop
from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo

rank, lighthouse, heartbeat = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
loop = Loop(rank)
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
    load_state_dict=loop.model.load_state_dict,
    state_dict=loop.model.state_dict,
    min_replica_size=1,
    rank=0,
    world_size=1,
    store_addr="127.0.0.1",
    store_port=store.port,
    lighthouse_addr=lighthouse,
    replica_id=str(rank),
    hostname="127.0.0.1",
    heartbeat_interval=timedelta(seconds=heartbeat),
)
while True:
    manager.start_quorum()
    mean = loop.gradients()
    manager.allreduce(mean).wait()
    if manager.should_commit():
        loop.step(mean)
        loop.report(rank, manager.num_participants())
