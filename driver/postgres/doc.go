// Package postgres takes locker's tickets in a PostgreSQL database.
package postgres
