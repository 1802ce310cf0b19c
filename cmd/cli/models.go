package cli

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/inabench/inabench/inventory/tomlfile"
	"github.com/inabench/inabench/placement/workload"
	"github.com/inabench/inabench/results/human"
)

func modelsCommand() *cli.Command {
	return &cli.Command{
		Name:      "models",
		Usage:     "list the models that experiments and traces can name, or show one of them",
		ArgsUsage: "[NAME]",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "file", Usage: "also list a catalogue of your own, `FILE`.toml; its models win over built-in ones of the same name"},
			tableFlag(),
		},
		Description: `Examples:
  inabench models
  inabench models vgg16
  inabench models --file my-models.toml -o json
`,
		Action: func(c *cli.Context) error {
			all := workload.Builtin()
			if path := c.String("file"); path != "" {
				src, err := read(c, path)
				if err != nil {
					return err
				}
				own, err := workload.Parse(src.name, src.text)
				if err != nil {
					return err
				}
				all = all.With(own)
			}
			if !c.Args().Present() {
				models := make([]model, 0, len(all.Names()))
				for _, name := range all.Names() {
					models = append(models, modelOf(all, name))
				}
				return put(c, models, func(w io.Writer) error { return writeModels(w, models) })
			}
			name, err := argument(c, "model")
			if err != nil {
				return err
			}
			if _, ok := all.Lookup(name); !ok {
				return inputError{fmt.Errorf("no model %q", name), tomlfile.DidYouMean(name, all.Names())}
			}
			m := modelOf(all, name)
			return put(c, m, func(w io.Writer) error { return writeModel(w, m) })
		},
	}
}

// model is a profile for people and programs.
type model struct {
	Name    string         `json:"name"`
	Bytes   int64          `json:"gradient_bytes"`
	Layers  []layer        `json:"layers"`              // in the order of backpropagation
	Compute *float64       `json:"compute_s,omitempty"` // of one step; nil: nobody knows
	Basis   workload.Basis `json:"basis"`
	GPU     string         `json:"gpu"`
	Batch   int            `json:"batch,omitempty"`
	Source  string         `json:"source"`
	Derived string         `json:"derived,omitempty"`
}

type layer struct {
	Bytes int64    `json:"gradient_bytes"`
	Ready *float64 `json:"ready_s,omitempty"` // after the step began, without communication
}

func modelOf(all *workload.Catalogue, name string) model {
	p, _ := all.Lookup(name)
	m := model{Name: p.Name, Bytes: p.Bytes(), Basis: p.Basis, GPU: p.GPU, Batch: p.Batch, Source: p.Source, Derived: p.Derived}
	known := p.Basis != workload.Unknown
	at := 0.0
	for _, l := range p.Layers {
		at += l.Compute.Seconds()
		one := layer{Bytes: l.Bytes}
		if known {
			ready := at
			one.Ready = &ready
		}
		m.Layers = append(m.Layers, one)
	}
	if known {
		total := p.Compute().Seconds()
		m.Compute = &total
	}
	return m
}

func (m model) step() string {
	if m.Compute == nil {
		return "unknown"
	}
	return human.Quantity(*m.Compute, "s")
}

// on is what a step was measured on.
func (m model) on() string {
	if m.Compute == nil && m.GPU == "unknown" {
		return "-"
	}
	if m.Batch > 0 {
		return fmt.Sprintf("%s, batch %d", m.GPU, m.Batch)
	}
	return m.GPU
}

// writeModels writes a row for each model; sources are long and shared, so they follow.
func writeModels(w io.Writer, models []model) error {
	var sources []string
	tw := newTable(w, "MODEL", "GRADIENT", "LAYERS", "STEP", "BASIS", "ON", "SOURCE")
	for _, m := range models {
		n := slices.Index(sources, m.Source)
		if n < 0 {
			n = len(sources)
			sources = append(sources, m.Source)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t[%d]\n", m.Name, human.Quantity(float64(m.Bytes), "B"), len(m.Layers), m.step(), m.Basis, m.on(), n+1)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for i, s := range sources {
		writeWrapped(w, fmt.Sprintf("%-4s ", fmt.Sprintf("[%d]", i+1)), s)
	}
	fmt.Fprint(w, "\nA step is the computing of one iteration on one GPU. Where it is unknown, an\nexperiment says how long it takes.\n")
	return nil
}

func writeModel(w io.Writer, m model) error {
	fmt.Fprintf(w, "%s: %s of gradient in %s, step %s (%s)\n", m.Name, human.Quantity(float64(m.Bytes), "B"),
		human.Plural(len(m.Layers), "layer"), m.step(), m.Basis)
	for _, row := range [][2]string{{"on", m.on()}, {"source", m.Source}, {"derived", m.Derived}} {
		if row[1] != "" {
			writeWords(w, row[0], row[1])
		}
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "layer\tgradient\tready after\t")
	for i, l := range m.Layers {
		ready := "unknown"
		if l.Ready != nil {
			ready = human.Quantity(*l.Ready, "s")
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t\n", i+1, human.Quantity(float64(l.Bytes), "B"), ready)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nBackpropagation reaches the last layer of a model first: it is number 1 here.")
	return err
}
