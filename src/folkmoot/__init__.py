"""Folkmoot: train one model together on machines nobody fully controls."""

__version__ = "0.1.0"
__all__ = ["__version__"]
