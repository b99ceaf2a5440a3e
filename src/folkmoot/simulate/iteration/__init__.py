"""Ranks that agree through a store: every way a small world can go, and large worlds by chance."""
