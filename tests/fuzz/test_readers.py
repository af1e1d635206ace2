"""What reads a stranger's bytes raises our own errors and no others, whatever the bytes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from exporter.checkpoint.dcp_metadata import read_metadata
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import Feature
from exporter.data.column import ColumnPlace, read_column
from exporter.errors import ExportError
from exporter.spec import ExportSpec
from service.planning import plan
from tests.fuzz.drawing import FEW, MANY, Count, draw, mutated
from tests.service.requests import FIXTURES

TOKENS = tuple(
    token.encode()
    for token in (
        *("{", "}", '"', ":", "#", "\n", "-1", "nan", "inf", "18446744073709551615", "4294967295", "1e400"),
        *(
            "feature_configs",
            "model_config",
            "num_buckets",
            "embedding_dim",
            "feature_name",
            "sequence_feature",
        ),
        *("FG_NONE", "true", "\u202e", "\\000", "../", "[", "]", "<", ">", ";", "group_type: SEQUENCE"),
    )
)
OPCODES = tuple(
    bytes([opcode]) for opcode in b"(.0123FINJKLMRSUVXabcdeghijlopqrstu}]\x80\x81\x85\x86\x87\x88\x93\x94\x95"
)


def counted(count: Count, read: Callable[[], object]) -> None:
    count.tried += 1
    try:
        read()
    except ExportError as error:
        count.said.add(error.code)
    else:
        count.taken += 1


def fuzz_configs(examples: int) -> Count:
    """Recorded configs, damaged: parsed and planned as at submit."""
    count = Count()
    rows = "/rows.parquet"

    def check(data: bytes) -> None:
        text = data.decode(errors="replace")
        spec = ExportSpec(
            config=text, checkpoint_uri="/k", item_input_uri=rows, sample_input_uri=rows, output_uri="/o"
        )
        counted(count, lambda: plan(spec))

    models = ("mind", "hstu_match", "multi_tower_din", "dlrm_hstu")
    for model in models:
        original = (FIXTURES / model / "pipeline.config").read_bytes()
        draw(mutated(original, TOKENS), examples // len(models), check)
    return count


def fuzz_metadata(examples: int, folder: Path) -> Count:
    """A recorded `.metadata`, damaged; and pickles of nothing but opcodes."""
    count = Count()
    path = folder / ".metadata"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        counted(count, lambda: read_metadata(path))

    original = (FIXTURES / "mind" / "model.ckpt-11" / "model" / ".metadata").read_bytes()
    draw(mutated(original, OPCODES), examples // 2, check)
    opcodes = st.lists(st.one_of(st.sampled_from(OPCODES), st.binary(max_size=5)), max_size=60).map(b"".join)
    draw(opcodes.map(lambda body: b"\x80\x02" + body + b"."), examples // 2, check)
    return count


_LEAVES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=12),
    st.sampled_from(
        ["1", "-1", "1:0.5", "1\x1d2", "1;2", "99999999999999999999", "nan", "1e999", ":", "\x03", "\0"]
    ),
)
_COLUMNS = st.one_of(
    st.lists(_LEAVES, min_size=1, max_size=6),
    st.lists(st.lists(_LEAVES, max_size=4), min_size=1, max_size=4),
    st.lists(st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3), min_size=1, max_size=3),
)


def _make_array(values: Sequence[object]) -> pa.Array | None:
    """Return the values as a column, or None if no column could hold them together."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def fuzz_encoder(examples: int, features: tuple[Feature, ...]) -> Count:
    """Columns of whatever types for features of all kinds."""
    count = Count()
    place = ColumnPlace(where="x.parquet", column="c", first_row=0)

    def check(drawn: tuple[int, pa.Array]) -> None:
        which, array = drawn
        counted(count, lambda: read_column(array, features[which % len(features)], place))

    arrays = _COLUMNS.map(_make_array).filter(lambda array: array is not None)
    draw(st.tuples(st.integers(0, 100), arrays), examples, check)
    return count


@pytest.fixture(scope="module")
def features() -> tuple[Feature, ...]:
    models = ("mind", "hstu_match", "multi_tower_din", "dlrm_hstu", "multi_tower_din_w")
    configs = ((FIXTURES / model / "pipeline.config").read_text() for model in models)
    return tuple(feature for text in configs for feature in parse_pipeline_config(text).features)


EXAMPLES = [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]


@pytest.mark.parametrize("examples", EXAMPLES)
def test_a_damaged_config_is_refused_in_our_words(examples: int) -> None:
    count = fuzz_configs(examples)
    assert count.tried >= 0.9 * examples
    assert "invalid_pipeline_config" in count.said


@pytest.mark.parametrize("examples", EXAMPLES)
def test_damaged_metadata_is_refused_in_our_words(examples: int, tmp_path: Path) -> None:
    count = fuzz_metadata(examples, tmp_path)
    assert count.tried >= 0.9 * examples
    assert count.said == {"checkpoint_unreadable"}


@pytest.mark.parametrize("examples", EXAMPLES)
def test_odd_columns_are_refused_in_our_words(examples: int, features: tuple[Feature, ...]) -> None:
    count = fuzz_encoder(examples, features)
    assert count.tried >= 0.9 * examples
    assert count.said == {"invalid_rows"} and count.taken > 0


def test_what_is_damaged_was_sound() -> None:
    assert read_metadata(FIXTURES / "mind" / "model.ckpt-11" / "model" / ".metadata")
