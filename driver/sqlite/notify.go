package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Each process reads a named pipe of its own, to which others write notices: a line each, in the form of
// sqlqueue.Inbox.Text. What has happened is in the database, so a notice that is lost, because the pipe is full or its
// reader is stopped, delays a grant until the next heartbeat.

// notice is a text to a process.
type notice struct {
	process int64
	text    string
}

// pipePath is the path of the pipe of a process.
func (s *store) pipePath(process int64) string {
	return filepath.Join(s.file+"-notify", strconv.FormatInt(sqlqueue.Channel(process), 36))
}

// send sends a notice.
func (s *store) send(n notice) { s.notify(s.pipePath(n.process), n.text+"\n") }

// manyNotices may be more than fit into a pipe: some may be lost.
const manyNotices = 4096

// Listen implements sqlqueue.Notifier.
func (s *store) Listen(ctx context.Context, process int64, in *sqlqueue.Inbox) error {
	path := s.pipePath(process)
	pipe, err := s.pipe(s.file, path)
	if err != nil {
		return err
	}
	defer func() {
		_ = os.Remove(path)
		_ = pipe.Close()
	}()
	stop := context.AfterFunc(ctx, func() { _, _ = io.WriteString(pipe, "\n") }) // ends the read, on every system
	defer stop()
	in.Ready()
	for r := bufio.NewReaderSize(pipe, 2*manyNotices); ; {
		line, err := r.ReadSlice('\n')
		switch tooLong := errors.Is(err, bufio.ErrBufferFull); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !tooLong:
			return err
		case tooLong, r.Buffered() > manyNotices:
			in.Missed()
		}
		if len(line) > 1 {
			in.Text(string(bytes.TrimSuffix(line, []byte("\n"))))
		}
	}
}
