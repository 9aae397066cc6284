#!/usr/bin/env bash
# Puts the servers that the tests run against on this machine.
# `scripts/install-servers.sh --help` tells more.
set -euo pipefail

DYNAMODB_VERSION=2.5.2

DEFAULT='redis etcd zookeeper consul postgres mariadb memcached nats dynamodb chromium prometheus'
EXTRA='mysql'

# internal/testbed looks here too.
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/locker
BIN=$CACHE/bin
MYSQL_TREE=$CACHE/mysql # root's cache may be for nobody else, and tests run no server as root
[ "$(id -u)" -ne 0 ] || MYSQL_TREE=/var/cache/locker/mysql
SCRIPTS=$(cd "$(dirname "$0")" && pwd)

usage() {
	cat <<-END
	usage: scripts/install-servers.sh [NAME...]

	Installs servers for the tests, on Debian: $DEFAULT
	(all of them when none is named), and $EXTRA (only when named).

	redis, zookeeper, postgres (with pgbouncer and libfaketime), mariadb and memcached come from Debian's
	packages, which needs root (or sudo). No service is left running.
	etcd, consul and nats are built with Go into $BIN; that takes about one,
	three, and one minutes. Their versions, and the checksums of all their modules, are in scripts/servers.
	dynamodb (Amazon's DynamoDB Local $DYNAMODB_VERSION) comes from Maven Central, 50 MB in $CACHE/dynamodb.
	mysql (Oracle's server, which Debian has only in sid) is unpacked into
	$CACHE/mysql (by root: /var/cache/locker/mysql), 400 MB.
	chromium and prometheus, Debian's too, are for the tests of
	the console and of the alert rules.

	What is there already is left alone, so a second run takes no time. Tests look
	for LOCKER_TEST_<NAME>_URL first: a server named there needs no installation.
	END
}

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'install-servers: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null; }
any() { [ -x "$1" ]; } # any GLOB...: whether its first match is a program

# timed WHAT COMMAND...: run it with its output in a log that is shown on failure.
timed() {
	local what=$1 log t0 rc=0; shift
	log=$(mktemp); t0=$SECONDS
	say "$what ..."
	# A plain command, not part of a condition: there bash would ignore the inner set -e.
	set +e; (set -e; "$@") >"$log" 2>&1 </dev/null; rc=$?; set -e
	if [ $rc != 0 ]; then
		tail -n 40 "$log" >&2
		die "$what failed; its log is $log"
	fi
	rm -f "$log"
	say "$what: $((SECONDS - t0)) s"
}

# --- Debian's packages ------------------------------------------------------

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif have sudo; then sudo "$@"
	else die "needs root (or sudo) to install packages: $*"
	fi
}

# Packages wanted so far; they are installed together, by one apt run.
PACKAGES=()

# Debian keeps some servers where only root's PATH looks.
PATH=$PATH:/usr/sbin:/sbin

install_packages() {
	[ ${#PACKAGES[@]} -gt 0 ] || return 0
	have apt-get || die "no apt-get here for ${PACKAGES[*]}: $ELSEWHERE"
	timed "installing ${PACKAGES[*]}" apt_install "${PACKAGES[@]}"
}

apt_install() {
	export DEBIAN_FRONTEND=noninteractive
	as_root apt-get update -q
	# While this file says 101, packages start no services.
	local policy=/usr/sbin/policy-rc.d
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' | as_root tee $policy
		as_root chmod 755 $policy
		trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
	fi
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

want_memcached() { have memcached || PACKAGES+=(memcached); }
want_redis()     { have redis-server || PACKAGES+=(redis-server); }
want_mariadb()   { # its install script needs a program of the client's
	have mariadbd && have my_print_defaults || PACKAGES+=(mariadb-server-core mariadb-client-core)
	want_faketime
}
want_postgres()  {
	any /usr/lib/postgresql/*/bin/postgres || PACKAGES+=(postgresql)
	have pgbouncer || [ -x /usr/sbin/pgbouncer ] || PACKAGES+=(pgbouncer)
	want_faketime
}
# The databases' own clocks are set, in tests of what that does to leases.
want_faketime()  {
	compgen -G '/usr/lib/*/faketime/libfaketime.so.1' >/dev/null || [[ " ${PACKAGES[*]-} " == *" libfaketime "* ]] || PACKAGES+=(libfaketime)
}
want_zookeeper() {
	[ -e /usr/share/java/zookeeper.jar ] || PACKAGES+=(libzookeeper-java)
	have java || PACKAGES+=(default-jre-headless)
}

want_chromium()  { have chromium || PACKAGES+=(chromium); }
want_prometheus() { have prometheus && have promtool || PACKAGES+=(prometheus); }

# --- Built with Go ----------------------------------------------------------

# A server is built in scripts/servers/NAME, a module of its own: its go.mod says
# which version, and go.sum what every module must be. Consul's leaves out the clouds' libraries.

# modules NAME: a text that changes when what NAME is built from does.
modules() { find "$SCRIPTS/servers/$1" -type f | sort | xargs cat | sha256sum; }

# built NAME: whether the program of these very modules is there.
built() { [ -x "$BIN/$1" ] && [ "$(cat "$BIN/$1.modules" 2>/dev/null)" = "$(modules "$1")" ]; }

# build NAME: the program of the module's only tool.
build() {
	local name=$1
	mkdir -p "$BIN"
	cd "$SCRIPTS/servers/$name"
	export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off GOOS= GOARCH=
	nice -n 19 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$BIN/$name.new" tool
	mv "$BIN/$name.new" "$BIN/$name"
	modules "$name" >"$BIN/$name.modules"
}

want_etcd()   { built etcd || BUILDS+=(etcd); }
want_consul() { built consul || BUILDS+=(consul); }
want_nats()   { built nats-server || BUILDS+=(nats-server); }

BUILDS=()
run_builds() {
	local name
	for name in nats-server etcd consul; do # the shortest first
		[[ " ${BUILDS[*]-} " == *" $name "* ]] || continue
		have go || die "needs Go to build $name"
		timed "building $name" build "$name"
	done
}

# --- DynamoDB Local, from Maven Central ---------------------------------------

want_dynamodb() { # it syncs each write to the disk without libeatmydata
	compgen -G '/usr/lib/*/libeatmydata.so.1' >/dev/null || PACKAGES+=(libeatmydata1)
	have java || [[ " ${PACKAGES[*]-} " == *" default-jre-headless "* ]] || PACKAGES+=(default-jre-headless)
	[ ! -e "$CACHE/dynamodb/DynamoDBLocal-$DYNAMODB_VERSION.jar" ] || return 0
	DYNAMODB=yes
	have mvn || PACKAGES+=(maven)
}

# fetch_dynamodb gets it with all that it needs, and compares that with scripts/dynamodb.sha256: those files, and no
# others, which Java would load too.
fetch_dynamodb() {
	local dir=$CACHE/dynamodb.new
	rm -rf "$dir" "$CACHE/src/dynamodb"; mkdir -p "$dir" "$CACHE/src/dynamodb"
	cat >"$CACHE/src/dynamodb/pom.xml" <<-END
	<project xmlns="http://maven.apache.org/POM/4.0.0">
	  <modelVersion>4.0.0</modelVersion>
	  <groupId>local</groupId><artifactId>dynamodb</artifactId><version>1</version>
	  <dependencies><dependency>
	    <groupId>com.amazonaws</groupId><artifactId>DynamoDBLocal</artifactId><version>$DYNAMODB_VERSION</version>
	  </dependency></dependencies>
	</project>
	END
	mvn -B -f "$CACHE/src/dynamodb/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$dir"
	cd "$dir"
	sha256sum --check --strict --quiet "$SCRIPTS/dynamodb.sha256"
	diff <(ls) <(awk '{ print $2 }' "$SCRIPTS/dynamodb.sha256" | sort)
	rm -rf "$CACHE/dynamodb"
	mv "$dir" "$CACHE/dynamodb"
}

# --- MySQL, from Debian sid, unpacked and not installed ----------------------

want_mysql() {
	[ -x "$MYSQL_TREE/usr/sbin/mysqld" ] && return
	MYSQL=yes
	have mmdebstrap || PACKAGES+=(mmdebstrap)
}

# mirror prints where apt gets this machine's own release from.
mirror() {
	local codename; codename=$(. /etc/os-release; echo "$VERSION_CODENAME")
	apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
		awk -v c="$codename" '$1 == c { print $2; exit }'
}

unpack_mysql() {
	local tar=$CACHE/mysql.tar proxy opts=(--variant=extract --quiet
		# A frozen mirror's index of a moving suite may be past its date.
		--aptopt='Acquire::Check-Valid-Until "false"'
		--include=mysql-server-core,mysql-client-core)
	proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
	[ -z "$proxy" ] || opts+=(--aptopt="Acquire::http::Proxy \"$proxy\"")
	mmdebstrap "${opts[@]}" sid "$tar" "$(mirror)"
	rm -rf "$MYSQL_TREE.new"; mkdir -p "$MYSQL_TREE.new"
	tar -C "$MYSQL_TREE.new" -xf "$tar" --exclude='./dev/*'
	chmod 755 "$MYSQL_TREE.new" # whatever the archive says of its root
	rm -rf "$tar" "$MYSQL_TREE"
	mv "$MYSQL_TREE.new" "$MYSQL_TREE"
}

# --- Main -------------------------------------------------------------------

ELSEWHERE='run the tests in Debian: docker run --rm -v "$PWD":/src -w /src golang:1.26 make test'
case ${1-} in
-h | --help) usage; exit ;;
esac
[ "$(uname)" = Linux ] || die "servers are installed on Linux only; $ELSEWHERE"
# shellcheck disable=SC2086 # a list of words
[ $# -gt 0 ] || set -- $DEFAULT
for name; do
	case " $DEFAULT $EXTRA " in
	*" $name "*) ;;
	*) die "no server is called $name; there are: $DEFAULT $EXTRA" ;;
	esac
done

MYSQL= DYNAMODB=
for name; do "want_$name"; done
[ ${#PACKAGES[@]} -gt 0 ] || [ ${#BUILDS[@]} -gt 0 ] || [ -n "$MYSQL$DYNAMODB" ] || exit 0

# Two runs at once would do the work twice: the second waits, and looks again.
if [ -z "${LOCKER_INSTALL_LOCKED-}" ]; then
	mkdir -p "$CACHE"
	LOCKER_INSTALL_LOCKED=1 exec flock "$CACHE/install.lock" "$0" "$@"
fi

install_packages
[ -z "$DYNAMODB" ] || timed "fetching DynamoDB Local $DYNAMODB_VERSION" fetch_dynamodb
run_builds
[ -z "$MYSQL" ] || timed "unpacking MySQL from Debian sid" unpack_mysql
