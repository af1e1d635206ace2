#!/bin/sh
# Write .env and api-keys.json beside compose.yaml, with random secrets, and print the first API key: docker/first-run.sh
# Files that exist are left as they are, and end it. The key itself is kept nowhere: api-keys.json holds its digest.
set -eu
cd "$(dirname "$0")/.."

command -v openssl >/dev/null || { echo 'first-run.sh needs openssl' >&2; exit 1; }

for file in .env api-keys.json; do
  if [ -e "$file" ]; then
    echo "$file exists: edit it (docs/quickstart.md), or remove it to begin anew" >&2
    exit 1
  fi
done

draw() { openssl rand -hex 20; }

(
  umask 077
  while IFS= read -r line; do
    case "$line" in
      REDIS_PASSWORD= | S3_*_SECRET=) printf '%s%s\n' "$line" "$(draw)" ;;
      *) printf '%s\n' "$line" ;;
    esac
  done <docker/compose.env.example >.env
)

key=$(draw)
digest=$(printf %s "$key" | sha256sum | cut -d' ' -f1)
printf '{"keys": [{"name": "first", "sha256": "%s", "scopes": ["admin"]}]}\n' "$digest" >api-keys.json
chmod 644 api-keys.json # the container reads it as a user of its own

echo "API key: $key"
echo 'Callers send it as "Authorization: Bearer <key>", slipway as SLIPWAY_API_KEY; the pages ask for it.'
