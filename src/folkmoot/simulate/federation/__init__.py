"""Worlds around the machine of a federation."""
