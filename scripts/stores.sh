#!/usr/bin/env bash
# Starts and stops the stores of docker-compose.yml.
# `scripts/stores.sh --help` tells more.
set -euo pipefail
cd "$(dirname "$0")/.."

STORES=$(sed -n 's/^ *profiles: \[\(.*\)\]$/\1/p' docker-compose.yml | sort -u | tr '\n' ' ')
LIMIT=180 # seconds for a store to become healthy

usage() {
	cat <<-END
	usage: scripts/stores.sh up STORE...
	       scripts/stores.sh down

	Starts stores of docker-compose.yml, waits until they are healthy, and prints the
	LOCKER_URL of each; or stops all of them. Stores: $STORES
	A port that is taken is changed by a variable: LOCKER_REDIS_PORT=16379 (see the file).
	END
}

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'stores: %s\n' "$*" >&2; exit 1; }

# compose runs either form of Docker Compose.
compose() {
	if docker compose version >/dev/null 2>&1; then docker compose "$@"
	elif command -v docker-compose >/dev/null; then docker-compose "$@"
	else die 'needs Docker Compose: there is neither "docker compose" nor "docker-compose"'
	fi
}

need_engine() {
	command -v docker >/dev/null || die 'needs Docker: there is no docker command'
	docker version >/dev/null 2>&1 || die 'docker finds no engine: start it first'
}

ask() { docker inspect --format "$1" "$2"; }

# await ID waits for a container's health check to pass.
await() {
	local id=$1 health end=$((SECONDS + LIMIT))
	while [ $SECONDS -lt $end ]; do
		health=$(ask '{{.State.Status}} {{.State.Health.Status}}' "$id")
		case $health in
		'running healthy') return ;;
		'running starting') sleep 0.5 ;;
		*) break ;; # it ended, or fails its check
		esac
	done
	docker logs --tail 20 "$id" >&2
	die "$(ask '{{.Name}}' "$id" | tr -d /) is $health after at most $LIMIT s; its log ends above"
}

up() {
	local store ids id url
	for store; do
		case " $STORES" in *" $store "*) ;; *) die "no store is called '$store'; there are: $STORES" ;; esac
	done
	need_engine
	for store; do
		say "$store ..."
		# Services of a profile that is named twice are started once.
		compose --profile "$store" up --detach >&2
		ids=$(COMPOSE_PROFILES=$store compose ps --quiet $(services "$store"))
		for id in $ids; do await "$id"; done
		for id in $ids; do
			url=$(ask '{{index .Config.Labels "locker.url"}}' "$id")
			[ -z "$url" ] || printf "export LOCKER_URL='%s'\n" "$url"
		done
	done
}

# services prints those of one store: it is their name, or the start of it.
services() {
	COMPOSE_PROFILES=$1 compose config --services | grep -E "^$1(-[0-9]+)?$"
}

down() {
	need_engine
	COMPOSE_PROFILES=$(echo $STORES | tr ' ' ,) compose down --volumes --remove-orphans >&2
}

case ${1-} in
-h | --help) usage ;;
up)
	shift
	[ $# -gt 0 ] || { usage >&2; exit 2; }
	up "$@" ;;
down) down ;;
*) usage >&2; exit 2 ;;
esac
