"""An attempt's ranks that stop where they are told to: `python -m tests.e2e.held_ranks FOLDER WORKSPACE`."""

import sys
from pathlib import Path

from tests.faults.holding import HoldFolder
from worker.attempt import ranks
from worker.attempt.workspace import AttemptFile

if __name__ == "__main__":
    folder, workspace = sys.argv[1:]
    order = AttemptFile.model_validate_json(Path(workspace, "attempt.json").read_bytes())
    sys.argv = ["worker.attempt.ranks", workspace, str(order.spec.ranks)]
    ranks.main(HoldFolder(Path(folder)).watching(order.attempt))
