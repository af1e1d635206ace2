"""Find ports of this machine that are free."""

import socket

from launcher.errors import LaunchFailed

_LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server((_LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def claim_port(host: str, port: int) -> int:
    """Return the port if it is free, or any free one for 0; LaunchFailed if it is taken."""
    if port == 0:
        return free_port()
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise LaunchFailed(
            f"port {port} of {host} cannot be used: {error.strerror}",
            hint="choose another with --port, or --port 0 for any that is free",
        ) from error
    return port
