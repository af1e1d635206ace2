"""Errors of the gate beside those that `exporter.errors` has, as leaves of its tree.

VerificationFailed
├── InterfaceBroken    inputs or outputs are not what the manifest says, or are written to by other calls
├── TensorsExchanged   tensors between two packages are not those of their names
├── PackageLeaks       every call leaves the process with more
└── CallsMixed         calls of two threads at once change each other's numbers
"""

from exporter.errors import VerificationFailed


class InterfaceBroken(VerificationFailed):
    """The package takes or returns other tensors than the manifest says, or writes where it must not."""

    code = "interface_broken"
    advice = "nothing of the tower was published; report the tensors that the message names"


class TensorsExchanged(VerificationFailed):
    """The sparse package hands other tensors to the dense one than eager does under these names."""

    code = "tensors_exchanged"
    advice = "nothing of the tower was published; report the tensors that the message names"


class PackageLeaks(VerificationFailed):
    """The process that runs the package holds more after every call."""

    code = "package_leaks"
    advice = "nothing of the tower was published; look for what its operators keep of each call"


class CallsMixed(VerificationFailed):
    """The package computes other numbers while another thread calls it."""

    code = "calls_mixed"
    advice = "nothing of the tower was published; look for memory that calls share, as in its operators"
