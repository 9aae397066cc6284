# Usage: watcher.sh FOLDER...
# Reads "+ PID" and "- PID" from its standard input. When that ends, kills what is left with all that it started,
# and deletes the folders.
trap '' INT TERM HUP QUIT PIPE
live=' '
while read -r op what; do
	case $op in
	+) live="$live$what " ;;
	-) case $live in *" $what "*) live="${live%%" $what "*} ${live#*" $what "}" ;; esac ;;
	esac
done

end_tree() { # parents first: a stopped parent has no new children
	kill -STOP "$1" || return 0
	for child in $(cat /proc/"$1"/task/*/children); do end_tree "$child"; done
	kill -KILL "$1"
}

exec 2>/dev/null
for what in $live; do
	end_tree "$what"
	kill -KILL -"$what"
done
# A killed PostgreSQL leaves a shared memory segment (see freeSharedMemory).
for folder; do
	for file in "$folder"/*/data/postmaster.pid; do
		[ -e "$file" ] && ipcrm -m "$(sed -n '7s/.* //p' "$file")"
	done
done
# What was killed may still be writing.
for _ in 1 2 3 4 5; do rm -rf "$@" && break; sleep 0.2; done
