package mutant

// Bug is one way in which a driver can be wrong.
type Bug string

// The bugs. Each stands in the code as one condition.
const (
	None Bug = ""

	// Of the grant rule.
	Permissive       Bug = "grants everything at once"
	TwoHolders       Bug = "every ninth exclusive request is granted whoever holds"
	SharedIgnoresX   Bug = "shared tickets ignore exclusive holders"
	LimitOffByOne    Bug = "one permit too many"
	ReadersExclude   Bug = "readers exclude each other"
	LastInFirstOut   Bug = "the last waiter is granted first"
	ReaderPasses     Bug = "a late reader passes a waiting writer"
	PermitPasses     Bug = "a late permit passes a waiting one"
	TryJumps         Bug = "TryAcquire looks at holders only"
	TryAfterRelease  Bug = "a released lock is free for a moment before the next is granted"
	SameProcess      Bug = "a process that holds is granted again"
	OwnerIsTicket    Bug = "tickets of one owner text are taken for one"
	QueuesTwice      Bug = "a request asked again queues a second ticket"
	RefusedLeavesOne Bug = "a refused request leaves its ticket"
	RefusedQueued    Bug = "a refused request is queued for a moment"
	LateHandOff      Bug = "the next is granted at the next poll"
	PollsSlowly      Bug = "waiters poll every 250 ms"
	PollsLater       Bug = "waiters poll ever more slowly, up to every 250 ms"
	NoSettleOnCancel Bug = "a waiter that leaves does not let those behind it through"
	NeverJoined      Bug = "Joined is never called"
	JoinedTwice      Bug = "Joined is called at every request"
	JoinedBlocks     Bug = "no other request is sent while Joined runs"
	OneReaderAtATime Bug = "a release grants one waiter, though several may hold"
	FirstWaiterOnly  Bug = "a release grants nobody after a waiter that is still blocked"

	// Of leases.
	NeverExpires      Bug = "a lease that is over blocks the queue"
	ExpiresEarly      Bug = "a lease ends at 60 % of its TTL"
	ExpiresLate       Bug = "a lease ends three seconds late"
	LeaseFromQueueing Bug = "the lease of a waiter counts from queueing"
	AskedLate         Bug = "a grant says that it was asked for later than it was"
	AskedLongAgo      Bug = "a grant says that it was asked for seconds before it was"
	BatchReversed     Bug = "the answers of a batch of renewals are in the wrong order"
	LongOverflows     Bug = "a lease of over a day ends at once"
	RenewNothing      Bug = "Renew answers and does nothing"
	RenewShortens     Bug = "Renew sets the lease, shorter or not"
	RenewAddsUp       Bug = "Renew adds to what is left"
	RenewRevives      Bug = "Renew brings a ticket back"
	LapsedRevives     Bug = "a late Renew brings a lapsed lease back"
	LapsedRevivesIf   Bug = "a late Renew brings a lapsed lease back if nobody was granted since"
	StatesHalf        Bug = "Bounds states a Crash of half the TTL"
	RenewWaiter       Bug = "Renew of a waiter answers nil"
	RenewAnybody      Bug = "Renew does not check the owner"
	ReleaseNothing    Bug = "Release answers and does nothing"
	ReleaseAnybody    Bug = "Release does not check the owner"
	ReleaseByToken    Bug = "Release needs a token"
	ReleaseHeldOnly   Bug = "Release does not remove waiters"
	ReleaseSilent     Bug = "Release of a waiter does not end its Acquire"

	// Of tokens.
	TokensAlike        Bug = "all tokens of a queue are alike"
	TokensPerProcess   Bug = "each process counts its own tokens"
	TokensRestart      Bug = "tokens begin anew when the name was idle for a second"
	TokensBackOnExpiry Bug = "an expiry turns the tokens back"
	TokensBackOnBreak  Bug = "a break turns the tokens back"
	TokensBackOnTry    Bug = "a refused request turns the tokens back"
	TokensAtGrant      Bug = "a ticket is renumbered when it is granted"
	TokensShared       Bug = "readers have one token"
	TokensAtOnce       Bug = "readers of one process that are queued at one moment have one token"
	TokensOnRestart    Bug = "tokens begin anew when the server does"

	// Of waiters that die, and of those that do not.
	DeadStay       Bug = "dead waiters stay"
	DeadOneByOne   Bug = "a dead waiter is removed when it is granted"
	PatientStay    Bug = "waiters that die after a heartbeat stay"
	WaitersDropped Bug = "live waiters are dropped after the liveness interval"
	FailsInOutage  Bug = "a waiter fails when the store is not reached"
	SilentOutage   Bug = "a waiter does not say that the store was not reached"

	// Of answers and contexts.
	AssumesSuccess  Bug = "a request without an answer is taken for done"
	LostIfUnknown   Bug = "a request without an answer is ErrLost"
	IgnoresContext  Bug = "calls return half a minute after their context ended"
	ReturnsLate     Bug = "calls return 100 ms after their context ended"
	SaysNoReason    Bug = "calls wait for a server that is down, and do not say that it is"
	MarksNoTicket   Bug = "every error of Acquire is marked by NoTicket"
	FewConnections  Bug = "each waiter keeps one of four connections"
	NeverReconnects Bug = "a client that was cut off once stays so"

	// Of what the core does for every store.
	ForgetsRelease Bug = "a repeated Release takes the unanswered one before it for done"
	SlowContext    Bug = "calls return a second after their context ended"
	Unmarked       Bug = "a store that is out is an error like any other"
	PingLies       Bug = "Ping answers without asking the store"
	CloseTakesHeld Bug = "Close removes tickets within their minimum hold"
	HoldIgnored    Bug = "the lease of a minimum hold is a second long"
	BreakCause     Bug = "the cause of a break is not ErrLost"

	// Of names.
	FoldsCase    Bug = "names in upper and lower case are one"
	TrimsBlanks  Bug = "names with and without trailing blanks are one"
	CutsAtSlash  Bug = "names are cut at a slash"
	CutsAtNUL    Bug = "names are cut at NUL"
	HashTags     Bug = "only what is in braces counts"
	CutsNames    Bug = "names are cut at 255 bytes"
	RefusesNUL   Bug = "names with NUL are an error"
	RefusesLong  Bug = "names of over 255 bytes are an error"
	FoldsAccents Bug = "é and e with a combining accent are one"

	// Of Inspect and List.
	Unordered      Bug = "Inspect shows the queue in reverse"
	NoNotes        Bug = "Inspect shows no notes"
	CutsTexts      Bug = "owners and notes are cut at NUL"
	NoRemaining    Bug = "Inspect shows no remaining time"
	WrongSince     Bug = "Inspect shows a time of 1970"
	ListsIdle      Bug = "List shows names that nobody uses any more"
	ShowsTen       Bug = "Inspect shows ten tickets"
	BreakNothing   Bug = "Break answers and does nothing"
	BreakAnything  Bug = "Break of an unknown token takes the first ticket"
	BreakSilent    Bug = "Break does not notify the holder, whose next renewal fails"
	BreakNotPushed Bug = "neither Break nor Renew notifies the holder of a break"

	// Of Close and of what stays behind.
	CloseHangs      Bug = "Close does not end waiting Acquires"
	CloseWaits      Bug = "Close waits half a second for a server that does not answer"
	SecondCloseErrs Bug = "a second Close is an error"
	WorksClosed     Bug = "a closed driver goes on working"
	CloseTakesAll   Bug = "Close removes the tickets of other processes"
	KeysStay        Bug = "an idle name leaves a key"
	LapsedKeysStay  Bug = "a lapsed lease that nobody releases leaves a key"
	DeadKeysStay    Bug = "a waiter that died leaves a key"
	GoroutineStays  Bug = "Close leaves a goroutine"
	StartsEmpty     Bug = "the server starts without what it had acknowledged"
)
