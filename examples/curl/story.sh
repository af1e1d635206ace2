#!/bin/sh
# The lives of three exports, by curl:
#   SLIPWAY_WEBHOOK_SECRET=whsec_… examples/curl/story.sh export.json long.json failing.json [http://127.0.0.1:8080]
# The files are bodies of POST /exports: of one that succeeds, one that runs long enough to be stopped, and one of
# which a tower fails. Where the service asks for a key, SLIPWAY_API_KEY holds one that may do everything.
# It ends at the first answer that is not the expected one.
set -eu

export=$1 long=$2 failing=$3 api=${4:-http://127.0.0.1:8080}
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

call() { # curl's arguments
  curl --silent --show-error --fail-with-body ${SLIPWAY_API_KEY:+-H "Authorization: Bearer $SLIPWAY_API_KEY"} "$@"
}
send() { # method path file
  call -X "$1" "$api$2" -H 'content-type: application/json' --data-binary "@$3"
}
pick() { # from the JSON on standard input, in Python: pick 'told["id"]'
  python3 -c "import json, sys; told = json.load(sys.stdin); print($1)"
}
follow() { # job: every change of it, until it has ended; prints how
  call --no-buffer "$api/exports/$1/events" | sed -n '/^event: end/,$ s/^data: //p' | tr -d '"'
}
expect() { # what it is, what it should be, what for
  if [ "$1" != "$2" ]; then echo "$3: $1, and not $2" >&2; exit 1; fi
  echo "$3: $1"
}

# A training platform says that a run has ended; a trigger makes an export of it.
printf '{"when": {"model": "story*"}, "template": %s}' "$(cat "$export")" > "$work/trigger.json"
send PUT /triggers/story "$work/trigger.json" > "$work/trigger"
printf '{"specversion": "1.0", "id": "%s", "source": "/trainer/curl", "type": "com.example.training.completed",
 "data": {"model": "story", "status": "succeeded"}}' "$(date +%s%N)" > "$work/event.json"
"$here/../send_event.sh" "$work/event.json" "$api" > "$work/first"
"$here/../send_event.sh" "$work/event.json" "$api" > "$work/again"
job=$(pick 'told["starts"][0]["job"]' < "$work/first")
expect "$(pick 'told["duplicate"]' < "$work/again")" True 'the event again is a duplicate'
expect "$(pick 'told["starts"][0]["job"]' < "$work/again")" "$job" 'its one job'

# The job, to its end; then what it published.
expect "$(follow "$job")" succeeded 'the export has'
call "$api/exports/$job/log?tower=user" > "$work/log"
expect "$(call "$api/exports/$job/manifest" | pick 'told["job_id"]')" "$job" 'the manifest is of'
call --location -o "$work/user.pt2" "$api/exports/$job/towers/user/artifact"

# The same request again: the finished job is the answer.
status=$(call -o "$work/known" -w '%{http_code}' "$api/exports" -H 'content-type: application/json' --data-binary "@$export")
expect "$status" 200 'the same request is answered with'
expect "$(pick 'told["id"]' < "$work/known")" "$job" 'by the job'

# One that runs is stopped, and its worker is free.
job=$(send POST /exports "$long" | pick 'told["id"]')
until [ "$(call "$api/exports/$job" | pick 'told["state"]')" = running ]; do sleep 0.1; done
call -X POST "$api/exports/$job/cancel" > "$work/stopping"
expect "$(follow "$job")" cancelled 'the long export is'

# One of which a tower fails; only that tower is exported again. An Idempotency-Key makes a POST safe to repeat.
job=$(send POST /exports "$failing" | pick 'told["id"]')
expect "$(follow "$job")" partially_succeeded 'the failing export has'
bundle=$(call "$api/exports/$job" | pick '[each["failure"]["bundle_url"] for each in told["towers"] if each["failure"]][0]')
call -o "$work/failure.zip" "$api$bundle"
key=$(date +%s%N)
retry=$(call -X POST "$api/exports/$job/retry" -H "Idempotency-Key: $key" | pick 'told["id"]')
expect "$(call -X POST "$api/exports/$job/retry" -H "Idempotency-Key: $key" | pick 'told["id"]')" "$retry" 'the retry is'
follow "$retry" > "$work/retried"
echo "the retry ran: $(call "$api/exports/$retry" | pick '" ".join(tower["name"] for tower in told["towers"])')"

# What is to be forgotten is deleted; artifacts stay.
call -X DELETE "$api/exports/$job"
call -X DELETE "$api/triggers/story"
