"""URIs and links that would lead an export out of its places: refused, and nothing is written outside."""

import json
from io import BytesIO
from pathlib import Path

from exporter.artifact.upload import remove_unfinished_artifact
from exporter.storage.places import Places
from exporter.storage.store import ArtifactStore
from exporter.storage.uris import FileRoots
from tests.hostile.kinds import CANARY, hostile
from tests.hostile.requests import BODY, posted
from tests.jobs.factories import make_spec
from tests.jobs.hooks.factories import make_template, make_training_event
from tests.service.requests import FIXTURES, export_request

OUTPUT = "output folder"
ROWS = "folder of rows"
EVENT = "training event"


def asked(**changes: object) -> object:
    return posted(json.dumps(export_request(**changes)))


@hostile("an output that climbs behind the sign of a pattern", reader=BODY)
def _(folder: Path) -> object:
    return asked(output_uri="/out/x[/../../outside/p")


@hostile("a checkpoint that climbs behind the sign of a pattern", reader=BODY)
def _(folder: Path) -> object:
    return asked(checkpoint_uri=f"{FIXTURES}/*/../../../../secret")


@hostile("a config that climbs behind the sign of a pattern", reader=BODY)
def _(folder: Path) -> object:
    return asked(config=None, config_uri=f"{FIXTURES}/?/../../../../../../../../proc/self/environ")


@hostile("rows that climb behind a pattern", reader=BODY)
def _(folder: Path) -> object:
    return asked(item_input_uri=f"{FIXTURES}/data/*/../../secret/x.parquet")


@hostile("an output that climbs once it is unquoted", reader=BODY)
def _(folder: Path) -> object:
    return asked(output_uri="file:///out/x[/%2e%2e/%2e%2e/outside/p")


@hostile("a prefix that climbs once it is unquoted twice", reader=BODY)
def _(folder: Path) -> object:
    return asked(output_uri="s3://bucket/team/..%252f..%252fother")


@hostile("a percent-encoded NUL in a path", reader=BODY)
def _(folder: Path) -> object:
    return asked(output_uri="file:///out/a%00b")


@hostile("a name of 3,000 bytes, which no disk takes", reader=BODY)
def _(folder: Path) -> object:
    return asked(item_input_uri=f"/out/*/{'n' * 3000}")


def opened(folder: Path) -> tuple[Path, ArtifactStore]:
    """An output that was judged, and its store."""
    output = folder / "roots" / "out"
    output.mkdir(parents=True)
    places = Places(folders=FileRoots(roots=(folder / "roots",)))
    return output, places.open_output(str(output), str(output))


@hostile("a link where the artifact's folder will be", reader=OUTPUT)
def _(folder: Path) -> None:
    output, store = opened(folder)
    (output / "job").symlink_to(folder)
    store.put_bytes(b"", f"job/{CANARY}")


@hostile("a link where a tower's folder will be", reader=OUTPUT)
def _(folder: Path) -> None:
    output, store = opened(folder)
    (output / "job").mkdir()
    (output / "job" / "user").symlink_to(folder)
    store.put_bytes(b"", f"job/user/{CANARY}")


@hostile("a link to nothing, which writing would create", reader=OUTPUT)
def _(folder: Path) -> None:
    output, store = opened(folder)
    (output / "file").symlink_to(folder / CANARY)
    store.put_bytes(b"", "file")


@hostile("an output that has become a link since it was judged", reader=OUTPUT)
def _(folder: Path) -> None:
    output, store = opened(folder)
    output.rmdir()
    output.symlink_to(folder)
    store.put_bytes(b"", CANARY)


@hostile("a link in place of a file that is being written", reader=OUTPUT)
def _(folder: Path) -> object:
    output, store = opened(folder)

    def swap(count: int) -> None:
        (unfinished,) = output.glob(".file.*")
        unfinished.unlink()
        unfinished.symlink_to(folder / CANARY)

    return store.write(BytesIO(b"own"), 3, "file", swap)


@hostile("a link to another's artifact, where leftovers are removed", reader=OUTPUT)
def _(folder: Path) -> None:
    output, store = opened(folder)
    (folder / "other").mkdir()
    (folder / "other" / "package").touch()
    (output / "job").symlink_to(folder / "other")
    try:
        remove_unfinished_artifact(f"{output}/job", opened=lambda uri: store)
    finally:
        if not (folder / "other" / "package").exists():
            (folder / CANARY).touch()


@hostile("a link out of the roots behind a link that stays", reader=ROWS)
def _(folder: Path) -> None:
    rows, beside = folder / "roots" / "rows", folder / "roots" / "beside"
    rows.mkdir(parents=True)
    beside.mkdir()
    (rows / "beside").symlink_to(beside)
    (beside / "out").symlink_to("/etc")
    spec = make_spec(item_input_uri=str(rows), checkpoint_uri=str(rows), output_uri=str(beside))
    Places(folders=FileRoots(roots=(folder / "roots",))).require_within(spec)


@hostile("a name that climbs once it is unquoted", reader=EVENT)
def _(folder: Path) -> object:
    return make_template(output_uri="s3://out/{data.model}").fill(make_training_event(model="..%252fother"))


@hostile("a pattern where a name belongs", reader=EVENT)
def _(folder: Path) -> object:
    return make_template().fill(make_training_event(labels={"region": "*"}))


@hostile("a second URI after a comma", reader=EVENT)
def _(folder: Path) -> object:
    region = "eu/items.parquet,s3://other/secret"
    return make_template().fill(make_training_event(labels={"region": region}))
