package mysql

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strconv"
)

// A statement that inserts a ticket contains the start of the server that it is meant for. A server that has lost commits,
// in a crash or as a replica that takes over, would give the tokens in them again. So for each start of a server the first
// driver raises AUTO_INCREMENT to the server's clock, in 2^20ths of a millisecond. Tokens grow as long as the servers'
// clocks agree and fewer than a billion numbers a second are used on average, and over the change from earlier versions of
// the tables, whose tokens were as great.

// readServer reads the server's clock, in microseconds, and which server it is. If this process comes back to a server from
// another one, that server may lack the tokens that the other has given since: tokens are raised again.
func (s *store) readServer(ctx context.Context) (now int64, err error) {
	type server struct {
		now           int64
		start, raised uint64
	}
	for try := 0; ; try++ {
		found, err := query(ctx, s, s.w.render("clock", nil), func(rows *sql.Rows) (v server, err error) {
			err = rows.Scan(&v.now, &v.start, &v.raised)
			return v, err
		})
		if err != nil {
			return 0, err
		}
		is := found[0]
		if before := s.before.Load(); is.raised != is.start || before != 0 && before != is.start {
			err = s.raiseTokens(ctx, is.start)
		}
		if err == nil {
			s.before.Store(is.start)
			s.start.Store(is.start)
		}
		if code(err) != errNull || try == 2 { // else the server has changed in between
			return is.now, err
		}
	}
}

// raiseTokens moves AUTO_INCREMENT to the clock of the server. Others may do so at the same time.
func (s *store) raiseTokens(ctx context.Context, start uint64) error {
	v := values{"start": start, "raised": "\xfe" + strconv.FormatUint(rand.Uint64(), 36)}
	_, _, err := s.exec(ctx, "raise", v)
	if err == nil {
		_, _, err = s.exec(ctx, "raise_clear", v)
	}
	if err == nil || code(err) == errDuplicate { // AUTO_INCREMENT is beyond the clock
		_, _, err = s.exec(ctx, "raised", v)
	}
	return err
}
