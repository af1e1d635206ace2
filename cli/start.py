"""The entry point of the `slipway` program: an interrupt while modules are loaded ends it silently."""

import signal


def main() -> int:
    """Load the commands, run one and return its exit code."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else interrupts are ignored, as a shell's background job does
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    return run()
