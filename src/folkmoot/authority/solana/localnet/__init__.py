"""A cluster of one on this machine: the real virtual machine behind the real protocol."""
