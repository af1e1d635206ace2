"""A server that has imported torch and fbgemm, and forks processes that run packages: see `make_server`."""

import importlib
import sys

import fbgemm_gpu  # noqa: F401  most packages use its operators, and it takes a third of a second

import exporter.verify.reload  # noqa: F401  its imports, of torch above all, are what children need
from exporter.distributed.fork_server import serve


def run_program(program: str) -> None:
    """Run a module that reads requests on stdin and writes replies to stdout."""
    importlib.import_module(program).main(sys.stdin, sys.stdout)


if __name__ == "__main__":
    serve(int(sys.argv[1]), run_program)  # the number of a socket with requests for processes
