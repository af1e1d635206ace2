from datetime import timedelta

import pytest

from jobs.hooks.deliveries import JITTER, PAUSES, Answer, DeliveryState
from tests.jobs.factories import NOW
from tests.jobs.hooks.factories import make_delivery, make_try

REFUSED = Answer(status=500, error="the receiver answered 500")
ACCEPTED = Answer(status=204)


def test_the_pauses_grow_and_are_a_day_in_all() -> None:
    assert list(PAUSES) == sorted(PAUSES)
    assert timedelta(hours=22) < sum(PAUSES, timedelta()) < timedelta(hours=26)


def test_an_accepted_delivery_ends() -> None:
    done = make_delivery().after_try(make_try(ACCEPTED), ACCEPTED, pauses=PAUSES, jitter=0)
    assert (done.state, done.attempts, done.next_at) == (DeliveryState.DELIVERED, 1, None)
    assert done.ended_at == NOW


@pytest.mark.parametrize("jitter", [-1, 0, 1])
def test_a_refused_delivery_waits_about_as_long_as_its_turn_says(jitter: int) -> None:
    refused = make_delivery().after_try(make_try(REFUSED), REFUSED, pauses=PAUSES, jitter=jitter)
    assert refused.state is DeliveryState.WAITING
    assert refused.next_at == NOW + PAUSES[0] * (1 + JITTER * jitter)
    assert refused.last_try is not None
    assert refused.last_try.error == "the receiver answered 500"


def test_after_the_last_pause_it_is_given_up() -> None:
    delivery = make_delivery()
    for _ in range(len(PAUSES) + 1):
        assert delivery.state is DeliveryState.WAITING
        delivery = delivery.after_try(make_try(REFUSED), REFUSED, pauses=PAUSES, jitter=0)
    assert (delivery.state, delivery.attempts) == (DeliveryState.GIVEN_UP, len(PAUSES) + 1)


def test_410_ends_it_at_once() -> None:
    gone = Answer(status=410, error="the receiver answered 410")
    dropped = make_delivery().after_try(make_try(gone), gone, pauses=PAUSES, jitter=0)
    assert dropped.state is DeliveryState.DROPPED
    assert "unsubscribed" in dropped.reason


def test_an_address_that_is_not_allowed_is_not_tried_again() -> None:
    refused = Answer(status=None, error="127.0.0.1 is refused", hopeless=True)
    given_up = make_delivery().after_try(make_try(refused), refused, pauses=PAUSES, jitter=0)
    assert (given_up.state, given_up.reason) == (DeliveryState.GIVEN_UP, "127.0.0.1 is refused")


def test_a_replayed_delivery_has_all_its_pauses_ahead() -> None:
    refused = make_delivery().after_try(make_try(REFUSED), REFUSED, pauses=(), jitter=0)
    replayed = refused.replay(NOW)
    assert (replayed.state, replayed.pauses_taken, replayed.next_at) == (DeliveryState.WAITING, 0, NOW)
    assert replayed.attempts == 1  # nothing that happened is forgotten
