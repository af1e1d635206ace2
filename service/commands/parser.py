"""The subcommands of `slipway` that call a running service, one for each call of its API."""

import argparse

from service.commands import files, hooks, jobs, models


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands; the parser of each sets `run`, a function that returns the exit code."""
    for module in (jobs, files, models, hooks):
        module.add_commands(subparsers)
