package netpack

import "github.com/inabench/inabench/placement/cluster"

// Rule is by what the policy chooses servers, in a line.
func (p *policy) Rule() string {
	if p.Variant == Published {
		return "NetPack's Algorithm 2 and Equation 1 as they are printed"
	}
	return "the most jobs that fit; one server where one is enough; else the plan of the most value by Equation 1"
}

// Rule is by what the policy chooses servers, in a line.
func (p *plus) Rule() string {
	return "NetPack's placement, then what lowers the time of all jobs' exchanges by the true steady state"
}

// Explained is a policy of this package that tells why, and does the same otherwise; not
// ok for other policies.
func Explained(p cluster.Policy, why func(Explanation)) (_ cluster.Policy, ok bool) {
	switch p := p.(type) {
	case *policy:
		o := p.Options
		o.Explain = why
		return New(o), true
	case *plus:
		q, ok := Explained(p.netpack, why)
		return &plus{q}, ok
	}
	return nil, false
}
