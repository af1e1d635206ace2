"""Record what the C++ compiler does and how long it takes, by a `g++` that is found before the real one."""

import shutil
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from processes.settings import inherited_environment

_SCRIPT = """#!/bin/bash
begun=$EPOCHREALTIME
{compiler} "$@"
status=$?
echo "$begun $EPOCHREALTIME $*" >> {log}
exit $status
"""
# The first mark that a command contains names the step.
_STEPS = {
    "c++-header": "precompiling headers",
    "header.hpp": "precompiling headers",
    ".wrapper.interface.cpp": "g++ on the interface of packages",
    ".wrapper.rest.cpp": "g++ on the wrapper",
    ".wrapper.cpp": "g++ on the wrapper",
    ".kernel.cpp": "g++ on the kernels",
    ".wrapper.o ": "linking",
}
_PROBES = "probes of the processor"


class CompilerLog:
    """A folder with a `g++` that keeps a log, to be put in front of PATH."""

    def __init__(self, folder: Path) -> None:
        """Write the program into `folder`."""
        folder.mkdir()
        compiler = shutil.which("g++")
        assert compiler is not None, "there is no C++ compiler"
        self._log = folder / "log"
        program = folder / "g++"
        program.write_text(_SCRIPT.format(compiler=compiler, log=self._log))
        program.chmod(0o700)
        self.path = f"{folder}:{inherited_environment({})['PATH']}"

    def take_steps(self) -> Mapping[str, float]:
        """Return the seconds of each step since the last call, and forget them."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for line in self._log.read_text().splitlines() if self._log.exists() else ():
            begun, ended, command = line.split(" ", 2)
            step = next((step for mark, step in _STEPS.items() if mark in command), _PROBES)
            seconds[step] += float(ended) - float(begun)
        self._log.unlink(missing_ok=True)
        return seconds
