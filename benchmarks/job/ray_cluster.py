"""A Ray cluster of one node that has started when its address is printed, until stdin ends.

In a process of its own, so that it is of the environment whose interpreter runs this.
"""

import sys

from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
try:
    print(cluster.address, flush=True)
    sys.stdin.read()
finally:
    cluster.shutdown()
