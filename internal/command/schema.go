package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/fence/sqlfence"
)

// schemaFlags are those of locker schema.
type schemaFlags struct{ prefix, schema, fence string }

func newSchema(a *app) *cobra.Command {
	var f schemaFlags
	cmd := &cobra.Command{
		Use:   "schema postgres|mysql",
		Short: "Print the SQL of the tables that locks on a database need",
		Long: `Print the SQL that creates what locks on PostgreSQL, or on MySQL and MariaDB, need
(for MySQL as its client mysql reads it, with DELIMITER),
for databases whose programs may not create tables (create=false in the URL). It
begins and ends no transaction, and may be run again. No store is reached.

--prefix and --schema are those of the store's URL. With --fence it prints the table
of fencing tokens instead, as packages fence/sqlfence and fence/pgxfence use it:
that one belongs in the database whose data the locks protect, wherever the
locks are.`,
		Example: `  locker schema postgres | psql -1 -f - app
  locker schema postgres --schema locks > migrations/0042_locks.sql
  locker schema mysql | mysql app
  locker schema mysql --fence locker_fences | mysql app`,
		Args:      arguments(1, 1),
		ValidArgs: []string{"postgres", "mysql"},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := schemaOf(args[0], f)
			if err != nil {
				return usage(err)
			}
			result := struct {
				Store string `json:"store"`
				SQL   string `json:"sql"`
			}{args[0], text}
			a.print(result, func(w io.Writer) { fmt.Fprint(w, text) })
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.prefix, "prefix", "", "`TEXT` that the names of the tables begin with (default \""+postgres.DefaultPrefix+"\")")
	flags.StringVar(&f.schema, "schema", "", "database `SCHEMA` of the tables, PostgreSQL only (default \""+postgres.DefaultSchema+"\")")
	flags.StringVar(&f.fence, "fence", "", "print the `TABLE` of fencing tokens instead; with its schema before a dot if it has one")
	return cmd
}

// schemaOf is the SQL for a store.
func schemaOf(store string, f schemaFlags) (string, error) {
	dialect := map[string]sqlfence.Dialect{"postgres": sqlfence.Postgres, "mysql": sqlfence.MySQL}[store]
	switch {
	case dialect == 0:
		return "", fmt.Errorf("no schema for %q: want postgres or mysql", store)
	case f.fence != "" && f.prefix+f.schema != "":
		return "", errors.New("--fence excludes --prefix and --schema, which are for the tables of the locks: want --fence [SCHEMA.]TABLE")
	case f.fence != "":
		table, err := sqlfence.New(dialect, f.fence)
		if err != nil {
			return "", err
		}
		return table.Schema(), nil
	case store == "mysql" && f.schema != "":
		return "", errors.New("--schema is of PostgreSQL: in MySQL the tables belong to the database that is connected to")
	case store == "mysql":
		var opts []mysql.Option
		if f.prefix != "" {
			opts = append(opts, mysql.WithPrefix(f.prefix))
		}
		schema, err := mysql.Schema(opts...)
		return "DELIMITER //\n" + strings.ReplaceAll(schema, ";\n", " //\n") + "DELIMITER ;\n", err // for the client
	}
	var opts []postgres.Option
	if f.prefix != "" {
		opts = append(opts, postgres.WithPrefix(f.prefix))
	}
	if f.schema != "" {
		opts = append(opts, postgres.WithSchema(f.schema))
	}
	return postgres.Schema(opts...)
}
