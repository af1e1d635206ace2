"""Failures as the page of a job shows them: counted, compared name by name, and whether a retry may help."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from exporter.errors import CheckpointMismatch
from exporter.outcome import Failure

# Causes that an operator can remove, so that the same request may succeed later. All other codes that are not
# retryable are of the request, its model or its files: the request has to change.
AFTER_REPAIR = frozenset(
    {
        "archive_differs",
        "attempt_timed_out",
        "compile_failed",
        "family_not_listed",
        "family_unusable",
        "host_missing",
        "index_failed",
        "stage_timed_out",
        "storage_error",
        "torch_unsupported",
        "tower_died",
        "attempt_failed",
        "weights_differ",
        "wrong_architecture",
    }
)

_COUNT = re.compile(r"(?:^checkpoint and model disagree|); (\d+) (missing|unexpected|mismatched): ")
_ENTRY = re.compile(r"(missing|unexpected|mismatched) (.+)")
_MISMATCH = re.compile(r"(?P<name>.+): [^()]+ \((?P<found>[^()]*)\), model \((?P<expected>[^()]*)\)")
_CUT = re.compile(r"… \([\d,]+ more characters\) …")
_CONFIG_LINE = re.compile(r"(?:^|/)[\w.-]*config:(\d{1,7})(?::\d+)?$")


def may_help_to_retry(failure: Failure) -> bool:
    """Return whether the same request may succeed if it is tried again."""
    return failure.retryable or failure.code in AFTER_REPAIR


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """A tensor on which checkpoint and model disagree."""

    name: str
    expected: str  # by the model
    found: str  # in the checkpoint


@dataclass(frozen=True, kw_only=True)
class FailureView:
    """A failure, with what its report lists taken apart."""

    failure: Failure
    counts: tuple[tuple[int, str], ...]  # how many tensors, and what is wrong with them
    mismatches: tuple[Mismatch, ...]  # as many of them as the report holds

    @classmethod
    def of(cls, failure: Failure) -> "FailureView":
        """Take the report of a mismatched checkpoint apart; others stay text."""
        if failure.code != CheckpointMismatch.code:
            return cls(failure=failure, counts=(), mismatches=())
        counts = tuple((int(count), kind) for count, kind in _COUNT.findall(failure.message))
        return cls(failure=failure, counts=counts, mismatches=tuple(_list_mismatches(failure.report)))

    @property
    def total(self) -> int:
        return sum(count for count, _ in self.counts)

    @property
    def is_cut(self) -> bool:
        """True if the report holds fewer tensors than there are."""
        return len(self.mismatches) < self.total

    @property
    def config_line(self) -> int | None:
        """The line of the pipeline config that `where` names."""
        found = _CONFIG_LINE.search(self.failure.where)
        return int(found[1]) if found else None


def _list_mismatches(report: str) -> Iterator[Mismatch]:
    for line in report.splitlines():
        entry = None if _CUT.search(line) else _ENTRY.fullmatch(line)
        if entry is None:  # a line of which only a part is left
            continue
        kind, text = entry.groups()
        if kind == "missing":
            yield Mismatch(name=text, expected="a tensor", found="none")
        elif kind == "unexpected":
            yield Mismatch(name=text, expected="none", found="a tensor")
        elif sizes := _MISMATCH.fullmatch(text):
            yield Mismatch(**sizes.groupdict())
