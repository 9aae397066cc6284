package testbed

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
)

func TestMariaDB(t *testing.T) {
	need(t, mariadb)
	t.Parallel()
	testServer(t, mariadb, MariaDB(t))
}

func TestMariaDBIsClosed(t *testing.T) {
	need(t, mariadb)
	t.Parallel()
	testClosed(t, MariaDB(t))
}

// testClosed proves that nobody gets into a MariaDB or MySQL without the password, also
// after a restart, and that what runs there has none of root's rights.
func testClosed(t *testing.T, s *Server) {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	if u.User.Username() != "root" || len(password) < 20 {
		t.Fatalf("the URL is %s", s.URL())
	}
	for range 2 {
		if err := visit(s, "root:"+password, func(db *sql.DB) error { return closed(t, db) }); err != nil {
			t.Error(err)
		}
		for _, account := range []string{"root", "", "locker", mysqlUser(), "mysql", "root:root", mysqlUser() + ":invalid"} {
			err := visit(s, account, (*sql.DB).Ping)
			if err == nil || !strings.Contains(err.Error(), "denied") {
				t.Errorf("as %q: %v", account, err)
			}
		}
		s.Restart()
	}
}

// visit opens a pool of an account.
func visit(s *Server, account string, f func(*sql.DB) error) error {
	db, err := sql.Open("mysql", account+"@tcp("+s.Addr()+")/?allowCleartextPasswords=true")
	if err != nil {
		return err
	}
	defer db.Close()
	return f(db)
}

// closed asks the server who it is and whom it lets in.
func closed(t *testing.T, db *sql.DB) error {
	t.Helper()
	var open int
	if err := db.QueryRow(`SELECT COUNT(*) FROM mysql.user WHERE authentication_string = '' AND
		plugin NOT IN ('unix_socket', 'auth_socket') AND user <> 'mariadb.sys'`).Scan(&open); err != nil {
		return err
	}
	if open > 0 {
		t.Errorf("%d accounts have no password", open)
	}
	var file, tmp, data string
	if err := db.QueryRow("SELECT @@tmpdir, @@datadir").Scan(&tmp, &data); err != nil {
		return err
	}
	if err := db.QueryRow("SELECT @@pid_file").Scan(&file); err != nil {
		return err
	}
	if filepath.Clean(tmp) != filepath.Dir(filepath.Clean(data)) {
		t.Errorf("temporary tables are in %s, where other servers may delete them", tmp)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%s/status", strings.TrimSpace(string(pid))))
	if err != nil {
		t.Logf("this system does not say who runs it: %v", err)
		return nil
	}
	if root := regexp.MustCompile(`(?m)^(Uid|Gid|Groups):.*\b0\b.*$|^CapEff:.*[1-9a-f].*$`).FindAllString(string(status), -1); root != nil {
		return fmt.Errorf("it runs as root: %q", root)
	}
	return nil
}
