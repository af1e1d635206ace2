"""The requests that the clients' calls make."""

from slipway.rest.calls import promote


def test_the_name_of_a_model_leads_to_no_other_call() -> None:
    path = promote("x/../../exports/1/cancel?").path
    assert path == "/models/x%2F..%2F..%2Fexports%2F1%2Fcancel%3F/promote"
