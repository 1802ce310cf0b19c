package bfrt

// HangUp ends the session without undoing anything, as the end of its process does.
func (c *Client) HangUp() { c.hangUp() }
