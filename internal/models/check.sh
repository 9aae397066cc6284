#!/bin/sh
# Runs SPIN on the models: all states of each, and the mutants of each, in which an assertion has to fail.
#
#	check.sh [model...]
#
# A run has to be complete: neither truncated, nor without space in its depth, nor with hashes in place of states.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# explore MODEL SWITCHES FLAG builds and runs a verifier. Its output is in $work/out.
explore() {
	rm -rf "$work/run"
	mkdir "$work/run"
	cp "$1.pml" "$work/run/model.pml"
	began=$(date +%s)
	(
		cd "$work/run"
		# shellcheck disable=SC2086 # words
		spin -a $2 model.pml
		gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM=12000 $3 -o pan pan.c
		./pan -m2000000 -w23
	) >"$work/out" 2>&1 || true
	seconds=$(($(date +%s) - began))
	states=$(awk '/states, stored/ { print $1 }' "$work/out")
	errors=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' "$work/out")
}

# report VERDICT prints a line, and the output of a run that is not as it should be.
report() {
	printf '%-9s %-54s %9s states %5s s  %s\n' "$model" "${switches:-as it is}" "${states:--}" "$seconds" "$1"
	case $1 in
	holds | refuted*) ;;
	*) failed=1 && tail -n 40 "$work/out" ;;
	esac
}

# holds MODEL SWITCHES: no state is in error, and all were seen.
holds() {
	model=$1 switches=$2
	explore "$1" "$2" ''
	if [ "$errors" != 0 ]; then
		report "AN ERROR"
	elif ! grep -q '^Full statespace search' "$work/out" ||
		grep -Eqi 'search depth too small|search not completed|interrupted|truncated|out of memory|memory limit|hash-?compact|bit ?state' "$work/out"; then
		report INCOMPLETE
	else
		report holds
	fi
}

# refuted MODEL SWITCHES: the mutant fails an assertion. Breadth first finds that soonest.
refuted() {
	model=$1 switches=$2
	explore "$1" "$2" -DBFS
	broken=$(sed -n 's/^pan:[0-9]*: assertion violated \(.*\) (at depth.*/\1/p' "$work/out" | head -n 1)
	if [ -n "$broken" ]; then
		report "refuted: $broken"
	else
		report "SURVIVES"
	fi
}

for name in ${*:-redlock casqueue}; do
	case $name in
	redlock)
		holds redlock ''
		refuted redlock -DNO_FENCE
		refuted redlock -DKEY_ONLY
		refuted redlock -DSAME_NUMBER
		refuted redlock '-DLATES=1 -DNO_TOMBSTONE'
		holds redlock '-DRESTARTS=1 -DROUNDS=2'
		refuted redlock '-DRESTARTS=1 -DROUNDS=2 -DLOST_FENCE'
		refuted redlock '-DRESTARTS=1 -DROUNDS=2 -DANY_RESTART'
		;;
	casqueue)
		holds casqueue -DTICKETS=2
		refuted casqueue '-DTICKETS=2 -DNO_MARGIN'
		refuted casqueue '-DTICKETS=2 -DLATE_HEARTBEAT'
		refuted casqueue '-DTICKETS=2 -DUNTIL_NOW'
		refuted casqueue '-DTICKETS=2 -DLATES=1 -DFORGET_LATE'
		;;
	*) echo "no model $name: redlock, casqueue" >&2 && exit 2 ;;
	esac
done
exit $failed
