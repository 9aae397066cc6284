package sim

func init() {
	mutants = append(mutants,
		mutant{
			name: "dynamodb: a write that was sent twice is taken for one that was refused", file: "driver/dynamodb/store.go",
			old: "case errors.As(err, &changed) && hasVersion(changed.Item, version):", new: "case errors.As(err, &changed) && false:",
		},
		mutant{
			name: "dynamodb: readings are not consistent", file: "driver/dynamodb/store.go",
			old: "ConsistentRead: aws.Bool(true)", new: "ConsistentRead: aws.Bool(false)",
		},
		mutant{
			name: "dynamodb: writes have no condition", file: "driver/dynamodb/store.go",
			old: "return s.put(ctx, in, key, value, keep)", new: "return s.put(ctx, &sdk.PutItemInput{}, key, value, keep)",
		},
		mutant{
			name: "dynamodb: its clock counts from the answer", file: "driver/dynamodb/wire.go",
			old: "c.server, c.at = server, asked", new: "c.server, c.at = server, time.Now()",
			unseen: "a slow clock has items removed earlier, by as much as an answer takes: the margin is longer",
		},
		mutant{
			name: "dynamodb: nothing is subtracted from what its clock may leave out", file: "driver/dynamodb/wire.go",
			old: "t.Latest = time.Duration(now.UnixNano()) + second + disagree", new: "t.Latest = time.Duration(now.UnixNano())",
			unseen: "a heartbeat would have to be missed for nearly the whole TTL, by two processes one after the other",
		},
		mutant{
			name: "casqueue: a reading from before a write overtakes it", file: "driver/internal/casqueue/reading.go",
			old: "case begun.Before(f.settled) && read.Version.Number == f.before.Number:", new: "case false:",
		},
		mutant{
			name: "casqueue: an unanswered release notifies nobody when it proves to be done", file: "driver/internal/casqueue/reading.go",
			old: "e.notifyAll(before, f.doc)\n\t}\n\te.learn(f)", new: "\t_ = before\n\t}\n\te.learn(f)",
			unseen: "the next waiter polls as soon as it would be late",
		},
	)
}
