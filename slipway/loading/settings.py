"""The variable of the environment that switches on the input checks of compiled code."""

import os

_INPUT_CHECKS = "AOTI_RUNTIME_CHECK_INPUTS"


def switch_on_input_checks() -> None:
    """Let packages check their inputs: each library reads the variable once, at its first call."""
    if os.environ.get(_INPUT_CHECKS) != "1":
        os.environ[_INPUT_CHECKS] = "1"
