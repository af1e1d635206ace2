"""End a program the same way on SIGTERM and SIGHUP as on ctrl-C: through its `finally` blocks."""

import signal


def interrupt_on_end_signals() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, unless the caller ignores them, as nohup does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
