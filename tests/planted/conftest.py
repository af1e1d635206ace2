"""The table of lies at the end of a run."""

import pytest

from tests.planted.lies.report import RESULTS, TABLE, table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of lies, and write it to a file."""
    if not RESULTS:
        return
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(RESULTS))
    terminalreporter.write_line(f"{table(RESULTS)}\nthe table: {TABLE}")
