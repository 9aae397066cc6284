/*
 * Redlock's bakery, as driver/redlock has it over the scripts of driver/internal/redisqueue: the queue of one name on
 * NODES independent nodes, exclusive tickets whose clients choose the numbers, the grant rule, yields, releases with
 * tombstones, and nodes that restart without their data and get leases and tickets again.
 *
 * Model                    Code (driver/redlock; lua: driver/internal/redisqueue/lua)
 *   key, keyRound, no, queued,  redlock_queue.lua: the main key, X and T, D; redlock_acquire.lua: fences
 *   tomb, fence
 *   acquire                    redlock_acquire.lua, from "call('ZSCORE', D, id)" on; refused, taken, drop, hold
 *   yield, release             redlock_yield.lua, redlock_release.lua
 *   Client: ask, judge         acquire.go: enqueue; proposal.go: propose, ask, judge, next; number.go: guess, above
 *   Client: an attempt         wait.go: ready, check, attempt, yield; receivedState (IsHeld)
 *   Client: requeue            wait.go: receivedState (IsGone), requeue, check (absent)
 *   Client: repair             lease.go: repair, mend; proposal.go: mend
 *   Client: release            lease.go: Release, dispose; wire.go: releaseCall; redisqueue/unanswered.go
 *   to[]                       node.go: redisqueue.NewOrderedPipe: a node runs a client's requests in their order
 *   late                       a request on a broken connection: done after later ones, or never, and not answered
 *   Nodes: restart             a node comes back without its data: doc.go, "What it does not promise"
 *
 * Atomic on a node, and so here: a script. A round to all nodes is a request in each queue; the client decides on any
 * answers that it has, as if the others had not come in time.
 *
 * Abstracted: time. A lease ends only when nobody relies on it: its client has released it, or died. A guess is the newest
 * number that anybody has, or the next. A node without a fence takes for one its clock, or that of its
 * first request after the restart; both are at least the newest number from before. Notifications and heartbeats are a look at the nodes. Left out: shared tickets and limits,
 * TryAcquire, Break, other libraries, programs of another version.
 *
 * A node restarts without its data only while each ticket that holds there, or whose client has been told so, is on a
 * majority of the others: doc.go names the opposite as a limit. ANY_RESTART lets it restart at any time.
 *
 * Bounds: TICKETS clients, one ticket each; NODES nodes; RESTARTS; LATES requests on a broken connection; ROUNDS
 * proposals of a ticket, after which its client leaves.
 */
#ifndef TICKETS
#define TICKETS 2
#endif
#define NODES 3
#define QUORUM 2
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef LATES
#define LATES 0
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#define NOBODY 7

/* Requests. The first four are proposals; their order is that of redlock_acquire.lua's origins. */
#define guessed 1
#define above 2
#define kept 3
#define mended 4
#define justWait 5
#define yielding 6
#define releasing 7
#define entombing 8	/* a release with a tombstone */

/* Answers, and states of a client. */
#define silent 0
#define holds 1
#define inQueue 2
#define refused 3
#define gone 4

#define asking 1
#define waiting 2
#define held 3
#define over 4

typedef bytes { byte a[TICKETS] };
typedef bits { bool b[TICKETS] };
typedef answers { byte from[NODES] };

/* A node. */
byte key[NODES];	/* the ticket that holds, or NOBODY */
bytes no[NODES];	/* the number of a ticket that holds or waits; 0: not known */
bytes round[NODES];	/* of the proposal that made it so */
bits tomb[NODES];
byte fence[NODES];	/* 0: none */
byte clock[NODES];	/* its clock is at least that */
bits ended[NODES];	/* ghost: a release was run */

/* The network. */
chan to[NODES * TICKETS] = [2] of { byte, byte, byte };	/* request, number, round */
byte lateWhat, lateNo, lateRound, lateOf, lateTo;	/* lateWhat 0: none */
byte lates, restarts, deaths;

/* A client. */
byte state[TICKETS];
bool wasQueued[TICKETS];	/* on a majority, and not granted yet */
byte number[TICKETS];
byte rounds[TICKETS];
answers answer[TICKETS];
byte floor[TICKETS];	/* the largest that was answered */
bits unanswered[NODES];	/* a request of the ticket to the node was not answered */
bits before[TICKETS];	/* before[t].b[u]: u was queued when t came */

