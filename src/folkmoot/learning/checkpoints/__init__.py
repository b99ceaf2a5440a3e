"""Checkpoints in a store: saved, found, checked and loaded; and the hash of a model."""
