"""Searches: the best points of a space by as few runs as it takes."""

from bpusim.study.search.search import search

__all__ = ["search"]
