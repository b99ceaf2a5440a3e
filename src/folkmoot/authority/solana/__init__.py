"""A run kept by a program on Solana: the chain applies the rules, everybody can read and tick."""
