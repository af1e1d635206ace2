"""Settings of a worker that do not go together."""

from datetime import timedelta

import pytest

from processes.startup import settings_or_exit
from worker.settings import WorkerSettings


def test_beats_that_a_lease_does_not_survive_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_LEASE", "24")  # a sixth of which is less than the default
    with pytest.raises(SystemExit, match="SLIPWAY_HEARTBEAT_INTERVAL: .* a sixth of SLIPWAY_LEASE, 24"):
        settings_or_exit(WorkerSettings)
    monkeypatch.setenv("SLIPWAY_HEARTBEAT_INTERVAL", "4")
    assert WorkerSettings().heartbeat_interval == timedelta(seconds=4)
