// Package mysql keeps locks as rows in MySQL or MariaDB.
package mysql
