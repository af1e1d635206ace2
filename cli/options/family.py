"""The option --family of commands that run on this machine: it may name a class of a file as well."""

import argparse

from cli.settings import ExportSettings
from exporter.families.own_code import FamilyFile, GivenModule, find_own_family
from processes.startup import settings_or_exit


def take_own_family(arguments: argparse.Namespace) -> FamilyFile | GivenModule | None:
    """Return the family that --family FILE.py:CLASS names, and put its name alone in the option's place.

    Its config may then be left out, and is empty.

    Raises:
        FamilyUnusable: there is no such file, or no class is named.
    """
    own = find_own_family(arguments.family) if arguments.family else None
    if own is not None:
        arguments.family = own.name
        arguments.needs_config = False
    return own


def list_families(own: FamilyFile | GivenModule | None) -> tuple[str, ...]:
    """Return the families whose code may be loaded: those of the setting, and the caller's own."""
    return (*settings_or_exit(ExportSettings).families, *([own.name] if own else []))
