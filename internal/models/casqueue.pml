/*
 * The death of a ticket by observation, as driver/internal/casqueue has it: one queue document that is replaced by
 * compare-and-swap, one heartbeat document for each process, and observations that visitors share by the store's clock.
 *
 * Model                            Code (driver/internal/casqueue)
 *   tok, obs, obsSame                document.go: queue.Tickets, record.Token, record.Observed
 *   fresh[p]                         writer.go: file.version is the version in the store
 *   Beat                             attend.go: sendHeartbeat; acquire.go: ticket.alive, ticket.lapsed
 *   getHeartbeats, getDocument       observe.go: sample, seeHeartbeat; document.go: carry, see; acquire.go: learn
 *   since, silent, expired           observe.go: silence (since; until, less since), patience, expired
 *   getHeartbeats: told              share.go: recall, confirms
 *   place, adopt                     acquire.go: place, enlist; observe.go: reap
 *   provisional, claim               acquire.go: granted; lease.go: begin (from claiming)
 *   renew in the document            lease.go: begin (from held)
 *   remove, noop                     engine.go: remove; writer.go: attempt, file.unanswered
 *   tell                             share.go: tell
 *   perform, late                    store.go: Store.Put, whose answer may be lost, and which may then be done later
 *
 * Atomic in the store, and so here: a Put on condition of a version, a Set of a heartbeat, a Get of one document. A Get of
 * several is several steps. Any time may pass between two steps.
 *
 * Time: all ages are in ticks of the true time, which passes at any moment. They stop where
 * they are over, so there is no horizon. LIFE
 * is the life of each ticket. The clock of an observer may gain DRIFT ticks in that time; MARGIN allows for it.
 *
 * Abstracted: a version is a bit (has the document changed since?), and so is the content of a heartbeat; both are unique in
 * the code. Waiters and leases have the same life. Heartbeats are first seen when the store is asked, which is a little
 * earlier than in the code, so that processes conclude a little sooner. All tickets are exclusive. Left out: fixed leases,
 * minimum holds, batches, notifications, the intervals of polling, the window of 8, a store that forgets or loses
 * documents, heartbeats that are written after their process has given them up.
 *
 * Bounds: N processes, with one ticket each at a time, and TICKETS in all. A reading that takes SLOW ticks or more
 * proves no silence here; in the code it may prove some. LATES Puts get no answer, and may be done later. With SHARE, processes
 * recall and tell observations, and forget what they have seen themselves.
 */
#ifndef N
#define N 2
#endif
#ifndef TICKETS
#define TICKETS 3
#endif
#ifndef LIFE
#define LIFE 2
#endif
#ifndef LATES
#define LATES 0
#endif
#define DRIFT 1
#ifdef NO_MARGIN	/* mutant: no margin beyond the life, though clocks differ */
#define MARGIN 0
#else
#define MARGIN 1
#endif
#define OVER (LIFE + 1)
#define SLOW 2	/* ticks of a reading */
#define SAT (OVER + SLOW - 1)
#define NONE 15	/* an age: there is no observation */

/* States of a ticket in its process. */
#define idle 0
#define waits 1
#define held 2
#define unsure 3	/* the Put that queues it was not answered */
#define leaving 4	/* it is to be removed */

/* What a Put is for. */
#define nothing 0
#define placing 1	/* queues the ticket */
#define leasing 2	/* begins its lease, or begins it anew */
#define removing 3
#define other 4	/* removes expired tickets, or tells what was observed */

typedef ages { byte a[N] };
typedef bits { bool b[N] };
typedef request { bool on; bool ok; bool add; bool touch; bool tell; byte remove };	/* ok: its version is current */

/* The store. */
byte last;	/* the newest token */
byte tok[N];	/* the ticket of each process in the document; 0: none */
byte obs[N];	/* the age of the observation in its record */
bool obsSame[N];	/* the heartbeat is still the one of that observation */
request put[N], late[N];

/* A process. */
byte state[N];
byte mine[N];	/* its ticket; 0: none that it knows */
byte alive[N];	/* the age of the last sign of life that counts */
byte kind[N];	/* of the Put under way */
bool done[N];	/* the Put was done, and not answered yet */
byte sent[N];	/* the age of the Put */
bool unanswered[N];
bool fresh[N];	/* it knows the document as it is */
bool there[N], first[N];	/* as it has read last: its ticket is in the queue, at the head */
bool dead[N];
byte reading[N];	/* how much of it is done */
byte began[N];	/* its age */
byte beat[N];	/* 0 none, 1 sent, 2 done */
byte beatAge[N];
ages since[N];	/* for how long p has seen the record and the heartbeat of q as they are */
bits silent[N];	/* as of the last reading, that was for longer than the life and the margin */
bits sameRecord[N], sameBeat[N];	/* q's are as p has read them */
ages told[N];	/* the age of the observation that p has read in the record of q */
bits toldSame[N];	/* the heartbeat of q is still the one of that observation */

