"""The command ``bpusim``, also as ``python -m bpusim``: what must be settled before the libraries are loaded."""

import gc
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:  # asked by scripts, many times: not worth loading a command line for
        from bpusim import __version__

        print(f"bpusim, version {__version__}")
        return
    # numpy's BLAS starts a thread for every core when it is loaded, and nothing here multiplies large matrices;
    # pydantic reads the metadata of every installed package to find plugins for itself.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # What is loaded stays: to look for garbage among it after every 700 objects takes a tenth of a short run.
    gc.set_threshold(100_000, *gc.get_threshold()[1:])
    from bpusim.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
