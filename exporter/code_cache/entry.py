"""Pack compiled code into one file, in which every member has a digest."""

import hashlib
import io
import logging
import zipfile
import zlib

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save

from exporter.aoti.code import CompiledCode, ProgramCode
from exporter.errors import CompileFailed
from exporter.manifest import TensorEntry
from exporter.spec import Frozen

LAYOUT = 1  # version of the entries' format; entries of another version are not read

_INDEX, _CODE, _VALUES = "entry.json", "code/", "values.safetensors"

# An entry may unpack to this many times its own size, or to _SMALL bytes if that is more.
_SMALL, _MOST_UNFOLDED = 64 << 20, 200

log = logging.getLogger(__name__)


class Index(Frozen):
    """entry.json: facts on the program, and the digest of every other member."""

    layout: int
    fingerprint: str
    digests: dict[str, str]  # sha256
    state: dict[str, str]
    outputs: tuple[TensorEntry, ...]
    op_libraries: tuple[str, ...]
    own_digest: str = ""  # of all that is above

    def digest(self) -> str:
        """Return the sha256 of these facts, without the digest itself."""
        return hashlib.sha256(self.model_dump_json(exclude={"own_digest"}).encode()).hexdigest()


def pack_entry(code: ProgramCode) -> bytes:
    """Return the bytes of the file that `unpack_entry` reads."""
    members = {_CODE + name: data for name, data in code.code.files.items()}
    members[_VALUES] = save({name: value.contiguous() for name, value in code.code.values.items()})
    index = Index(
        layout=LAYOUT,
        fingerprint=code.fingerprint,
        digests={name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        state=dict(code.state),
        outputs=code.outputs,
        op_libraries=code.op_libraries,
    )
    index = index.model_copy(update={"own_digest": index.digest()})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_INDEX, index.model_dump_json())
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


def _refuse_unsafe_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError if a member's name leads out of the archive, or the members would unpack too large."""
    if any(".." in name.split("/") or name.startswith("/") or "\\" in name for name in archive.namelist()):
        raise ValueError("a member's name leads out of the entry")
    if sum(member.file_size for member in archive.infolist()) > max(_SMALL, _MOST_UNFOLDED * size):
        raise ValueError("its members would unpack to too many bytes")


def unpack_entry(data: bytes, fingerprint: str) -> ProgramCode | None:
    """Return the code in a file, or None if it is damaged or of another layout or fingerprint."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _refuse_unsafe_members(archive, len(data))
            index = Index.model_validate_json(archive.read(_INDEX))
            members = {name: archive.read(name) for name in index.digests}
        digests = {name: hashlib.sha256(member).hexdigest() for name, member in members.items()}
        facts = (index.layout, index.fingerprint, index.digests, index.own_digest)
        if facts != (LAYOUT, fingerprint, digests, index.digest()):
            return None
        code = CompiledCode(
            files={
                name.removeprefix(_CODE): each for name, each in members.items() if name.startswith(_CODE)
            },
            values=load(members[_VALUES]),
        )
        assert code.table is not None  # reads the table now: without it the code is useless
    except (
        zipfile.BadZipFile,
        ValidationError,
        SafetensorError,
        CompileFailed,
        KeyError,
        ValueError,
        OSError,
        EOFError,
        RuntimeError,  # an entry that says that it is encrypted; NotImplementedError: compressed otherwise
        zlib.error,
    ) as error:
        log.warning(
            "code_cache_entry_damaged", extra={"fingerprint": fingerprint, "reason": str(error)[:200]}
        )
        return None
    return ProgramCode(
        fingerprint=fingerprint,
        code=code,
        state=index.state,
        outputs=index.outputs,
        op_libraries=index.op_libraries,
    )