byte newest;	/* the newest ticket that was granted */
byte deaths, lates;

#ifdef SHARE	/* processes observe though they do not queue */
#define visits true
#else
#define visits (last < TICKETS)
#endif
#define valid(p) (state[p] == held && alive[p] <= LIFE)
#ifdef UNTIL_NOW	/* mutant: silence lasts until now, and not until the last reading */
#define silence(p, q) (since[p].a[q] + DRIFT > LIFE + MARGIN)
#else
#define silence(p, q) silent[p].b[q]
#endif
#define expired(p, q) (q != p && tok[q] && sameRecord[p].b[q] && silence(p, q))

inline older(x, most) { x = (x < most -> x + 1 : x) }

/* check: no two processes rely on a lease. */
inline check() {
	n = 0;
	for (k : 0 .. N-1) { n = n + (valid(k) -> 1 : 0) }
	assert(n <= 1);
	n = 0; k = 0
}

inline grant(p) {
	state[p] = held;
	assert(mine[p] > newest);	/* in the order of the queue, and tokens grow */
	newest = mine[p];
	check();
	rest(p)
}

inline changeRecord(q) {
	for (k : 0 .. N-1) { sameRecord[k].b[q] = false }
}

/* perform does a Put. */
inline perform(p, r) {
	for (k : 0 .. N-1) { fresh[k] = false; put[k].ok = false; late[k].ok = false }
	for (j : 0 .. N-1) {
		if
		:: r.remove & (1 << j) -> tok[j] = 0; obs[j] = NONE; obsSame[j] = false; changeRecord(j)
		:: else
		fi;
		if
		:: r.tell && j != p && tok[j] -> obs[j] = since[p].a[j]; obsSame[j] = sameBeat[p].b[j]
		:: else
		fi
	}
	if
	:: r.add -> last++; tok[p] = last; changeRecord(p)
	:: r.touch ->
#ifndef KEEP_OBSERVATION	/* mutant: what was observed of the last lease stays when it is begun anew */
		obs[p] = NONE; obsSame[p] = false;
#endif
		changeRecord(p)
	:: else
	fi;
	r.on = false; r.remove = 0; r.add = false; r.touch = false; r.tell = false;
	j = 0; k = 0
}

active proctype Time() {
	byte i, j;
	do
	:: d_step {
		true;
		for (i : 0 .. N-1) {
			if :: mine[i] -> older(alive[i], OVER) :: else fi;
			if
			:: beat[i] == 2 && beatAge[i] >= LIFE -> beat[i] = 0; beatAge[i] = 0	/* its answer would come too late */
			:: beat[i] && !(beat[i] == 2 && beatAge[i] >= LIFE) -> older(beatAge[i], OVER)
			:: else
			fi;
			if :: kind[i] == placing || kind[i] == leasing -> older(sent[i], OVER) :: else fi;
			if :: reading[i] -> older(began[i], SLOW) :: else fi;
			if :: obs[i] != NONE -> older(obs[i], SAT) :: else fi;
			for (j : 0 .. N-1) {
				if :: since[i].a[j] != NONE -> older(since[i].a[j], SAT) :: else fi;
				if :: told[i].a[j] != NONE -> older(told[i].a[j], SAT) :: else fi
			}
		}
		i = 0; j = 0
	}
	od
}

proctype Beat(byte p) {
	byte k, n;
end:	do
	:: d_step { !dead[p] && mine[p] && beat[p] == 0 && alive[p] > 0 -> beat[p] = 1; beatAge[p] = 0 }
	:: d_step { beat[p] == 1 -> beat[p] = 2;
		for (k : 0 .. N-1) { sameBeat[k].b[p] = false; toldSame[k].b[p] = false }
		obsSame[p] = false; k = 0
	}
	:: d_step { !dead[p] && beat[p] == 2 ->
		if
#ifdef LATE_HEARTBEAT	/* mutant: a heartbeat counts even if the life that it replaces was over when it was answered */
		:: mine[p] && beatAge[p] < alive[p] -> alive[p] = beatAge[p]
#else
		:: mine[p] && alive[p] <= LIFE && beatAge[p] < alive[p] -> alive[p] = beatAge[p]
#endif
		:: else
		fi;
		beat[p] = 0; beatAge[p] = 0;
		check()
	}
	:: d_step { beat[p] == 2 -> beat[p] = 0; beatAge[p] = 0 }	/* its answer is lost */
	od
}