byte newest;	/* the newest number that anybody has */
byte token;	/* of the newest grant */

#define pipe(t, n) to[(t) * NODES + n]
#define room(t) (nfull(pipe(t, 0)) && nfull(pipe(t, 1)) && nfull(pipe(t, 2)))

inline most(x, y) { x = (x < (y) -> (y) : x) }

/* acquire runs redlock_acquire.lua: ans is the answer, and best the floor. */
inline acquire(t, n, what, num, rnd) {
	u = 0; small = false; ans = silent; best = (fence[n] -> fence[n] : clock[n]);
	if
	:: tomb[n].b[t] -> ans = gone
	:: else ->
		assert(!ended[n].b[t]);	/* nothing comes after the release */
		if
		:: no[n].a[t] && what != justWait && round[n].a[t] > rnd -> ans = refused	/* overtaken: nobody waits for the answer */
		:: no[n].a[t] && no[n].a[t] != num && what == guessed -> ans = refused
		:: else ->
			if
			:: no[n].a[t] && no[n].a[t] != num -> no[n].a[t] = 0; if :: key[n] == t -> key[n] = NOBODY :: else fi
			:: else
			fi;
			/* the queue without t */
			ahead = false; same = false; top = 0;
			for (u : 0 .. TICKETS-1) {
				if
				:: u != t && no[n].a[u] && key[n] != u ->
					most(top, no[n].a[u]);
					ahead = ahead || no[n].a[u] < num;
					same = same || no[n].a[u] == num
				:: else
				fi
			}
			most(best, top);
			if
			:: no[n].a[t] -> skip
			:: else ->
				if
				:: what == guessed -> small = num <= best
				:: what == above ->
#ifdef LOST_FENCE	/* mutant: a node that has lost its fences takes any number that is not a guess */
					small = fence[n] && num <= fence[n]
#else
					small = num <= (fence[n] -> fence[n] : clock[n])
#endif
				:: what == kept || what == justWait -> small = fence[n] && num < fence[n]
				:: else
				fi;
#ifndef SAME_NUMBER	/* mutant: a node takes a number twice */
				small = small || same
#endif
			fi;
			if
			:: small -> ans = refused
#ifdef KEY_ONLY	/* mutant: a ticket may hold when the key is free, whoever waits ahead */
			:: !small && (key[n] == t || key[n] == NOBODY) && what != justWait ->
#else
			:: !small && (key[n] == t || key[n] == NOBODY && !ahead) && what != justWait ->
#endif
				key[n] = t; no[n].a[t] = num; round[n].a[t] = rnd; 
#ifndef NO_FENCE	/* mutant: a node forgets what held there */
				most(fence[n], num);
#endif
				ans = holds
			:: !small && key[n] == t && what == justWait -> ans = holds
			:: else ->
				if
				:: what == mended -> no[n].a[t] = 0; round[n].a[t] = 0; ans = refused
				:: else -> no[n].a[t] = num; round[n].a[t] = rnd; ans = inQueue
				fi
			fi
		fi
	fi;
	top = 0; same = false; ahead = false; small = false; u = 0
}

/* serve runs any request. */
inline serve(t, n, what, num, rnd) {
	if
	:: what <= justWait -> acquire(t, n, what, num, rnd)
	:: what == yielding ->
		if
		:: key[n] == t && round[n].a[t] <= rnd -> key[n] = NOBODY
		:: else
		fi
	:: else ->
		if :: key[n] == t -> key[n] = NOBODY :: else fi;
		no[n].a[t] = 0; round[n].a[t] = 0; ended[n].b[t] = true;
#ifndef NO_TOMBSTONE	/* mutant: a release does not care for requests that may still arrive */
		if :: what == entombing -> tomb[n].b[t] = true :: else fi
#endif
	fi
}

