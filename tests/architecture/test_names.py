"""Names say what a thing is: modules are nouns, functions are verbs with their object."""

from pathlib import PurePosixPath

import pytest

from tests.architecture.tree import Module

# A participle says that something was done, and neither what nor to what.
PARTICIPLES = frozenset(
    [
        "asked",
        "averaged",
        "built",
        "called",
        "carried",
        "checked",
        "claimed",
        "closed",
        "compared",
        "declared",
        "described",
        "done",
        "ended",
        "evaluated",
        "found",
        "forked",
        "given",
        "guarded",
        "held",
        "hashed",
        "joined",
        "judged",
        "kept",
        "listed",
        "loaded",
        "lowered",
        "made",
        "mapped",
        "marked",
        "measured",
        "merged",
        "moved",
        "opened",
        "ordered",
        "packed",
        "padded",
        "parsed",
        "planned",
        "published",
        "recorded",
        "renamed",
        "renewed",
        "requested",
        "saved",
        "seen",
        "sent",
        "served",
        "settled",
        "shown",
        "shrunk",
        "signed",
        "started",
        "stored",
        "taken",
        "timed",
        "told",
        "translated",
        "tried",
        "used",
        "verified",
        "wanted",
        "written",
    ]
)
GERUNDS = frozenset(
    [
        "bundling",
        "calling",
        "closing",
        "describing",
        "ending",
        "finding",
        "forking",
        "judging",
        "keeping",
        "making",
        "measuring",
        "opening",
        "ordering",
        "overrunning",
        "packaging",
        "probing",
        "publishing",
        "reading",
        "recording",
        "requesting",
        "running",
        "sending",
        "settling",
        "shrinking",
        "telling",
        "trying",
        "verifying",
        "writing",
    ]
)


def test_modules_are_not_named_by_a_participle(modules: list[Module]) -> None:
    assert [module.path for module in modules if module.is_documented and _is_participle(module.path)] == []


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("worker/settling.py", True),
        ("exporter/shards/made/x.py", True),
        ("exporter/artifact/upload.py", False),
    ],
)
def test_a_participle_is_recognised(path: str, refused: bool) -> None:
    assert _is_participle(path) is refused


def _is_participle(path: str) -> bool:
    return bool((PARTICIPLES | GERUNDS) & {*PurePosixPath(path).with_suffix("").parts})
