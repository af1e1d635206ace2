import pytest
from pydantic import ValidationError

from jobs.hooks.errors import TriggerUnfilled
from jobs.request import ExportRequest
from tests.jobs.hooks.factories import make_template, make_training_event


def test_an_event_fills_the_placeholders() -> None:
    request = make_template(model="{data.model}", labels={"step": "at-{data.step}"}).fill(
        make_training_event()
    )
    assert type(request) is ExportRequest
    assert request.checkpoint_uri == "s3://models/feed/ckpt-11"
    assert request.config_uri == "s3://models/feed/pipeline.config"
    assert request.item_input_uri == "s3://rows/eu/items.parquet"
    assert request.output_uri == "s3://out/hstu-feed/11"
    assert (request.model, request.labels) == ("hstu-feed", {"step": "at-11"})


def test_attributes_of_the_event_fill_placeholders_too() -> None:
    template = make_template(output_uri="/out/{type}/{id}")
    assert template.fill(make_training_event()).output_uri == "/out/com.example.training.completed/run-7"


def test_what_a_template_says_plainly_stays() -> None:
    template = make_template(config="model { towers {} }", config_uri=None, max_batch_size=64)
    request = template.fill(make_training_event())
    assert (request.config, request.max_batch_size) == ("model { towers {} }", 64)


@pytest.mark.parametrize(
    "text",
    ["{step}", "{data}", "{data.}", "{data.a b}", "{}", "{0}", "{data.step!r}", "{data.x", "x}", "{{id}}"],
)
def test_a_placeholder_that_no_event_can_fill_is_refused_when_put(text: str) -> None:
    with pytest.raises(ValidationError, match="placeholder"):
        make_template(output_uri=f"/out/{text}")


@pytest.mark.parametrize("changes", [{"checkpoint": "/x"}, {"output_uri": ""}, {"mode": "{data.mode}"}])
def test_a_field_that_no_request_has_is_refused_when_put(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        make_template(**changes)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"step": None}, "has no data.step"),
        ({"labels": "eu"}, "has no data.labels.region"),
        ({"step": {"of": 1}}, "neither text nor a whole number"),
        ({"step": True}, "neither text nor a whole number"),
        ({"model": ""}, "empty"),
        ({"model": "a\nb"}, "control characters"),
        ({"model": "../../other"}, "climbs out"),
        ({"model": "..%2fother"}, "climbs out"),
        ({"model": "%2e%2E%2fother"}, "climbs out"),
        ({"model": "x/..%252f..%252fother"}, "climbs out"),
        ({"model": "%25252e%25252e"}, "climbs out"),
        ({"model": "..\\other"}, "climbs out"),
        ({"model": "..%5cother"}, "climbs out"),
        ({"model": "a%00b"}, "control characters"),
        ({"model": "a%250ab"}, "control characters"),
        ({"labels": {"region": "*"}}, "pattern"),
        ({"labels": {"region": "e?"}}, "pattern"),
        ({"labels": {"region": "[a-z]"}}, "pattern"),
        ({"labels": {"region": "%2a"}}, "pattern"),
        ({"labels": {"region": "eu/items.parquet,s3://other/secret"}}, "pattern"),
    ],
)
def test_an_event_that_cannot_fill_a_template_says_which_field(data: dict[str, object], why: str) -> None:
    with pytest.raises(TriggerUnfilled, match=why) as raised:
        make_template().fill(make_training_event(**data))
    assert raised.value.where in ("output_uri", "item_input_uri")


def test_a_filled_request_is_checked_as_every_request() -> None:
    with pytest.raises(TriggerUnfilled, match="model"):
        make_template(model="{data.model}").fill(make_training_event(model="no spaces please"))


def test_a_template_s_callback_is_a_url() -> None:
    with pytest.raises(ValidationError, match="callback_url"):
        make_template(callback_url="https://user:pass@example.com/")


def test_values_that_climb_only_together_are_refused() -> None:
    template = make_template(output_uri="s3://out/{data.model}{data.step}/x")
    with pytest.raises(TriggerUnfilled, match="output_uri cannot be filled: .* climbs out"):
        template.fill(make_training_event(model=".", step="./other"))


def test_an_event_may_name_a_pattern_where_it_names_the_whole() -> None:
    template = make_template(item_input_uri="{data.rows}")
    rows = "s3://rows/eu/*.parquet,s3://rows/us/*.parquet"
    assert template.fill(make_training_event(rows=rows)).item_input_uri == rows


@pytest.mark.parametrize("model", ["a..b", "100%", "dt=2024%2F01", "a b", "..."])
def test_a_harmless_name_is_filled_as_it_stands(model: str) -> None:
    request = make_template().fill(make_training_event(model=model))
    assert request.output_uri == f"s3://out/{model}/11"


def test_an_event_fills_the_rows_of_the_release_gate() -> None:
    template = make_template(release_gate={"rows_uri": "s3://rows/{data.labels.region}/{data.step}.parquet"})
    assert template.fill(make_training_event()).gate_rows_uri == "s3://rows/eu/11.parquet"


def test_rows_of_a_release_gate_that_no_event_can_fill_are_refused_when_put() -> None:
    with pytest.raises(ValidationError, match="placeholder"):
        make_template(release_gate={"rows_uri": "s3://rows/{step}.parquet"})