inline getHeartbeats(p) {
	for (j : 0 .. N-1) {
		if
		:: j == p || since[p].a[j] == NONE
		:: else ->
			if
			:: !sameBeat[p].b[j] -> since[p].a[j] = 0; sameBeat[p].b[j] = true
			:: else
			fi;
#ifdef SHARE
			if
#ifdef ANY_HEARTBEAT	/* mutant: an observation counts, though the heartbeat has changed since */
			:: told[p].a[j] != NONE && told[p].a[j] > since[p].a[j] -> since[p].a[j] = told[p].a[j]
#else
			:: told[p].a[j] != NONE && toldSame[p].b[j] && told[p].a[j] > since[p].a[j] -> since[p].a[j] = told[p].a[j]
#endif
			:: else
			fi;
			told[p].a[j] = NONE; toldSame[p].b[j] = false;
#endif
			silent[p].b[j] = began[p] < SLOW && since[p].a[j] >= began[p] && since[p].a[j] - began[p] + DRIFT > LIFE + MARGIN
		fi
	}
	j = 0
}

inline getDocument(p) {
	fresh[p] = true; there[p] = tok[p] != 0; first[p] = there[p];
	for (j : 0 .. N-1) {
		if
		:: j == p
		:: j != p && tok[j] ->
			if
			:: !sameRecord[p].b[j] -> sameRecord[p].b[j] = true; since[p].a[j] = 0; silent[p].b[j] = false
			:: else
			fi;
#ifdef SHARE
			told[p].a[j] = obs[j]; toldSame[p].b[j] = obsSame[j];
#endif
			if :: tok[j] < tok[p] -> first[p] = false :: else fi
		:: else -> forgetTicket(p, j)
		fi
	}
	if
	:: !(late[p].on && late[p].ok) -> unanswered[p] = false; late[p].on = false
	:: else
	fi;
	j = 0
}

inline forgetTicket(p, q) {
	sameRecord[p].b[q] = false; sameBeat[p].b[q] = false;
	since[p].a[q] = NONE; silent[p].b[q] = false; told[p].a[q] = NONE; toldSame[p].b[q] = false
}

/* reap finds the expired tickets, and counts the others in n. */
inline reap(p) {
	n = 0;
	for (j : 0 .. N-1) {
		if
		:: expired(p, j) -> put[p].remove = put[p].remove | (1 << j)
		:: else -> n = n + (tok[j] && j != p -> 1 : 0)
		fi
	}
	j = 0
}

inline send(p, what) { put[p].on = true; put[p].ok = true; kind[p] = what; sent[p] = 0 }

inline finish(p) { kind[p] = nothing; done[p] = false; sent[p] = 0 }

inline forget(p) { state[p] = idle; mine[p] = 0; alive[p] = 0; there[p] = false; first[p] = false; rest(p) }

/* observe no more: p has no use for what it has seen */
inline rest(p) {
	if
	:: last == TICKETS && !visits ->
		for (j : 0 .. N-1) { if :: j != p -> forgetTicket(p, j) :: else fi }
		j = 0
	:: else
	fi
}

#define free(p) (kind[p] == nothing && reading[p] == 0)

