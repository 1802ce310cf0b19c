package flow

// A ring is streams, each a node with a link and no parent. It sends as much one way over a
// full-duplex cable as it receives the other way, at the same time. Models whose links have
// two directions load each with what crosses it. WaterFill has one undirected link for the
// two, which is as good for a tree: its results take the other direction, and the busier one
// counts. So that a ring is no slower there than it is, its streams count in the direction
// that more of them take.

// streams reports whether job j has any.
func (j *Job) streams() bool {
	for i := range j.Nodes {
		if j.Nodes[i].stream() {
			return true
		}
	}
	return false
}

func (n *Node) stream() bool { return n.Parent == None && n.Up != None }

// returning reports which of j's nodes are streams in the direction of a cable that fewer
// of them take, or, of as many, in the second direction. cable has the first direction of
// every link's cable.
func (j *Job) returning(cable []int32) []bool {
	type counts struct{ first, second int }
	on := map[int32]counts{}
	for i := range j.Nodes {
		if n := &j.Nodes[i]; n.stream() {
			c := cable[n.Up]
			x := on[c]
			if int(c) == n.Up {
				x.first++
			} else {
				x.second++
			}
			on[c] = x
		}
	}
	out := make([]bool, len(j.Nodes))
	for i := range j.Nodes {
		if n := &j.Nodes[i]; n.stream() {
			c := cable[n.Up]
			x := on[c]
			out[i] = (int(c) == n.Up) != (x.first >= x.second)
		}
	}
	return out
}
