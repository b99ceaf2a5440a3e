"""A run whose state lives in a shared store: anyone may tick, and exactly one tick wins."""