proctype Process(byte p) {
	byte j, k, n;
	byte token;
	bool head;	/* the ticket that is queued is granted by that */
end:	do
	/* A reading. Who holds, or removes a ticket, observes nobody, and reads only to write. */
	:: d_step { free(p) && !fresh[p] && (state[p] == held || state[p] == leaving) -> getDocument(p) }
	:: d_step { free(p) && (state[p] == waits || state[p] == unsure || state[p] == idle && visits) -> reading[p] = 1; began[p] = 0 }
	:: d_step { reading[p] == 1 -> getHeartbeats(p); reading[p] = 2 }
	:: d_step { reading[p] == 2 -> getDocument(p); reading[p] = 0; began[p] = 0 }

	/* Acquire. A try is one that does not queue when it is refused. */
	:: d_step { free(p) && fresh[p] && (state[p] == idle || state[p] == unsure) && tok[p] == 0 && last < TICKETS ->
		reap(p); put[p].add = true; head = n == 0; n = 0; send(p, placing)
	}
	:: d_step { free(p) && fresh[p] && state[p] == unsure && tok[p] ->	/* it was done */
		mine[p] = tok[p]; alive[p] = OVER; state[p] = waits; reading[p] = 0; there[p] = true
	}
	/* A grant by reading, and the end of a wait. */
	:: d_step { free(p) && state[p] == waits && first[p] && alive[p] < (LIFE+1)/2 -> first[p] = false; grant(p) }
	:: d_step { free(p) && fresh[p] && state[p] == waits && first[p] && alive[p] >= (LIFE+1)/2 && tok[p] -> put[p].touch = true; send(p, leasing) }
	:: d_step { free(p) && state[p] == waits && !there[p] -> forget(p) }
	:: d_step { free(p) && fresh[p] && state[p] == waits && tok[p] -> reap(p); n = 0;
		if
		:: put[p].remove -> send(p, other)
		:: else
		fi
	}
	/* A lease is begun anew in the document: late, when that matters most. */
	:: d_step { free(p) && fresh[p] && valid(p) && alive[p] == LIFE && tok[p] -> put[p].touch = true; send(p, leasing) }
	/* A release, a cancelled wait, a lease that is over. */
#if LATES
	:: d_step { free(p) && (state[p] == waits || state[p] == unsure) -> state[p] = leaving; alive[p] = 0; there[p] = false; first[p] = false }
#endif
	:: d_step { free(p) && state[p] == held -> state[p] = leaving; alive[p] = 0; there[p] = false; first[p] = false }
	:: d_step { free(p) && fresh[p] && state[p] == leaving && tok[p] -> put[p].remove = 1 << p; send(p, removing) }
#ifdef FORGET_LATE	/* mutant: a release that finds no ticket is answered, though a Put may still be done */
	:: d_step { free(p) && fresh[p] && state[p] == leaving && tok[p] == 0 ->
#else
	:: d_step { free(p) && fresh[p] && state[p] == leaving && tok[p] == 0 && unanswered[p] -> send(p, removing) }
	:: d_step { free(p) && fresh[p] && state[p] == leaving && tok[p] == 0 && !unanswered[p] ->
#endif
		assert(!(late[p].on && late[p].ok && late[p].add));	/* no ticket comes after its release */
		forget(p)
	}
#ifdef SHARE
	:: d_step { free(p) && fresh[p] && (state[p] == waits || state[p] == idle) -> reap(p); n = 0;
		if
		:: put[p].remove -> put[p].remove = 0
		:: else -> put[p].tell = true; send(p, other)
		fi
	}
	/* The process ends, and another one comes. */
	:: d_step { free(p) && state[p] == idle && !unanswered[p] && tok[p] == 0 -> fresh[p] = false;
		for (j : 0 .. N-1) { forgetTicket(p, j) }
		j = 0
	}
#endif
	/* A Put. */
#ifdef NO_VERSION	/* mutant: expired tickets are removed without regard to the version */
	:: d_step { put[p].on && (put[p].ok || kind[p] == other) -> perform(p, put[p]); done[p] = true; fresh[p] = true; token = tok[p] }
#else
	:: d_step { put[p].on && put[p].ok -> perform(p, put[p]); done[p] = true; fresh[p] = true; token = tok[p] }
#endif
	:: d_step { put[p].on && !put[p].ok ->	/* the document has changed */
		put[p].on = false; put[p].remove = 0; put[p].add = false; put[p].touch = false; put[p].tell = false;
		head = false; fresh[p] = false; finish(p)
	}
	:: d_step { done[p] ->	/* the answer */
		unanswered[p] = false; late[p].on = false;
		if
		:: kind[p] == placing ->
			mine[p] = token; alive[p] = sent[p]; there[p] = true;
			if
			:: head -> grant(p)
			:: else -> state[p] = waits
			fi
		:: kind[p] == leasing -> alive[p] = sent[p];
			if
			:: state[p] == waits -> first[p] = false; grant(p)
			:: else -> check()
			fi
		:: kind[p] == removing -> forget(p)
		:: else
		fi;
		head = false; token = 0; finish(p)
	}
#if LATES
	:: d_step { kind[p] && kind[p] != other && !late[p].on && lates < LATES ->	/* no answer */
		lates++;
		unanswered[p] = true;
		if
		:: done[p] -> fresh[p] = false
		:: else ->
			late[p].on = true; late[p].ok = put[p].ok; late[p].add = put[p].add; late[p].touch = put[p].touch;
			late[p].remove = put[p].remove;
			put[p].on = false; put[p].remove = 0; put[p].add = false; put[p].touch = false
		fi;
		if
		:: kind[p] == placing -> state[p] = unsure
		:: else
		fi;
		head = false; token = 0; finish(p)
	}
	:: d_step { late[p].on && late[p].ok -> perform(p, late[p]) }
#endif
	/* The process dies. */
	:: d_step { deaths < N-1 && free(p) && tok[p] -> deaths++; dead[p] = true; forget(p); fresh[p] = false } -> break
	od;
	skip;
	d_step {
		for (j : 0 .. N-1) { if :: j != p -> forgetTicket(p, j) :: else fi }
		j = 0
	}
}

init {
	byte p, q;
	atomic {
		last = 1; tok[0] = 1; mine[0] = 1; state[0] = held; newest = 1;	/* somebody was the first */
		for (p : 0 .. N-1) {
			obs[p] = NONE;
			for (q : 0 .. N-1) { since[p].a[q] = NONE; told[p].a[q] = NONE }
		}
		for (p : 0 .. N-1) { run Process(p); run Beat(p) }
		p = 0; q = 0
	}
}
