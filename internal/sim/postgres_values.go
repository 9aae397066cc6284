package sim

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5/pgproto3"
)

// The values of PostgreSQL's protocol.

// OIDs of types.
const (
	oidBool       = 16
	oidBytea      = 17
	oidInt8       = 20
	oidText       = 25
	oidByteaArray = 1001
	oidTextArray  = 1009
	oidInt8Array  = 1016
)

var oids = map[string]uint32{
	"boolean": oidBool, "bytea": oidBytea, "bigint": oidInt8, "text": oidText,
	"bytea[]": oidByteaArray, "text[]": oidTextArray, "bigint[]": oidInt8Array,
}

var parameterOf = regexp.MustCompile(`\$(\d+)::([a-z]+(?:\[\])?)`)

// parameters returns the types of the parameters of a statement.
func parameters(sql string) (all []uint32) {
	for _, m := range parameterOf.FindAllStringSubmatch(sql, -1) {
		if n, _ := strconv.Atoi(m[1]); n == len(all)+1 {
			all = append(all, oids[m[2]])
		}
	}
	return all
}

// decodeArg reads a parameter in binary format: int64, bool, string or a slice of them.
func decodeArg(oid uint32, b []byte) any {
	switch oid {
	case oidInt8:
		return int64(binary.BigEndian.Uint64(b)) //nolint:gosec // any 64 bits
	case oidBool:
		return b[0] != 0
	case oidByteaArray, oidTextArray, oidInt8Array:
		all := []any{}
		if binary.BigEndian.Uint32(b) == 0 { // dimensions
			return all
		}
		element := binary.BigEndian.Uint32(b[8:])
		for b = b[20:]; len(b) > 0; {
			n := binary.BigEndian.Uint32(b)
			all = append(all, decodeArg(element, b[4:4+n]))
			b = b[4+n:]
		}
		return all
	}
	return string(b)
}

func oidOf(v any) uint32 {
	switch v.(type) {
	case bool:
		return oidBool
	case []byte:
		return oidBytea
	case int64:
		return oidInt8
	}
	return oidText
}

func formatOf(formats []int16, i int) int16 {
	switch len(formats) {
	case 0:
		return 0
	case 1:
		return formats[0]
	}
	return formats[i]
}

// encodeRows writes rows, in text or in binary format.
func encodeRows(answer []byte, rows [][]any, formats []int16) []byte {
	for _, r := range rows {
		row := &pgproto3.DataRow{}
		for i, v := range r {
			row.Values = append(row.Values, encodeValue(v, formatOf(formats, i) == 1))
		}
		answer = pgEncode(answer, row)
	}
	return pgEncode(answer, &pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "SELECT %d", len(rows))})
}

func encodeValue(v any, inBinary bool) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case int64:
		if inBinary {
			return binary.BigEndian.AppendUint64(nil, uint64(v)) //nolint:gosec // any 64 bits
		}
	case bool:
		if inBinary {
			return []byte{map[bool]byte{true: 1}[v]}
		}
		return []byte(map[bool]string{true: "t", false: "f"}[v])
	case []byte:
		if inBinary {
			return append([]byte{}, v...)
		}
		return []byte(`\x` + hex.EncodeToString(v))
	}
	return fmt.Append([]byte{}, v)
}
