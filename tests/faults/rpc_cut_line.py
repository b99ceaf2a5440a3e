"""A worker on another machine whose line is cut: no end of the connection is ever told.

Run by test_rpc_cut_line.py under `unshare -rn`; ends with 0 when the call failed by itself.
"""

import subprocess
import threading
import time

from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.directory import AddressBook
from folkmoot.unified.rpc.errors import WorkerDied
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.server import Server

SECRET = b"only this job knows it"
FAR = "127.0.0.2"
# Keep-alive notices after 5 + 5 x 2 seconds, and is checked every so often.
LONGEST = 40.0


def main() -> None:
    methods = RemoteMethods("rollout-0")
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        threading.Event().wait()

    methods.export("wait", wait)
    server = Server(RpcPeer.me("rollout-0", 1), methods, SECRET)
    book = AddressBook({"rollout-0": server.listen(f"tcp:{FAR}:0")})
    call = RpcClient("rollout-0", book, RpcPeer.me("trainer-0"), SECRET).call("wait")
    assert entered.wait(10)
    cut = ["ip", "route", "add", "blackhole", f"{FAR}/32", "table", "local"]
    subprocess.run(cut, check=True)
    began = time.monotonic()
    error = call.exception(LONGEST)
    assert isinstance(error, WorkerDied), error
    print(f"after {time.monotonic() - began:.1f} s: {error}")


if __name__ == "__main__":
    main()
