package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// current is the edition of this package. Raise the version with any change of the tables, or of what the functions do.
var current = sqlqueue.Edition{Version: "7", Hash: sqlqueue.Hash(schemaSQL, functionsSQL, backgroundSQL)}

// described is how programs say what is wrong with the tables.
func (s *store) described() sqlqueue.Schema {
	return sqlqueue.Schema{
		Edition: s.w.edition, Tickets: s.w.tickets, Package: "postgres", Create: s.opts.create,
		Upgrade: "The SQL that postgres.Schema returns (locker schema postgres) moves the tables to the version of the program that it is from; " +
			"programs of other versions fail from then on",
	}
}

// Tables implements sqlqueue.Store.
func (s *store) Tables(ctx context.Context) (t sqlqueue.Tables, err error) {
	err = s.with(ctx, func(c *pgx.Conn) error {
		t, err = s.w.state(ctx, c)
		return err
	})
	return t, err
}

// Create implements sqlqueue.Store: it runs the SQL of the schema. Another may have run it before this one gets the lock.
func (s *store) Create(ctx context.Context) error {
	return s.with(ctx, func(c *pgx.Conn) error {
		return inReadWrite(ctx, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, s.w.lock, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			t, err := s.w.state(ctx, c)
			if err != nil || t.Complete || t.Tickets && t.Comment != s.w.edition.Comment() {
				return err
			}
			_, err = c.PgConn().Exec(ctx, s.w.schema).ReadAll()
			return err
		})
	})
}

// state reads what is there. A session remembers what it did not find, until it begins a transaction or locks a table. So it locks
// one: otherwise it would not see what another has created while Create waited for its lock.
func (w *wire) state(ctx context.Context, c *pgx.Conn) (t sqlqueue.Tables, err error) {
	err = c.QueryRow(ctx, w.installed, pgx.QueryExecModeSimpleProtocol).Scan(&t.Tickets, &t.Comment, &t.Complete)
	return t, err
}

// installed returns the columns that state reads. The first of the relations is the table of tickets.
func installed(relations, functions []string) string {
	var tests []string
	for _, r := range relations {
		tests = append(tests, "to_regclass("+literal(r)+") IS NOT NULL")
	}
	for _, f := range functions {
		tests = append(tests, "to_regproc("+literal(f)+") IS NOT NULL")
	}
	return tests[0] + ", coalesce(obj_description(to_regclass(" + literal(relations[0]) + "), 'pg_class'), ''), " + strings.Join(tests, " AND ")
}

// lacks returns an expression for the names of the rights that a role lacks; NULL or empty: none.
func lacks(n names) string {
	var tests []string
	test := func(kind, object, name, right string) {
		tests = append(tests, "CASE WHEN NOT has_"+kind+"_privilege("+object+", '"+right+"') THEN "+literal(right+" on "+name)+" END")
	}
	for _, table := range []string{n.qualified("tickets"), n.qualified("processes")} {
		for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			test("table", literal(table), table, right)
		}
	}
	for _, right := range []string{"USAGE", "UPDATE"} {
		test("sequence", literal(n.qualified("token")), "sequence "+n.qualified("token"), right)
	}
	for _, f := range n.functions() {
		test("function", literal(f)+"::text::regproc", "function "+f, "EXECUTE")
	}
	schema := pgx.Identifier{n.schema}.Sanitize()
	return "CASE WHEN NOT has_schema_privilege(" + literal(n.schema) + ", 'USAGE') THEN " + literal("USAGE on schema "+schema) +
		" ELSE concat_ws(', ',\n\t" + strings.Join(tests, ",\n\t") + ") END"
}
