"""The table of lies at the end of a run, and code that the lies behind the compiler share."""

from pathlib import Path

import pytest

from tests.planted.lies.report import PROPERTY, TABLE, table


@pytest.fixture(scope="session")
def kept_code(run_folder: Path) -> Path:
    """A folder of compiled code for lies that are not about it."""
    return run_folder / "code_of_lies"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of lies, and write it to a file."""
    rows = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if not rows:
        return
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(rows))
    terminalreporter.write_line(f"{table(rows)}\nthe table: {TABLE}")
