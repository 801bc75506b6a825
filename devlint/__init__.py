"""devlint: a linter for the ways in which PyTorch code goes wrong about devices."""

__version__ = "0.1.0"
