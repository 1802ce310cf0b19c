package inventory

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/inabench/inabench/inventory/tomlfile"
)

// GUID is an InfiniBand EUI-64, as ibstat and ibnetdiscover print them. In files it is
// "0x98039b0300200010"; 0 is none.
type GUID uint64

// ParseGUID reads "0x98039b0300200010", the same without 0x or without leading zeros,
// or "9803:9b03:0020:0010" as sysfs has it. 0 is no GUID.
func ParseGUID(s string) (GUID, error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	if strings.Count(s, ":") == 3 && len(s) == 19 {
		digits = strings.ReplaceAll(s, ":", "")
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || n == 0 || digits[0] == '+' {
		return 0, tomlfile.WithHint(`write it like "0x98039b0300200010"`, "%q is not a GUID", s)
	}
	return GUID(n), nil
}

// String is "0x" and sixteen digits, or "" for none.
func (g GUID) String() string {
	if g == 0 {
		return ""
	}
	return fmt.Sprintf("0x%016x", uint64(g))
}

// MarshalText is String.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText is ParseGUID, and reads what MarshalText writes of none.
func (g *GUID) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*g = 0
		return nil
	}
	*g, err = ParseGUID(string(text))
	return err
}

var rdmaPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*(:[1-9][0-9]{0,2})?$`)

// rdma reads "mlx5_0:1"; without a port it is the first.
func (b *builder) rdma(path, s string) string {
	if s == "" {
		return ""
	}
	if !rdmaPattern.MatchString(s) {
		b.Problemf(path, `write it like "mlx5_0:1"`, "%q is not a port of an RDMA device", s)
		return ""
	}
	if !strings.Contains(s, ":") {
		s += ":1"
	}
	return s
}

// guids are the GUIDs of n items of a table that names one for each.
func (b *builder) guids(path string, list []GUID, n int) []GUID {
	if len(list) != n {
		if len(list) > 0 && n > 0 {
			b.Problemf(path, "a list has one for each of a range, in order", "%s where the table stands for %d",
				count(len(list), "GUID"), n)
		}
		return make([]GUID, n)
	}
	return list
}
