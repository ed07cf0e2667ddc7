"""The command line: arguments in, calls to the library, errors out. Nothing else."""

from bpusim.cli.main import main

__all__ = ["main"]
