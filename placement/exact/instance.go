package exact

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/inabench/inabench/placement/cluster"
)

// Instance is a batch of jobs to be placed in a cluster where others run. Job IDs count
// up from 0, first the running ones.
type Instance struct {
	Config  cluster.Config
	Running []Running
	Batch   []cluster.Job
}

// Running is a job that is placed already and stays where it is.
type Running struct {
	Job   cluster.Job
	Place cluster.Placement
}

// Cluster is the cluster before the batch. The error says what is wrong with it.
func (in *Instance) Cluster() (*cluster.Cluster, error) {
	if err := in.Config.Check(); err != nil {
		return nil, err
	}
	c := cluster.New(in.Config)
	for _, r := range in.Running {
		if err := c.Enter(r.Job, r.Place); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Cost is the objective of Table 3 for placements of the batch: the sum over all jobs of
// the seconds that they communicate for once, their bytes over their rate (a job of
// unknown size counts as one byte; constant factors do not matter). +Inf if a job has no
// place. An error wraps cluster.ErrPlacement.
func (in *Instance) Cost(places []cluster.Placement) (float64, error) {
	c, err := in.Cluster()
	if err != nil {
		return 0, err
	}
	for i, p := range places {
		if len(p.Parts) == 0 {
			return math.Inf(1), nil
		}
		if err := c.Enter(in.Batch[i], p); err != nil {
			return 0, err
		}
	}
	return in.cost(c), nil
}

// cost is that of a cluster in which all jobs run.
func (in *Instance) cost(c *cluster.Cluster) float64 {
	sum := 0.0
	for _, r := range in.Running {
		sum += size(r.Job) / c.Rate(r.Job.ID)
	}
	for _, j := range in.Batch {
		sum += size(j) / c.Rate(j.ID)
	}
	return sum
}

func size(j cluster.Job) float64 {
	if j.Bytes > 0 {
		return j.Bytes
	}
	return 1
}

// Gradients of the models of the paper's evaluation, bytes: VGG11, VGG16, VGG19,
// AlexNet, ResNet50, ResNet101 (parameters of torchvision's, 4 bytes each).
var models = []float64{531.5e6, 553.4e6, 574.7e6, 244.4e6, 102.2e6, 178.2e6}

// Random is an instance of a cluster: up to three jobs run, and two to four of up to
// eight GPUs arrive, of sizes drawn from the paper's models. All fit at once.
func Random(rnd *rand.Rand, cfg cluster.Config) Instance {
	in := Instance{Config: cfg}
	c := cluster.New(cfg)
	job := func(gpus int) cluster.Job {
		return cluster.Job{ID: len(in.Running) + len(in.Batch), GPUs: gpus, Bytes: models[rnd.IntN(len(models))]}
	}
	for range rnd.IntN(4) {
		left := 1 + rnd.IntN(4)
		j, p := job(left), cluster.Placement{}
		for _, s := range rnd.Perm(len(cfg.Servers)) {
			if free := min(left, c.Free(s)); free > 0 {
				n := 1 + rnd.IntN(free)
				p.Parts = append(p.Parts, cluster.Part{Server: s, GPUs: n})
				left -= n
			}
		}
		if j.NeedsPS(len(p.Parts)) {
			p.PS = []int{rnd.IntN(len(cfg.Servers))}
		}
		if left == 0 && c.Enter(j, p) == nil {
			in.Running = append(in.Running, Running{j, p})
		}
	}
	want, free := 2+rnd.IntN(3), c.TotalFree()
	for len(in.Batch) < want && free > 0 {
		j := job(1 + rnd.IntN(min(8, free)))
		in.Batch = append(in.Batch, j)
		free -= j.GPUs
	}
	return in
}

// String is an instance as text, which Parse reads: its racks and servers, the jobs that
// run, and the batch. It says nothing of the traffic: Table 3's jobs have INA.
//
//	rack PAT UPLINK
//	server RACK GPUS LINK
//	run BYTES SERVER:GPUS… [ps SERVER…] [plain RACK…]
//	job GPUS BYTES
func (in *Instance) String() string {
	var b strings.Builder
	for _, r := range in.Config.Racks {
		fmt.Fprintln(&b, "rack", r.PAT, r.Uplink)
	}
	for _, s := range in.Config.Servers {
		fmt.Fprintln(&b, "server", s.Rack, s.GPUs, s.Link)
	}
	for _, r := range in.Running {
		fmt.Fprintln(&b, "run", r.Job.Bytes, r.Place)
	}
	for _, j := range in.Batch {
		fmt.Fprintln(&b, "job", j.GPUs, j.Bytes)
	}
	return b.String()
}

// Parse reads what String writes, with empty lines and comments from # to the end of a
// line. Errors name the line.
func Parse(r io.Reader) (Instance, error) {
	var in Instance
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if f := strings.Fields(text); len(f) > 0 {
			if err := in.parse(f[0], f[1:]); err != nil {
				return Instance{}, fmt.Errorf("line %d: %q: %w", n, strings.TrimSpace(text), err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return Instance{}, err
	}
	if _, err := in.Cluster(); err != nil {
		return Instance{}, err
	}
	return in, nil
}

func (in *Instance) parse(kind string, args []string) error {
	switch kind {
	case "rack":
		v, err := numbers(args, 2, 0)
		if err != nil {
			return err
		}
		in.Config.Racks = append(in.Config.Racks, cluster.Rack{PAT: v[0], Uplink: v[1]})
	case "server":
		v, err := numbers(args, 3, 2)
		if err != nil {
			return err
		}
		in.Config.Servers = append(in.Config.Servers, cluster.Server{Rack: int(v[0]), GPUs: int(v[1]), Link: v[2]})
	case "run":
		if len(in.Batch) > 0 {
			return errors.New("it comes after the batch")
		}
		v, err := numbers(args[:min(1, len(args))], 1, 0)
		if err != nil {
			return err
		}
		p, err := cluster.ParsePlacement(strings.Join(args[1:], " "))
		if err != nil {
			return err
		}
		j := cluster.Job{ID: len(in.Running), Bytes: v[0]}
		for _, w := range p.Parts {
			j.GPUs += w.GPUs
		}
		in.Running = append(in.Running, Running{j, p})
	case "job":
		v, err := numbers(args, 2, 1)
		if err != nil {
			return err
		}
		if v[0] < 1 {
			return errors.New("a job of no GPUs")
		}
		in.Batch = append(in.Batch, cluster.Job{ID: len(in.Running) + len(in.Batch), GPUs: int(v[0]), Bytes: v[1]})
	default:
		return errors.New("neither rack, server, run nor job")
	}
	return nil
}

// numbers are so many words of a line, none negative, the first few of them whole.
func numbers(words []string, want, whole int) ([]float64, error) {
	if len(words) != want {
		return nil, fmt.Errorf("%d numbers, want %d", len(words), want)
	}
	var out []float64
	for i, w := range words {
		v, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return nil, err
		}
		if !(v >= 0) || i < whole && (v != math.Trunc(v) || v > math.MaxInt32) {
			return nil, fmt.Errorf("%q is no quantity", w)
		}
		out = append(out, v)
	}
	return out, nil
}
