#!/usr/bin/env bash
# Prepares a release; RELEASING.md tells when to use it.
#
#   scripts/release.sh notes vX.Y.Z     prints what CHANGELOG.md says of a version
#   scripts/release.sh prepare vX.Y.Z   has the other modules require the version,
#                                       commits, and tags all of them; pushes nothing
#   scripts/release.sh check vX.Y.Z     prepares it in a clone, and installs the command line from there
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'release: %s\n' "$*" >&2; exit 1; }

MODULE=$(awk '$1 == "module" { print $2; exit }' go.mod)

# notes VERSION prints the lines below "## X.Y.Z", up to the next such heading.
notes() {
	local text
	text=$(awk -v want="${1#v}" '
		/^## / { found = ($2 == want || $2 == "[" want "]"); next }
		found' CHANGELOG.md)
	[[ $text == *[![:space:]]* ]] || die "CHANGELOG.md says nothing under '## ${1#v}'"
	printf '%s\n' "$text"
}

# nested prints the modules beside the main one that people import. Those that
# are under internal/ or only run are not released.
nested() { git ls-files 'adapter/*/go.mod' 'observe/*/go.mod' | xargs -r -n 1 dirname; }

# requiring prints the modules that require the main one: all of them name one version, or a module
# that requires two of them would have to be tidied.
requiring() { git grep -l "^[[:space:]]$MODULE v" -- '*go.mod' | xargs -n 1 dirname; }

prepare() {
	local version=$1 m
	[[ $version =~ ^v(0|1)\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || die "'$version' is no version of v0 or v1, such as v0.1.0"
	[ -z "$(git status --porcelain)" ] || die 'there are changes that are not committed'
	git rev-parse -q --verify "refs/tags/$version" >/dev/null && die "the tag $version is there already"
	notes "$version" >/dev/null
	for m in $(requiring); do
		# Their go.mod has a replace, which is for work in this repository: others'
		# builds ignore it, and need a version that there is.
		(cd "$m" && go mod edit -require="$MODULE@$version")
		git add "$m/go.mod"
	done
	git diff --cached --quiet || git commit -q -m "Release $version"
	for m in $(nested); do git tag -a "$m/$version" -m "$m $version"; done
	git tag -a "$version" -m "$version"
	printf 'Look at it, then: git push --atomic origin HEAD'
	for m in $(nested); do printf ' %s' "$m/$version"; done
	printf ' %s\n' "$version"
}

# check finds what would only be seen once a version is public, where it cannot be changed any more.
check() {
	local version=$1 modules m
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	git clone -q . "$dir/clone"
	cd "$dir/clone"
	export GIT_{AUTHOR,COMMITTER}_NAME=check GIT_{AUTHOR,COMMITTER}_EMAIL=check@localhost
	printf '\n## %s\n\n- Nothing.\n' "${version#v}" >>CHANGELOG.md
	git commit -qam "Release notes of $version"
	prepare "$version" >/dev/null
	for m in $(requiring); do (cd "$m" && go list ./... >/dev/null) || die "$m does not load"; done
	# As a user does, but that GitHub is the clone, and what the cache has comes from there.
	cd "$dir"
	modules=$(go env GOMODCACHE)/cache/download
	GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$dir/clone.insteadOf" GIT_CONFIG_VALUE_0="https://$MODULE" \
		GOMODCACHE=$dir/modules GOPROXY="file://$modules,$(go env GOPROXY)" GOPRIVATE="$MODULE,$MODULE/*" GOSUMDB=off \
		GOBIN=$dir/bin go install -modcacherw -trimpath "$MODULE/cmd/locker@$version"
	"$dir/bin/locker" --version
}

[ $# = 2 ] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
case $1 in
notes) notes "$2" ;;
prepare) prepare "$2" ;;
check) check "$2" ;;
*) die "there is no '$1': notes, prepare or check" ;;
esac
