package aggmgr

// Usage is what of a switch is taken.
type Usage struct {
	Switch    string
	Trees     int // set up
	OSTs      int // of all of them together
	FreeTrees int
	FreeOSTs  int // in the largest piece, which is what a tree can get
}

// Usage is that of every switch, in the order of the fabric.
func (m *Manager) Usage() []Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Usage
	for i, s := range m.g.Switches {
		u := Usage{Switch: s.Name, Trees: m.ledgers[i].trees, FreeTrees: s.Trees - m.ledgers[i].trees, FreeOSTs: m.ledgers[i].osts.room(s.OSTs)}
		for _, r := range m.ledgers[i].osts {
			u.OSTs += r.size
		}
		all = append(all, u)
	}
	return all
}
