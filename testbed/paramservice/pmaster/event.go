package pmaster

import "time"

// Event is something that has happened, a line of the event log.
type Event struct {
	// Event is "epoch", "ready" (of Main), "registered", "training" (all tensors are assigned,
	// for the first time or since pMaster took over), "profiled", "verdict", "migrated",
	// "recovered" (from the workers, after a crash), "nan", "ended", "allocate", "joined",
	// "release", "released", "lost", "refused", "restored", "error", and of Main "stop": see
	// Command.
	Event string  `json:"event"`
	T     float64 `json:"t"` // s since pMaster began
	Epoch uint64  `json:"epoch,omitempty"`

	Job     uint32 `json:"job,omitempty"`
	Name    string `json:"name,omitempty"`
	Tensor  *int   `json:"tensor,omitempty"`  // "migrated", "recovered", "nan"
	Tensors int    `json:"tensors,omitempty"` // of the job
	Workers int    `json:"workers,omitempty"`

	Aggregator *int32 `json:"aggregator,omitempty"` // "allocate" to "lost"
	Address    string `json:"address,omitempty"`    // "joined", "ready"
	From       *int32 `json:"from,omitempty"`       // "migrated"
	To         *int32 `json:"to,omitempty"`         // "migrated", "recovered"
	// Aggregators is how many there are, started ones and those that end among them; of
	// "allocate", "released", "lost" and "restored".
	Aggregators *int `json:"aggregators,omitempty"`

	// Seconds is how long it took: a migration, a recovery, a job, a start; of "profiled",
	// an iteration.
	Seconds float64 `json:"seconds,omitempty"`
	// Cores is, of "profiled", the CPU time that the job needs per time.
	Cores float64 `json:"cores,omitempty"`
	// Loss is, of "profiled" and "verdict", the part of its speed that the job loses by the model.
	Loss    float64 `json:"loss,omitempty"`
	Speed   float64 `json:"speed,omitempty"`   // "verdict": of what it was when profiled
	Verdict string  `json:"verdict,omitempty"` // paramservice.Verdict
	Other   string  `json:"other,omitempty"`   // "verdict": the job that was assigned anew
	// Interfered is, of "verdict", the job's Aggregators whose links others load.
	Interfered []int   `json:"interfered,omitempty"`
	NaNs       int64   `json:"nans,omitempty"`  // "nan": values that are not finite, so far
	Ranks      []int32 `json:"ranks,omitempty"` // "nan": whose gradients they came from
	Why        string  `json:"why,omitempty"`   // "ended" (empty: all workers have finished), "lost", "refused", "error"
}

// emit is called with mu held.
func (m *Master) emit(e Event) {
	e.T = time.Since(m.began).Seconds()
	m.cfg.Emit(e)
}
