"""Where the `slipway` program begins: an interrupt while it is still being loaded ends it without a word."""

import signal


def main() -> int:
    """Load the commands and run one; returns its exit code."""
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # else it is ignored, as nohup has it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.main import main as run

    signal.signal(signal.SIGINT, interrupted)
    return run()
