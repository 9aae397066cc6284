#!/usr/bin/env bash
# Compares the exported API with that of the last release, and prints what has changed.
# From 1.0 on a change that breaks users fails; before, it has to stand first in CHANGELOG.md.
set -euo pipefail
cd "$(dirname "$0")/.."

apidiff=golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4
last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || {
	echo 'there is no release yet'
	exit 0
}
old=$(mktemp -d)
trap 'git worktree remove --force "$old/tree"; rm -rf "$old"' EXIT
git worktree add --quiet --detach "$old/tree" "$last"
(cd "$old/tree" && go run "$apidiff" -m -w "$old/api" . 2>/dev/null)
changes=$(go run "$apidiff" -m "$old/api" . 2>/dev/null)
echo "since $last:"
echo "${changes:-nothing has changed}"
if [[ $changes == *'Incompatible changes:'* && $last != v0.* ]]; then
	echo "the next release has to be a new major version" >&2
	exit 1
fi
