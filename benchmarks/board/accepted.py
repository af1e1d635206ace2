"""Count the pipeline configs below a folder that Slipway accepts: `-m benchmarks.board.accepted FOLDER`.

Nothing but the configs is read: each is planned as `slipway plan` plans it.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.errors import ExportError
from exporter.towers.plan import PlanRequest, plan_towers, read_config
from service.client.tables import console, table_of

_POSITION = re.compile(r"^\S*:\d+(:\d+)?:? ")


class Answer(NamedTuple):
    """The answer for one config: the family of its model, or why it is refused."""

    config: Path
    family: str = ""
    code: str = ""
    refusal: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print an answer per config, the refusals by reason, and the count; return 1 if there is no config."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.board.accepted",
        description="Count the pipeline configs below a folder that Slipway accepts.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="searched for *.config, with its folders")
    folder: Path = parser.parse_args(arguments).folder
    answers = [ask(config) for config in sorted(folder.rglob("*.config"))]
    if not answers:
        sys.stderr.write(f"{folder} holds no *.config\n")
        return 1
    table = table_of("config", "family, or why it is refused")
    for answer in answers:
        table.add_row(str(answer.config.relative_to(folder)), answer.family or answer.refusal)
    reasons = Counter(_POSITION.sub("", answer.refusal) for answer in answers if answer.refusal)
    by_reason = table_of("configs", "refused because")
    for reason, count in reasons.most_common():
        by_reason.add_row(str(count), reason)
    for each in (table, by_reason) if reasons else (table,):
        console().print(each)
    console().print(f"{sum(not answer.refusal for answer in answers)} of {len(answers)} accepted")
    return 0


def ask(config: Path) -> Answer:
    """Plan every tower of a config."""
    request = PlanRequest(config_uri=config.absolute().as_uri(), item_input_uri="unread")
    try:
        towers = plan_towers(request, read_config(request))
    except ExportError as error:
        return Answer(config, code=error.code, refusal=error.message)
    return Answer(config, family=towers[0].family)


if __name__ == "__main__":
    sys.exit(main())
