package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const codeDenied = "42501"

// Ping implements driver.Pinger. It asks for every right that acquiring and releasing
// need, and changes nothing. What is missing is named.
func (d *Driver) Ping(ctx context.Context) error {
	err := d.retry(ctx, true, func() error { return d.rights(ctx, d.w.ping) })
	if code(err) == codeDenied {
		if all := d.rights(ctx, d.w.rights); code(all) == codeDenied {
			err = all
		}
	}
	return d.failed(ctx, err)
}

// rights is an error that names the rights that are missing, by a query for them.
func (d *Driver) rights(ctx context.Context, query string) error {
	var lacks *string
	err := d.query(ctx, true, nil, func(rows pgx.Rows) error { return rows.Scan(&lacks) }, query)
	if err == nil && lacks != nil && *lacks != "" {
		return &pgconn.PgError{
			Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: codeDenied,
			Message: "permission denied: the role needs " + *lacks,
		}
	}
	return err
}

// lacks is an expression that names the rights that a role lacks; NULL or empty: none.
func lacks(schema, tickets, processes, token string, functions []string) string {
	var tests []string
	add := func(kind, object, name, right string) {
		tests = append(tests, "CASE WHEN NOT has_"+kind+"_privilege("+object+", '"+right+"') THEN "+literal(right+" on "+name)+" END")
	}
	for _, table := range []string{tickets, processes} {
		for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			add("table", literal(table), table, right)
		}
	}
	for _, right := range []string{"USAGE", "UPDATE"} {
		add("sequence", literal(token), "sequence "+token, right)
	}
	for _, f := range functions {
		add("function", literal(f)+"::text::regproc", "function "+f, "EXECUTE")
	}
	return "CASE WHEN NOT has_schema_privilege(" + literal(schema) + ", 'USAGE') THEN " + literal("USAGE on schema "+schema) +
		" ELSE concat_ws(', ',\n\t" + strings.Join(tests, ",\n\t") + ") END"
}
