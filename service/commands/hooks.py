"""`slipway triggers`, `subscriptions` and `deliveries`: webhooks in and out."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.hooks.deliveries import DeliveryState
from jobs.hooks.training import TrainingEvent
from jobs.hooks.triggers import TriggerRule
from service.client.options import non_empty
from service.commands.client_options import (
    Run,
    add_common,
    add_page_options,
    client_of,
    print_json,
    print_page,
    read_file,
    utc,
)
from service.hooks.schemas import SubscriptionRequest
from slipway.rest.answers import DeliveryView, Trigger


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `triggers`, `subscriptions` and `deliveries`, each with its own subcommands."""
    _add_triggers(subparsers)
    _add_subscriptions(subparsers)
    _add_deliveries(subparsers)


def _add_triggers(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    actions = _group(subparsers, "triggers", "rules by which training events start exports")
    add_page_options(_add(actions, "list", "list triggers, by name", run_triggers), "triggers to list")
    show = _add(actions, "show", "show a trigger and its results for the latest events", run_trigger)
    put = _add(actions, "put", "create or replace a trigger", run_put_trigger)
    delete = _add(actions, "delete", "delete a trigger; jobs that it started go on", run_delete_trigger)
    test = _add(actions, "test", "show what an event would do, without doing it", run_test_trigger)
    for each in (show, put, delete, test):
        each.add_argument("name", metavar="NAME", type=non_empty, help="name of the trigger")
    put.add_argument("file", metavar="FILE", type=Path, help="JSON of the rule; - is standard input")
    test.add_argument("file", metavar="FILE", type=Path, help="JSON of a CloudEvent; - is standard input")


def _add_subscriptions(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    actions = _group(subparsers, "subscriptions", "receivers of every job's events")
    listed = _add(actions, "list", "list subscriptions, oldest first", run_subscriptions)
    add_page_options(listed, "subscriptions to list")
    add = _add(actions, "add", "send every job's events to a URL; prints the secret, once", run_subscribe)
    show = _add(actions, "show", "show a subscription", run_subscription)
    replace = _add(actions, "replace", "change URL, events or secret", run_replace_subscription)
    delete = _add(actions, "delete", "delete a subscription", run_unsubscribe)
    for each in (show, replace, delete):
        each.add_argument("id", metavar="ID", type=non_empty, help="id of the subscription")
    for each in (add, replace):
        each.add_argument("file", metavar="FILE", type=Path, help="JSON with url, events, secret; - is stdin")


def _add_deliveries(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    actions = _group(subparsers, "deliveries", "events that were sent, or are to be sent")
    listed = _add(actions, "list", "list deliveries, newest first", run_deliveries)
    listed.add_argument("--job", type=non_empty, help="list only this job's")
    listed.add_argument(
        "--state", choices=[each.value for each in DeliveryState], help="list only those in this state"
    )
    add_page_options(listed, "deliveries to list")
    show = _add(actions, "show", "show a delivery with its latest tries", run_delivery)
    replay = _add(actions, "replay", "send a delivery once more, at once", run_replay)
    for each in (show, replay):
        each.add_argument("id", metavar="ID", type=non_empty, help="id of the delivery")


def _group(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, what: str
) -> "argparse._SubParsersAction[argparse.ArgumentParser]":
    parser = subparsers.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    return parser.add_subparsers(metavar="ACTION", required=True)


def _add(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, what: str, run: Run
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    add_common(parser, run)
    return parser


def run_triggers(arguments: argparse.Namespace) -> int:
    """Print a page of triggers."""
    page = client_of(arguments).triggers(limit=arguments.limit, cursor=arguments.cursor)
    columns = ("trigger", "enabled", "type", "source", "model", "changed")
    return print_page(page, columns, map(_trigger_row, page.triggers), as_json=arguments.json)


def _trigger_row(trigger: Trigger) -> Sequence[str]:
    enabled, when = "yes" if trigger.enabled else "no", trigger.when
    return trigger.name, enabled, when.type, when.source, when.model, utc(trigger.updated_at)


def run_trigger(arguments: argparse.Namespace) -> int:
    """Print a trigger as JSON."""
    print_json(client_of(arguments).trigger(arguments.name))
    return 0


def run_put_trigger(arguments: argparse.Namespace) -> int:
    """Create or replace a trigger."""
    trigger = client_of(arguments).put_trigger(arguments.name, read_file(arguments.file, TriggerRule))
    if arguments.json:
        print_json(trigger)
    else:
        sys.stdout.write(f"{trigger.name}\n")
    return 0


def run_delete_trigger(arguments: argparse.Namespace) -> int:
    """Delete a trigger."""
    client_of(arguments).delete_trigger(arguments.name)
    return 0


def run_test_trigger(arguments: argparse.Namespace) -> int:
    """Print what an event would do; exit code 1 if it starts nothing."""
    trial = client_of(arguments).test_trigger(arguments.name, read_file(arguments.file, TrainingEvent))
    if arguments.json:
        print_json(trial)
    elif trial.starts:
        sys.stdout.write(f"it would export {', '.join(trial.towers)}\n")
    else:
        reasons = trial.misfits or ((trial.failure.message,) if trial.failure else ())
        sys.stdout.write(f"it would start nothing: {'; '.join(reasons)}\n")
    return 0 if trial.starts else 1


def run_subscriptions(arguments: argparse.Namespace) -> int:
    """Print a page of subscriptions."""
    page = client_of(arguments).subscriptions(limit=arguments.limit, cursor=arguments.cursor)
    rows = ((each.id, each.url, ", ".join(each.events), utc(each.updated_at)) for each in page.subscriptions)
    return print_page(page, ("subscription", "url", "events", "changed"), rows, as_json=arguments.json)


def run_subscription(arguments: argparse.Namespace) -> int:
    """Print a subscription as JSON."""
    print_json(client_of(arguments).subscription(arguments.id))
    return 0


def run_subscribe(arguments: argparse.Namespace) -> int:
    """Print the new subscription as JSON, with its secret."""
    print_json(client_of(arguments).subscribe(read_file(arguments.file, SubscriptionRequest)))
    return 0


def run_replace_subscription(arguments: argparse.Namespace) -> int:
    """Print the changed subscription as JSON."""
    request = read_file(arguments.file, SubscriptionRequest)
    print_json(client_of(arguments).replace_subscription(arguments.id, request))
    return 0


def run_unsubscribe(arguments: argparse.Namespace) -> int:
    """Delete a subscription."""
    client_of(arguments).unsubscribe(arguments.id)
    return 0


def run_deliveries(arguments: argparse.Namespace) -> int:
    """Print a page of deliveries."""
    state = DeliveryState(arguments.state) if arguments.state else None
    page = client_of(arguments).deliveries(
        limit=arguments.limit, job_id=arguments.job, state=state, cursor=arguments.cursor
    )
    columns = ("delivery", "event", "job", "state", "tries", "last answer", "url")
    return print_page(page, columns, map(_delivery_row, page.deliveries), as_json=arguments.json)


def _delivery_row(sent: DeliveryView) -> Sequence[str]:
    last = str(sent.last_status or sent.last_error or "–")
    return sent.id, sent.event_type, sent.job, sent.state, str(sent.attempts), last, sent.url


def run_delivery(arguments: argparse.Namespace) -> int:
    """Print a delivery as JSON."""
    print_json(client_of(arguments).delivery(arguments.id))
    return 0


def run_replay(arguments: argparse.Namespace) -> int:
    """Send a delivery once more."""
    sent = client_of(arguments).replay(arguments.id)
    if arguments.json:
        print_json(sent)
    else:
        sys.stdout.write(f"{sent.id}\n")
    return 0
