#!/bin/sh
# Sends a CloudEvent to Slipway, signed as Standard Webhooks says:
#   SLIPWAY_WEBHOOK_SECRET=whsec_… examples/send_event.sh event.json [http://localhost:8080]
# While openssl runs, other users of this machine can see the key among its arguments.
set -eu
id="msg_$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')"
now=$(date +%s)
body=$(cat "$1")
key=$(printf %s "${SLIPWAY_WEBHOOK_SECRET#whsec_}" | base64 -d | od -An -v -tx1 | tr -d ' \n')
signature=$(printf %s "$id.$now.$body" | openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)
exec curl --silent --show-error --fail-with-body "${2:-http://localhost:8080}/webhooks/training" \
  -H 'content-type: application/cloudevents+json' \
  -H "webhook-id: $id" -H "webhook-timestamp: $now" -H "webhook-signature: v1,$signature" --data-raw "$body"
