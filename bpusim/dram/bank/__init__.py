"""The bank-level model of a channel: banks, rows, refresh and command timing, compiled by numba."""
