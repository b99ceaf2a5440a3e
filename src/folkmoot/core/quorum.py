"""How many witnesses make a quorum: two thirds, and always a majority, so any two quorums meet."""

MAX_WITNESSES = 32


def witness_quorum(witnesses: int) -> int:
    """The number of proofs that decide among `witnesses` elected ones."""
    if witnesses < 1:
        raise ValueError(f"a quorum needs at least one witness, got {witnesses}")
    return max(2 * witnesses // 3, witnesses // 2 + 1)
