"""An aggregator: a participant to the coordinator above, and a coordinator to those below.

In each round it takes the global model from above, has its own participants train exactly that, and
delivers the sum of their updates with the sum of their samples. So the coordinator above makes the
model that it would make of all the updates, but for the order in which float64 adds them up.
"""
