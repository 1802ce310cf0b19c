package experiments

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"

	"github.com/BurntSushi/toml"

	"github.com/inabench/inabench/results"
)

//go:embed *.toml models/*.toml racks/*.toml
var shipped embed.FS

// Shipped is an experiment that comes with this program, as the record of a run of it has it: the texts of the experiment
// and its inventory, and sums of the other files that it names. It is nil where none of that name does.
func Shipped(name string) *results.Record {
	text, err := shipped.ReadFile(name)
	if err != nil {
		return nil
	}
	var head struct{ Inventory, Catalogue string }
	if err := toml.Unmarshal(text, &head); err != nil {
		panic(err) // TestShipped reads the same bytes
	}
	rec := &results.Record{Experiment: fileOf(name, text)}
	if head.Inventory != "" {
		rec.Inventory = fileOf(head.Inventory, read(head.Inventory))
	}
	if head.Catalogue != "" {
		rec.Files = map[string]string{head.Catalogue: fileOf("", read(head.Catalogue)).SHA256}
	}
	return rec
}

func read(name string) []byte {
	text, err := shipped.ReadFile(name)
	if err != nil {
		panic(err) // of an experiment that ships without its files
	}
	return text
}

func fileOf(path string, text []byte) results.File {
	sum := sha256.Sum256(text)
	return results.File{Path: path, SHA256: hex.EncodeToString(sum[:]), Text: string(text)}
}
