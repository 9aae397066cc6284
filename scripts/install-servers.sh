#!/usr/bin/env bash
# Puts the servers that the tests run against on this machine.
# `scripts/install-servers.sh --help` tells more.
set -euo pipefail

ETCD_VERSION=v3.6.5
CONSUL_VERSION=v1.22.5
NATS_VERSION=v2.14.4 # the last line of versions that Go 1.25 builds
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
	etcd ($ETCD_VERSION), consul ($CONSUL_VERSION) and nats ($NATS_VERSION) are built with Go into
	$BIN; that takes about one, six, and one minutes.
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
	have apt-get || die "no apt-get here: install ${PACKAGES[*]} by other means"
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

# built NAME VERSION: whether that very version is there.
built() { [ -x "$BIN/$1" ] && [ "$(cat "$BIN/$1.version" 2>/dev/null)" = "$2" ]; }

# build NAME PACKAGE VERSION [EDIT...]: the program of a Go module, in a module
# of its own, so that its requirements meet nobody else's. EDIT are arguments
# for `go mod edit`.
build() {
	local name=$1 package=$2 version=$3; shift 3
	rm -rf "$CACHE/src/$name"; mkdir -p "$CACHE/src/$name" "$BIN"
	cd "$CACHE/src/$name"
	export CGO_ENABLED=0 GOFLAGS=-mod=mod GOTOOLCHAIN=local GOWORK=off
	export GOOS= GOARCH=
	go mod init "local/$name"
	[ $# = 0 ] || go mod edit "$@"
	go get "$package@$version"
	go build -trimpath -ldflags '-s -w' -o "$BIN/$name.new" "$package"
	mv "$BIN/$name.new" "$BIN/$name"
	echo "$version" >"$BIN/$name.version"
}

build_etcd() { build etcd go.etcd.io/etcd/server/v3 $ETCD_VERSION; }

build_consul() {
	# The checksum database does not know Consul's modules of this version.
	export GONOSUMDB='github.com/hashicorp/consul,github.com/hashicorp/consul/*'
	# Consul's own go.mod excludes these, and that does not reach who requires it.
	build consul github.com/hashicorp/consul $CONSUL_VERSION \
		-exclude=github.com/hashicorp/go-msgpack@v1.1.5 \
		-exclude=github.com/hashicorp/go-msgpack@v1.1.6
}

build_nats() { build nats-server github.com/nats-io/nats-server/v2 $NATS_VERSION; }

want_etcd()   { built etcd $ETCD_VERSION || BUILDS+=(etcd); }
want_consul() { built consul $CONSUL_VERSION || BUILDS+=(consul); }
want_nats()   { built nats-server $NATS_VERSION || BUILDS+=(nats); }

BUILDS=()
run_builds() {
	local name
	for name in "${BUILDS[@]}"; do
		have go || die "needs Go to build $name"
		case $name in
		etcd)   timed "building etcd $ETCD_VERSION (about a minute)" build_etcd ;;
		consul) timed "building consul $CONSUL_VERSION (some minutes)" build_consul ;;
		nats)   timed "building nats-server $NATS_VERSION (about a minute)" build_nats ;;
		esac
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

case ${1-} in -h | --help) usage; exit ;; esac
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
run_builds
[ -z "$DYNAMODB" ] || timed "fetching DynamoDB Local $DYNAMODB_VERSION" fetch_dynamodb
[ -z "$MYSQL" ] || timed "unpacking MySQL from Debian sid" unpack_mysql
