"""DisTrO: each client sends the largest DCT coefficients of its momentum; all decode one sum."""

from folkmoot.learning.methods.distro.method import DistroMethod

__all__ = ["DistroMethod"]
