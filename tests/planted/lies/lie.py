"""Lie: one real step of an export, replaced by one that does something else, and how it must be caught."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

Plant = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class Lie:
    """One lie, as data.

    `plant` patches what makes the published files, never what judges them. It is entered in the process that
    exports, before it forks, and in the processes that try the scripts of the search for a smallest case.
    """

    name: str  # also the id of its test
    does: str  # one sentence
    plant: Plant
    code: str  # of the error that must end the export
    says: tuple[str, ...]  # what the error's message must name
    family: str = "RankerFamily"  # of tests.planted.lies.model: its model is exported
    recorded: str = ""  # the recorded model of TorchEasyRec that is exported instead
    smallest: str = ""  # the operator that the smallest case is about, where one exists
    spec: Mapping[str, object] = field(default_factory=dict)  # fields of the request beside the model's
    warm: bool = False  # an honest export of the same request comes before it, and fills the code cache
    reuses: bool = False  # code of other exports of this model: the lie is about steps behind the compiler
    recovers: bool = False  # the export goes on without what is wrong, and says so in the entry's code_note


def both(*plants: Plant) -> Plant:
    """Return one plant that enters all of these."""

    def enter_all() -> AbstractContextManager[object]:
        with ExitStack() as entered:
            for plant in plants:
                entered.enter_context(plant())
            return entered.pop_all()
        raise AssertionError

    return enter_all
