"""The side of a run that trains: a client's machine, and what it notes of each round."""
