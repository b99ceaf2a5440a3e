"""Secure aggregation: the coordinator learns the sum of the updates and nothing about any one.

After Bonawitz et al. 2017, with double masking. In one attempt at a round, every participant

1. publishes two fresh X25519 keys, signed with its identity (`keys`);
2. draws a secret seed, and deals shares of the seed and of its mask key to the cohort, any
   `threshold` of which rebuild them; each share is encrypted for its holder (`shares`);
3. uploads its update in fixed point, plus a mask from its own seed, plus or minus a mask for each
   other member of the cohort from the key the two of them agree on: those cancel in the sum;
4. hears who delivered, signs that list, and hears the signatures of the others (`confirm`);
5. when `threshold` members signed the same list, gives up, for each who delivered, its share of
   that one's seed, and for each who did not, its share of that one's mask key; never both for the
   same one (`reveal`).

With `threshold` answers the coordinator removes the masks that did not cancel. Neither
side of an attempt, `participant_attempt.py` and `coordinator_attempt.py`, touches a socket, a
clock or a source of randomness; `participant/secure_delivery.py` and
`coordinator/secure_rounds.py` carry them out.

The threshold is above two thirds of the cohort, so no two lists can be confirmed unless a third of
the cohort helps the coordinator: docs/decisions/133 says exactly what is claimed.
"""
