"""A comparison in sentences, one per subject, as a terminal and a page show them first."""

from collections.abc import Iterator

from exporter.reports.comparison import Comparison, LatencyRatio, OutputDiff, TowerDiff

_MOST_NAMED = 4  # outputs, or batch sizes, in one sentence


def summarise(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Return subjects, each with a sentence on what differs there."""
    return tuple(_summarise(comparison))


def _summarise(comparison: Comparison) -> Iterator[tuple[str, str]]:
    if comparison.shares_a_tower:
        yield "config", _count(comparison.config.total, "setting differs", "settings differ")
    else:
        families = f"{comparison.old.family} and {comparison.new.family}"
        yield "config", f"not compared: no tower is in both releases, of families {families}"
    made = _count(comparison.artifact.total, "fact differs", "facts differ")
    yield "versions and sources", made
    for tower in comparison.towers:
        for subject, sentence in summarise_tower(tower):
            yield f"{tower.name} tower: {subject}" if subject else f"{tower.name} tower", sentence


def summarise_tower(tower: TowerDiff) -> Iterator[tuple[str, str]]:
    """Yield subjects of one tower, each with a sentence on what differs there."""
    if tower.only_in is not None:
        yield "", f"only the {tower.only_in} release has it"
        return
    if tower.identical:
        yield "", "every served file is byte for byte the same"
    else:
        yield from _list_served(tower)
    if tower.vectors is not None:
        yield "item vectors", _vectors(tower)
    yield "size", _size(tower)


def _list_served(tower: TowerDiff) -> Iterator[tuple[str, str]]:
    yield "inputs and dims", _count(tower.interface.total, "thing differs", "things differ")
    if tower.code is not None:
        yield "code", _code(tower)
    yield "tables", _tables(tower)
    yield "other weights", f"{tower.weights.changed} of {tower.weights.total} changed"
    if tower.outputs is not None:
        yield "outputs", _outputs(tower)
    if tower.latency is not None:
        yield "latency", _latency(tower)


def _count(number: int, one: str, several: str) -> str:
    return "no difference" if not number else f"{number} {one if number == 1 else several}"


def _code(tower: TowerDiff) -> str:
    code = tower.code
    assert code is not None
    origins = f" (old {code.old_origin}, new {code.new_origin})"
    if code.same:
        return f"unchanged{origins}"
    if code.same_sources:
        return f"the same generated sources, compiled anew to other bytes{origins}"
    return f"CHANGED in {len(code.changed)} kinds of files{origins}"


def _tables(tower: TowerDiff) -> str:
    if not tower.tables_total:
        return "it has none"
    said = f"{tower.tables_changed} of {tower.tables_total} changed"
    compared = sum(table.rows_compared for table in tower.tables)
    changed = sum(table.rows_changed for table in tower.tables)
    if not compared:
        return said
    return f"{said}, {changed:,} of {compared:,} rows ({share(changed / compared)})"


def share(value: float) -> str:
    """Return a share as per cent, in which a small one never looks like none, nor a large one like all."""
    if 0 < value < 0.0001:
        return "less than 0.01 %"
    if 0.9999 < value < 1:
        return "more than 99.99 %"
    return f"{value * 100:.4g} %"


def _outputs(tower: TowerDiff) -> str:
    outputs = tower.outputs
    assert outputs is not None
    if outputs.note:
        return f"not compared: {outputs.note}"
    named = "; ".join(describe_output(output) for output in outputs.outputs[:_MOST_NAMED])
    more = len(outputs.outputs) - _MOST_NAMED
    return f"on {outputs.rows:,} rows: {named}" + (f"; and {more} more" if more > 0 else "")


def describe_output(output: OutputDiff) -> str:
    """Say in a few words how far an output moved."""
    if output.note:
        return f"{output.name}: {output.note}"
    if not output.rows_changed:
        return f"{output.name} equal"
    moved = [f"{share(output.rows_changed / output.rows)} of rows changed"]
    if output.largest_difference is not None:
        moved.append(f"by at most {output.largest_difference:.3g}")
    if output.rank_correlation is not None:
        moved.append(f"rank correlation {output.rank_correlation:.4f}")
    if output.mean_cosine is not None:
        moved.append(f"mean cosine {output.mean_cosine:.4f}")
    if output.rows_not_finite:
        moved.append(f"{output.rows_not_finite:,} rows NOT FINITE")
    return f"{output.name} {', '.join(moved)}"


def _latency(tower: TowerDiff) -> str:
    latency = tower.latency
    assert latency is not None
    measured = "; ".join(describe_ratio(each) for each in latency.ratios[:_MOST_NAMED])
    return "; ".join(part for part in (measured, latency.note) if part)


def describe_ratio(each: LatencyRatio) -> str:
    """Say in a few words how the times of calls compare."""
    rows = "1 row" if each.batch == 1 else f"{each.batch} rows"
    return (
        f"{rows}: {each.old_ms:.3g} ms to {each.new_ms:.3g} ms, × {each.ratio:.2f} "
        f"({each.low:.2f} to {each.high:.2f})"
    )


def _vectors(tower: TowerDiff) -> str:
    vectors = tower.vectors
    assert vectors is not None
    said = f"{vectors.old_items:,} items to {vectors.new_items:,}"
    if vectors.note:
        return f"{said}; {vectors.note}"
    found = f"{vectors.found:,} of {vectors.compared:,} found again by id"
    if vectors.mean_cosine is None or vectors.least_cosine is None:
        return f"{said}; {found}"
    return f"{said}; {found}, mean cosine {vectors.mean_cosine:.4f}, least {vectors.least_cosine:.4f}"


def _size(tower: TowerDiff) -> str:
    old, new = tower.sizes.old_bytes, tower.sizes.new_bytes
    if old == new:
        return f"{new:,} bytes, as before"
    ratio = f" (× {new / old:.3f})" if old and new else ""
    return f"{old:,} bytes to {new:,}{ratio}"