proctype Pipe(byte t, n) {
	byte what, num, rnd, ans, best, top, u;
	bool small, ahead, same;
end:	do
	:: d_step { pipe(t, n)?what,num,rnd ->
		serve(t, n, what, num, rnd);
		if
		:: what <= kept && rnd == rounds[t] && state[t] == asking -> answer[t].from[n] = ans; if :: ans == refused -> most(floor[t], best) :: else fi
		:: else
		fi;
		what = 0; num = 0; rnd = 0; ans = 0; best = 0
	}
#if LATES
	/* The connection breaks: the request may come late, or never. A release is sent again. */
	:: d_step { lates < LATES && lateWhat == 0 && len(pipe(t, n)) > 0 && !(pipe(t, n)??[releasing, 0, 0]) && !(pipe(t, n)??[entombing, 0, 0]) ->
		pipe(t, n)?lateWhat,lateNo,lateRound;
		lates++; lateOf = t; lateTo = n;
		if :: lateWhat <= justWait -> unanswered[n].b[t] = true :: else fi
	}
	:: d_step { lateWhat && lateOf == t && lateTo == n ->
		serve(t, n, lateWhat, lateNo, lateRound);
		lateWhat = 0; lateNo = 0; lateRound = 0; lateOf = 0; lateTo = 0; ans = 0; best = 0
	}
	:: d_step { lateWhat && lateOf == t && lateTo == n -> lateWhat = 0; lateNo = 0; lateRound = 0; lateOf = 0; lateTo = 0 }
#endif
	od
}

#define has(t, n, x) (answer[t].from[n] == x -> 1 : 0)
#define count(t, x) (has(t, 0, x) + has(t, 1, x) + has(t, 2, x))
#define onKey(t, n) (key[n] == t -> 1 : 0)
#define known(t, n) (no[n].a[t] -> 1 : 0)
/* A ticket may hold on a node when the key is free and nobody waits ahead. */
#define behind(t, u, n) (u != t && no[n].a[u] && no[n].a[u] < no[n].a[t])
#if TICKETS == 2
#define blocked(t, n) behind(t, 0, n) || behind(t, 1, n)
#else
#define blocked(t, n) behind(t, 0, n) || behind(t, 1, n) || behind(t, 2, n)
#endif
#define may(t, n) (no[n].a[t] && (key[n] == NOBODY || key[n] == t) && !(blocked(t, n)) -> 1 : 0)

inline ask(t, what) {
	rounds[t]++;
	floor[t] = 0;
	for (n : 0 .. NODES-1) { answer[t].from[n] = silent; pipe(t, n)!what,number[t],rounds[t] }
	n = 0; state[t] = asking
}

inline grant(t) {
	for (n : 0 .. TICKETS-1) {
		assert(n == t || state[n] != held);	/* no two holders */
#if RESTARTS == 0
		assert(!(before[t].b[n] && wasQueued[n]))	/* the order of arrival */
#endif
	}
	n = 0;
	assert(number[t] > token);	/* tokens grow */
	token = number[t];
	state[t] = held; wasQueued[t] = false;
	forgetAnswers(t)
}

inline forgetAnswers(t) {
	floor[t] = 0;
	for (n : 0 .. NODES-1) { answer[t].from[n] = silent }
	n = 0
}

