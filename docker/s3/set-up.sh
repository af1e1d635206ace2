#!/bin/sh
# Create the bucket, a user for the API and one for workers, and their rights. Run by compose.yaml at every start.
set -eu

# add_user <access key> <secret key> <policy>; a user that exists gets the secret key anew.
add_user() {
  mc admin policy create store "$3" "${0%/*}/$3.json"
  mc admin user add store "$1" "$2"
  # Attaching a policy twice is an error, and the image has no grep.
  case "$(mc admin user info store "$1")" in
    *"$3"*) ;;
    *) mc admin policy attach store "$3" --user "$1" ;;
  esac
}

mc mb --ignore-existing store/slipway
add_user slipway-api "$API_SECRET" reading
add_user slipway-worker "$WORKER_SECRET" exporting
