package p4rt

// Counters are the names of the counters that the switch's pipeline has; none before
// Push or Attach.
func (c *Client) Counters() []string {
	pipe, err := c.pipeline()
	if err != nil {
		return nil
	}
	var names []string
	for _, info := range pipe.Counters() {
		names = append(names, info.Name)
	}
	return names
}