proctype Client(byte t) {
	byte n;
	d_step {
		t == 0 || number[t-1] > 0;	/* clients are alike: they come in this order */
		for (n : 0 .. TICKETS-1) { before[t].b[n] = wasQueued[n] }
		n = 0
	}
	atomic {
		if
		:: newest > 0 -> number[t] = newest
		:: newest++; number[t] = newest
		fi;
		ask(t, guessed)
	}
	do
	:: d_step { state[t] == asking && count(t, gone) == 0 && count(t, holds) >= QUORUM -> grant(t) }
	:: d_step { state[t] == asking && count(t, holds) < QUORUM && count(t, holds) + count(t, inQueue) >= QUORUM && room(t) ->
		state[t] = waiting; wasQueued[t] = true;
		for (n : 0 .. NODES-1) {
			if
			:: answer[t].from[n] == holds || answer[t].from[n] == silent -> pipe(t, n)!yielding,0,rounds[t]
			:: else
			fi
		}
		forgetAnswers(t)
	}
	/* Too small: a larger number, unless the ticket has one already. */
	:: d_step { state[t] == asking && !wasQueued[t] && count(t, silent) < QUORUM && count(t, holds) + count(t, inQueue) < QUORUM &&
		count(t, refused) > 0 && rounds[t] < ROUNDS && room(t) ->
		most(floor[t], number[t]);
		number[t] = floor[t] + 1; most(newest, number[t]);
		ask(t, above)
	}
	:: d_step { state[t] == asking && wasQueued[t] && count(t, silent) < QUORUM && count(t, holds) + count(t, inQueue) < QUORUM && room(t) ->
		state[t] = waiting;
		for (n : 0 .. NODES-1) {
			if
			:: answer[t].from[n] == holds || answer[t].from[n] == silent -> pipe(t, n)!yielding,0,rounds[t]
			:: else
			fi
		}
		forgetAnswers(t)
	}
	/* An attempt, when a majority has notified that it may hold. */
	:: d_step { state[t] == waiting && rounds[t] < ROUNDS && room(t) && may(t, 0) + may(t, 1) + may(t, 2) >= QUORUM -> ask(t, kept) }
	/* Heartbeats show that a node has lost it, or that it holds there. */
	:: atomic { state[t] == waiting && (RESTARTS || LATES) ->
		if
		:: n = 0
		:: n = 1
		:: n = 2
		fi;
		if
		:: len(pipe(t, n)) == 0 && no[n].a[t] == 0 && known(t, 0) + known(t, 1) + known(t, 2) >= QUORUM -> pipe(t, n)!justWait,number[t],0
		:: len(pipe(t, n)) == 0 && key[n] == t -> pipe(t, n)!yielding,0,rounds[t]
		:: else
		fi;
		n = 0
	}
	/* A repair, while the lease is on a majority. */
	:: atomic { state[t] == held ->
		if
		:: n = 0
		:: n = 1
		:: n = 2
		fi;
		if
		:: len(pipe(t, n)) == 0 && key[n] != t -> pipe(t, n)!mended,number[t],rounds[t]
		:: else
		fi;
		n = 0
	}
	/* Release; a wait that is cancelled, has failed or was lost; and death. */
	:: d_step { (state[t] == held || state[t] == waiting && (LATES || RESTARTS || rounds[t] == ROUNDS) || state[t] == asking && (LATES || RESTARTS || rounds[t] == ROUNDS)) && room(t) ->
		state[t] = over; wasQueued[t] = false;
		for (n : 0 .. NODES-1) {
			if
			:: unanswered[n].b[t] -> pipe(t, n)!entombing,0,0
			:: else -> pipe(t, n)!releasing,0,0
			fi
		}
		forgetAnswers(t)
	} -> break
#if DEATHS
	:: d_step { deaths < DEATHS -> deaths++; state[t] = over; wasQueued[t] = false; forgetAnswers(t) } -> break
#endif
	od
}

#define relies(t, n) (state[t] == held || state[t] == asking && answer[t].from[n] == holds)
#define elsewhere(t, n) (onKey(t, 0) + onKey(t, 1) + onKey(t, 2) - onKey(t, n))
#define spared(t, n) (!relies(t, n) || elsewhere(t, n) >= QUORUM)

active proctype Nodes() {
	byte n, t;
end:	do
#if DEATHS
	/* What a dead client has on a node ends. */
	:: atomic { deaths -> select(n : 0 .. NODES-1); select(t : 0 .. TICKETS-1);
		if
		:: state[t] == over && no[n].a[t] && len(pipe(t, n)) == 0 -> no[n].a[t] = 0; round[n].a[t] = 0; if :: key[n] == t -> key[n] = NOBODY :: else fi
		:: else
		fi;
		n = 0; t = 0
	}
#endif
#if RESTARTS
	:: atomic { restarts < RESTARTS -> select(n : 0 .. NODES-1);
#ifdef ANY_RESTART	/* mutant: a node comes back without its data while a lease is on a bare majority */
		if
		:: true ->
#else
		if
#if TICKETS == 3
		:: spared(0, n) && spared(1, n) && spared(2, n) ->
#else
		:: spared(0, n) && spared(1, n) ->
#endif
#endif
			d_step {
				restarts++; key[n] = NOBODY; fence[n] = 0; clock[n] = newest;
				for (t : 0 .. TICKETS-1) { no[n].a[t] = 0; round[n].a[t] = 0; tomb[n].b[t] = false }
				t = 0
			}
#ifndef ANY_RESTART
		:: else
#endif
		fi;
		n = 0
	}
#endif
	:: false
	od
}

init {
	byte t, n;
	atomic {
		for (n : 0 .. NODES-1) { key[n] = NOBODY }
		for (t : 0 .. TICKETS-1) {
			for (n : 0 .. NODES-1) { run Pipe(t, n) }
			run Client(t)
		}
		t = 0; n = 0
	}
}
